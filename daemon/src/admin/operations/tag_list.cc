// SPDX-License-Identifier: Apache-2.0
//
// `tag.list`.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"

namespace idd::daemon {

void ListTags(AdminContext& context, const AdminRequest& /*request*/, const PeerRights& rights,
              AdminDone done) {
  context.worker.Submit<std::vector<TagRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListTags(); },
      [rights, done = std::move(done)](const Result<std::vector<TagRecord>>& records) {
        if (!records.ok()) return Fail(done, records.status());
        Json tags = Json::array();
        for (const TagRecord& record : records.value()) {
          // The counter of a worker id is a row, but not a tag.
          if (ParseCounterName(record.tag).has_value()) continue;
          if (rights.MaySee(record.tag)) tags.push_back(TagJson(record));
        }
        done(Status::Ok(), Dump({{"tags", std::move(tags)}}));
      });
}

}  // namespace idd::daemon
