// SPDX-License-Identifier: Apache-2.0
//
// The settings of a tag in a request.
#ifndef IDD_DAEMON_ADMIN_SHARED_TAG_FIELDS_H_
#define IDD_DAEMON_ADMIN_SHARED_TAG_FIELDS_H_

#include "admin/shared/admin_request.h"
#include "idd/base/status.h"
#include "store/store.h"

namespace idd::daemon {

// The tag that a request asks for. kInvalid also if its mode does not have a setting.
[[nodiscard]] Result<NewTag> ReadNewTag(const AdminRequest& request);
[[nodiscard]] Result<TagChange> ReadTagChange(const AdminRequest& request);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_TAG_FIELDS_H_
