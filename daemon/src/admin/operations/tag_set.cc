// SPDX-License-Identifier: Apache-2.0
//
// `tag.set`.
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/claimable.h"
#include "admin/shared/tag_fields.h"
#include "platform/logging.h"

namespace idd::daemon {
void SetTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
            AdminDone done) {
  Result<TagChange> change = ReadTagChange(request);
  if (!change.ok()) return Fail(done, change.status());
  const Result<std::chrono::milliseconds> wait = WaitField(request);
  if (!wait.ok()) return Fail(done, wait.status());
  context.worker.Submit<TagRecord>(
      [change = std::move(change).value()](Store& store, HighWaterMarks&) {
        return store.ChangeTag(change);
      },
      [&context, wait = wait.value(), done = std::move(done)](const Result<TagRecord>& record) {
        if (!record.ok()) return Fail(done, record.status());
        context.tags.OnTagChanged(record.value());
        log::Info("tag.changed", {{"tag", record.value().tag},
                                  {"step", record.value().step},
                                  {"access", TagAccessName(record.value().access)}});
        Json reply = {{"tag", TagJson(record.value())}};
        AwaitClaimable(context, {record.value().tag}, wait,
                       [done, reply](const Coverage& coverage) mutable {
                         AddClaimable(coverage, reply);
                         done(Status::Ok(), Dump(reply));
                       });
      });
}

}  // namespace idd::daemon
