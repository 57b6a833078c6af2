// SPDX-License-Identifier: Apache-2.0
//
// `tag.check`: what tag.create, tag.set or tag.delete would make of a tag, without a change.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/tag_fields.h"
#include "refill/refill_settings.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// The record that the store would make.
TagRecord RecordOf(const NewTag& tag) {
  TagRecord record;
  record.tag = tag.tag;
  record.mode = tag.mode;
  record.next_id = tag.start.value_or(1);
  record.step = tag.step;
  record.max_id = tag.max_id.value_or(kMaxId);
  record.description = tag.description;
  record.access = tag.access;
  record.order = tag.order;
  record.lane_block = tag.lane_block;
  record.refill.rule = tag.refill.rule.value_or(record.refill.rule);
  record.refill.step = tag.step;
  record.refill.max_step = tag.refill.max_step.value_or(record.refill.max_step);
  record.refill.max_prefetch = tag.refill.max_prefetch.value_or(DefaultMaxPrefetch(tag.step));
  record.refill.outage_tolerance =
      tag.refill.outage_tolerance.value_or(record.refill.outage_tolerance);
  record.snowflake = tag.snowflake;
  return record;
}

// The store keeps no value for a setting that has its default, so the default may move.
void ChangeRefill(const TagChange& change, TagRecord& record) {
  RefillSettings& refill = record.refill;
  const bool has_default = refill.max_prefetch == DefaultMaxPrefetch(refill.step);
  refill.step = record.step;
  if (has_default) refill.max_prefetch = DefaultMaxPrefetch(refill.step);
  refill.max_prefetch = change.refill.max_prefetch.value_or(refill.max_prefetch);
  refill.max_step = std::max(change.refill.max_step.value_or(refill.max_step), refill.step);
  refill.rule = change.refill.rule.value_or(refill.rule);
  refill.outage_tolerance = change.refill.outage_tolerance.value_or(refill.outage_tolerance);
}

TagRecord Changed(TagRecord record, const TagChange& change) {
  record.step = change.step.value_or(record.step);
  record.max_id = change.max_id.value_or(record.max_id);
  record.description = change.description.value_or(record.description);
  record.access = change.access.value_or(record.access);
  record.order = change.order.value_or(record.order);
  record.lane_block = change.lane_block.value_or(record.lane_block);
  ChangeRefill(change, record);
  return record;
}

Result<TagRecord> CheckCreate(Store& store, const NewTag& tag) {
  if (Status status = CheckNewTag(tag); !status.ok()) return status;
  if (Status status = CheckStart(tag, tag.start.value_or(1), 0); !status.ok()) return status;
  const Result<TagRecord> found = store.FindTag(tag.tag);
  if (found.ok()) return Status(Code::kInvalid, "tag '" + tag.tag + "' already exists");
  if (found.status().code() != Code::kNoSuchTag) return found.status();
  return RecordOf(tag);
}

Result<TagRecord> CheckSet(Store& store, const TagChange& change) {
  if (Status status = CheckTagChange(change); !status.ok()) return status;
  Result<TagRecord> found = store.FindTag(change.tag);
  if (!found.ok()) return found.status();
  TagRecord after = Changed(std::move(found).value(), change);
  if (Status status = CheckChanged(change, after); !status.ok()) return status;
  return after;
}

using Check = std::function<Result<TagRecord>(Store& store)>;

Result<Check> ReadCheck(const AdminRequest& request) {
  const Result<std::optional<std::string>> action = TextField(request, "action");
  if (!action.ok()) return action.status();
  const std::string name = action.value().value_or("");
  if (name == "create") {
    Result<NewTag> tag = ReadNewTag(request);
    if (!tag.ok()) return tag.status();
    return Check([tag = std::move(tag).value()](Store& store) { return CheckCreate(store, tag); });
  }
  if (name == "set") {
    Result<TagChange> change = ReadTagChange(request);
    if (!change.ok()) return change.status();
    return Check(
        [change = std::move(change).value()](Store& store) { return CheckSet(store, change); });
  }
  if (name == "delete") {
    Result<std::string> tag = TagField(request);
    if (!tag.ok()) return tag.status();
    return Check([tag = std::move(tag).value()](Store& store) { return store.FindTag(tag); });
  }
  return Status(Code::kInvalid, "'action' must be create, set or delete");
}

}  // namespace

void CheckTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
              AdminDone done) {
  Result<Check> check = ReadCheck(request);
  if (!check.ok()) return Fail(done, check.status());
  context.worker.Submit<TagRecord>(
      [check = std::move(check).value()](Store& store, HighWaterMarks&) { return check(store); },
      [done = std::move(done)](const Result<TagRecord>& record) {
        if (!record.ok()) return Fail(done, record.status());
        done(Status::Ok(), Dump({{"tag", TagJson(record.value())}}));
      });
}

}  // namespace idd::daemon
