// SPDX-License-Identifier: Apache-2.0
//
// `tag.await`: waits until ids of a tag can be claimed.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/claimable.h"

namespace idd::daemon {

void AwaitTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
              AdminDone done) {
  const Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const Result<std::chrono::milliseconds> wait = WaitField(request);
  if (!wait.ok()) return Fail(done, wait.status());
  AwaitClaimable(context, {tag.value()}, wait.value(),
                 [tag = tag.value(), done = std::move(done)](const Coverage& coverage) {
                   Json document = {{"tag", tag}};
                   AddClaimable(coverage, document);
                   done(Status::Ok(), Dump(document));
                 });
}

}  // namespace idd::daemon
