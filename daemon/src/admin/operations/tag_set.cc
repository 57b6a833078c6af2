// SPDX-License-Identifier: Apache-2.0
//
// `tag.set`.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

Result<TagChange> ReadTagChange(const AdminRequest& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
  const auto description = TextField(request, "description");
  const auto step = NumberField(request, "step");
  const auto max_id = NumberField(request, "max_id");
  const auto access = AccessField(request);
  const auto refill = RefillFields(request);
  const auto order = OrderField(request);
  const auto lane_block = NumberField(request, "lane_block");
  for (const Status& status :
       {description.status(), step.status(), max_id.status(), access.status(), refill.status(),
        order.status(), lane_block.status()}) {
    if (!status.ok()) return status;
  }
  return TagChange{.tag = std::move(tag).value(),
                   .step = step.value(),
                   .max_id = max_id.value(),
                   .description = description.value(),
                   .access = access.value(),
                   .refill = refill.value(),
                   .order = order.value(),
                   .lane_block = lane_block.value()};
}

}  // namespace

void SetTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
            AdminDone done) {
  Result<TagChange> change = ReadTagChange(request);
  if (!change.ok()) return Fail(done, change.status());
  context.worker.Submit<TagRecord>(
      [change = std::move(change).value()](Store& store, HighWaterMarks&) {
        return store.ChangeTag(change);
      },
      [&context, done = std::move(done)](const Result<TagRecord>& record) {
        if (!record.ok()) return Fail(done, record.status());
        context.tags.OnTagChanged(record.value());
        log::Info("tag.changed", {{"tag", record.value().tag},
                                  {"step", record.value().step},
                                  {"access", TagAccessName(record.value().access)}});
        done(Status::Ok(), Dump({{"tag", TagJson(record.value())}}));
      });
}

}  // namespace idd::daemon
