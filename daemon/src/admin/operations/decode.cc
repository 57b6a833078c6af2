// SPDX-License-Identifier: Apache-2.0
//
// `decode`: the parts of snowflake ids.
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
namespace {

constexpr std::size_t kMaxIds = 10'000;

Result<std::vector<std::uint64_t>> IdsField(const AdminRequest& request) {
  const auto field = request.find("ids");
  const bool is_list = field != request.end() && field->is_array() && !field->empty();
  if (!is_list || field->size() > kMaxIds) {
    return Status(Code::kInvalid,
                  "'ids' must be a list of 1 to " + std::to_string(kMaxIds) + " ids");
  }
  std::vector<std::uint64_t> ids;
  for (const AdminRequest& id : *field) {
    if (!id.is_number_unsigned()) return Status(Code::kInvalid, "'ids' must be a list of numbers");
    ids.push_back(id.get<std::uint64_t>());
  }
  return ids;
}

void Answer(const AdminDone& done, const TagRecord& record, const std::vector<std::uint64_t>& ids) {
  if (!record.snowflake.has_value()) {
    return Fail(done,
                {Code::kInvalid, "tag '" + record.tag + "' has mode " + TagModeName(record.mode) +
                                     ": its ids are plain numbers without parts"});
  }
  Json parts = Json::array();
  for (const std::uint64_t id : ids) parts.push_back(PartsJson(*record.snowflake, id));
  done(
      Status::Ok(),
      Dump({{"tag", record.tag}, {"mode", TagModeName(record.mode)}, {"parts", std::move(parts)}}));
}

}  // namespace

// The store is asked only for a tag that this host has not served yet.
void Decode(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
            AdminDone done) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  Result<std::vector<std::uint64_t>> ids = IdsField(request);
  if (!ids.ok()) return Fail(done, ids.status());
  if (const TagRecord* const known = context.tags.RecordOf(tag.value())) {
    return Answer(done, *known, ids.value());
  }
  context.worker.Submit<TagRecord>(
      [tag = std::move(tag).value()](Store& store, HighWaterMarks&) { return store.FindTag(tag); },
      [done = std::move(done), ids = std::move(ids).value()](const Result<TagRecord>& record) {
        if (!record.ok()) return Fail(done, record.status());
        Answer(done, record.value(), ids);
      });
}

}  // namespace idd::daemon
