// SPDX-License-Identifier: Apache-2.0
//
// Functions that `drain` and `resume` share.
#ifndef IDD_DAEMON_ADMIN_OPERATIONS_DRAIN_SCOPE_H_
#define IDD_DAEMON_ADMIN_OPERATIONS_DRAIN_SCOPE_H_

#include <string>

#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "idd/base/status.h"

namespace idd::daemon {

// The tag that the request names, or kWholeHost.
[[nodiscard]] Result<std::string> ReadScope(const AdminRequest& request);
// The scope's fields in the answer.
[[nodiscard]] Json ScopeJson(const std::string& scope);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_OPERATIONS_DRAIN_SCOPE_H_
