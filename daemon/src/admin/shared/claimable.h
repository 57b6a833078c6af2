// SPDX-License-Identifier: Apache-2.0
//
// When an operation that makes or changes tags is complete: when ids of them can be claimed.
#ifndef IDD_DAEMON_ADMIN_SHARED_CLAIMABLE_H_
#define IDD_DAEMON_ADMIN_SHARED_CLAIMABLE_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "idd/base/status.h"
#include "leasing/cover_tags.h"

namespace idd::daemon {

struct AdminContext;  // admin_context.h

// The field `wait_ms`: how long a request waits at most, 5 s if it is absent. kInvalid: more than
// ten minutes.
[[nodiscard]] Result<std::chrono::milliseconds> WaitField(const AdminRequest& request);

// Makes room for leases of the tags (CoverTags), and waits until every host may lease them, at most
// for `wait`. Then calls `done`, later on the loop, with the tags for which that is not so.
void AwaitClaimable(AdminContext& context, std::vector<std::string> tags,
                    std::chrono::milliseconds wait, std::function<void(const Coverage&)> done);

// Adds the fields `claimable`, `reason` and `waits_for` to a reply.
void AddClaimable(const Coverage& coverage, Json& reply);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_CLAIMABLE_H_
