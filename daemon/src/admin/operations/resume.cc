// SPDX-License-Identifier: Apache-2.0
//
// `resume`: ends a drain.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/drain_scope.h"
#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

void LogResumed(const std::string& scope, uid_t uid) {
  if (scope == kWholeHost) {
    log::Info("host.resumed", {{"uid", uid}});
  } else {
    log::Info("tag.resumed", {{"tag", scope}, {"uid", uid}});
  }
}

}  // namespace

void Resume(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
            AdminDone done) {
  const Result<std::string> scope = ReadScope(request);
  if (!scope.ok()) return Fail(done, scope.status());
  const std::string& tag = scope.value();
  if (tag != kWholeHost && context.tags.drains().Has(kWholeHost)) {
    return Fail(done, {Code::kInvalid,
                       "the whole host is drained; 'idctl resume' without a tag ends that"});
  }
  context.drains.FindScope(
      tag, [&context, tag = scope.value(), rights, done = std::move(done)](const Status& known) {
        if (!known.ok()) return Fail(done, known);
        const bool was_drained = context.tags.drains().Has(tag);
        context.drains.SetDrained(
            tag, false, [&context, tag, rights, done, was_drained](const Status& noted) {
              if (!noted.ok())
                return Fail(done, noted.WithContext("the drain's end cannot be noted"));
              context.tags.Resume(tag);
              if (was_drained) LogResumed(tag, rights.peer().uid);
              Json document = ScopeJson(tag);
              document["was_drained"] = was_drained;
              document["still_drained"] = Json::array();
              for (const std::string& other : context.tags.drains().Tags()) {
                if (rights.MaySee(other)) document["still_drained"].push_back(other);
              }
              done(Status::Ok(), Dump(document));
            });
      });
}

}  // namespace idd::daemon
