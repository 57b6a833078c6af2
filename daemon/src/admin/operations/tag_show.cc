// SPDX-License-Identifier: Apache-2.0
//
// `tag.show`.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/snowflake_fields.h"

namespace idd::daemon {

void ShowTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
             AdminDone done) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  context.worker.Submit<Json>(
      [tag = std::move(tag).value()](Store& store, HighWaterMarks&) -> Result<Json> {
        const Result<TagRecord> record = store.FindTag(tag);
        if (!record.ok()) return record.status();
        const Result<std::vector<ReturnedRange>> returned = store.ListReturned(tag);
        if (!returned.ok()) return returned.status();
        Json document = TagJson(record.value());
        if (record.value().snowflake.has_value()) {
          const Result<std::vector<WorkerRecord>> workers = store.ListWorkers(tag);
          if (!workers.ok()) return workers.status();
          document["workers"] = WorkersJson(*record.value().snowflake, workers.value());
        }
        document["returned"] = Json::array();
        for (const ReturnedRange& range : returned.value()) {
          document["returned"].push_back(
              {{"host", range.host}, {"base", range.ids.first}, {"limit", range.ids.limit}});
        }
        return document;
      },
      [done = std::move(done)](const Result<Json>& document) {
        if (!document.ok()) return Fail(done, document.status());
        done(Status::Ok(), Dump({{"tag", document.value()}}));
      });
}

}  // namespace idd::daemon
