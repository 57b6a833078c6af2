// SPDX-License-Identifier: Apache-2.0
//
// `tag.delete`.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "platform/logging.h"

namespace idd::daemon {

void DeleteTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
               AdminDone done) {
  const Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const auto force = request.find("force");
  if (force == request.end() || *force != true) {
    return Fail(done, {Code::kInvalid, "deleting a tag needs \"force\": true"});
  }
  context.drains.DeleteTag(tag.value(),
                           [tag = tag.value(), done = std::move(done)](const Status& deleted) {
                             if (!deleted.ok()) return Fail(done, deleted);
                             log::Warning("tag.deleted", {{"tag", tag}});
                             done(Status::Ok(), Dump({{"deleted", tag}}));
                           });
}

}  // namespace idd::daemon
