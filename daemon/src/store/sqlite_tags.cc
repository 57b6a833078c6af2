// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: tags. leaf_alloc may be written by Leaf, by its users and by hand, so every row is
// checked when it is read.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "idd/wire/frames.h"
#include "store/sqlite_store.h"

namespace idd::daemon {
namespace {

constexpr std::uint64_t kMaxId = shm::kMaxLimit - 1;

constexpr const char* kSelectTag =
    "SELECT a.biz_tag, a.max_id, a.step, a.description, a.update_time,"
    " coalesce(t.mode, 'segment'), coalesce(t.max_id_allowed, 9223372036854775806),"
    " coalesce(t.access, 'ring'),"
    " coalesce(t.refill, 'promise'), t.max_step, t.max_prefetch, t.outage_tolerance_s"
    " FROM leaf_alloc AS a LEFT JOIN idd_tag AS t ON t.biz_tag = a.biz_tag";

Status BadColumn(const SqliteQuery& query, int column, const std::string& expected) {
  constexpr const char* kNames[] = {
      "leaf_alloc.biz_tag",     "leaf_alloc.max_id",      "leaf_alloc.step",
      "leaf_alloc.description", "leaf_alloc.update_time", "idd_tag.mode",
      "idd_tag.max_id_allowed", "idd_tag.access",         "idd_tag.refill",
      "idd_tag.max_step",       "idd_tag.max_prefetch",   "idd_tag.outage_tolerance_s"};
  const std::string tag = query.TextIf(0).value_or("(not a text)");
  return {Code::kInvalid, std::string(kNames[column]) + " of tag '" + tag + "' is " +
                              query.Describe(column) + "; it must be " + expected +
                              "; idd leases nothing from it until it is"};
}

// Columns 8 to 11; NULL is the default. A max_step below the step, which anybody may have raised in
// leaf_alloc, is the step.
Status ParseRefill(const SqliteQuery& query, RefillSettings& refill) {
  const std::optional<RefillRule> rule = ParseRefillRule(query.TextIf(8).value_or(std::string()));
  if (!rule.has_value()) return BadColumn(query, 8, "'promise' or 'leaf' and nothing else");
  refill.rule = *rule;
  const auto number = [&query](int column, std::uint64_t otherwise) {
    return query.IsNull(column) ? std::optional<std::uint64_t>(otherwise) : query.UintIf(column);
  };
  const std::optional<std::uint64_t> max_step = number(9, kMaxStep);
  if (!max_step.has_value() || *max_step < 1 || *max_step > kMaxStep) {
    return BadColumn(query, 9, "an integer from 1 to " + std::to_string(kMaxStep));
  }
  refill.max_step = std::max(*max_step, refill.step);
  const std::optional<std::uint64_t> max_prefetch = number(10, DefaultMaxPrefetch(refill.step));
  if (!max_prefetch.has_value() || *max_prefetch < 2) {
    return BadColumn(query, 10, "an integer from 2 to 2^63-1");
  }
  refill.max_prefetch = *max_prefetch;
  const std::optional<std::uint64_t> tolerance =
      number(11, static_cast<std::uint64_t>(kDefaultOutageTolerance.count()));
  const auto longest = static_cast<std::uint64_t>(kMaxOutageTolerance.count());
  if (!tolerance.has_value() || *tolerance > longest) {
    return BadColumn(query, 11, "an integer from 0 to " + std::to_string(longest));
  }
  refill.outage_tolerance = std::chrono::seconds(*tolerance);
  return Status::Ok();
}

bool IsMode(std::string_view mode) {
  return mode == "segment" || mode == "snowflake" || mode == "ticket";
}

// The present row of kSelectTag. kInvalid when a column does not make sense; the query goes on.
Result<TagRecord> ParseTag(SqliteQuery& query) {
  TagRecord record;
  record.tag = query.TextIf(0).value_or(std::string());
  if (Status status = wire::CheckTagName(record.tag); !status.ok()) {
    return status.WithContext("a row of leaf_alloc has no usable biz_tag");
  }
  const std::optional<std::uint64_t> next_id = query.UintIf(1);
  if (!next_id.has_value()) return BadColumn(query, 1, "an integer from 0 to 2^63-1");
  const std::uint64_t step = query.UintIf(2).value_or(0);
  if (step < 1 || step > kMaxStep) {
    return BadColumn(query, 2, "an integer from 1 to " + std::to_string(kMaxStep));
  }
  record.next_id = *next_id;
  record.step = step;
  record.description = query.TextIf(3).value_or(std::string());
  record.update_time = query.TextIf(4).value_or(std::string());
  record.mode = query.TextIf(5).value_or(std::string());
  if (!IsMode(record.mode)) return BadColumn(query, 5, "'segment', 'snowflake' or 'ticket'");
  // The table's own checks may have been switched off when it was written.
  const std::optional<std::uint64_t> max_id = query.UintIf(6);
  if (!max_id.has_value() || *max_id > kMaxId) {
    return BadColumn(query, 6, "an integer from 0 to " + std::to_string(kMaxId));
  }
  record.max_id = *max_id;
  // Taken for 'ring', an unknown policy would pass out what it may have been meant to keep.
  const std::optional<TagAccess> access = ParseTagAccess(query.TextIf(7).value_or(std::string()));
  if (!access.has_value()) return BadColumn(query, 7, "'ring' or 'socket' and nothing else");
  record.access = *access;
  record.refill.step = step;
  if (Status status = ParseRefill(query, record.refill); !status.ok()) return status;
  if (!query.Finish().ok()) return query.Finish();
  return record;
}

Status CheckStep(const std::string& tag, std::uint64_t step) {
  if (step >= 1 && step <= kMaxStep) return Status::Ok();
  return {Code::kInvalid, "the step of tag '" + tag + "' must be from 1 to " +
                              std::to_string(kMaxStep) + ", not " + std::to_string(step)};
}

Status CheckMaxId(const std::string& tag, std::uint64_t max_id) {
  if (max_id <= kMaxId) return Status::Ok();
  return {Code::kInvalid, "the largest id of tag '" + tag + "' must be at most " +
                              std::to_string(kMaxId) + ", not " + std::to_string(max_id)};
}

// The numbers of a new tag; `used` is where a deleted namesake ended.
Status CheckNewTag(const NewTag& tag, std::uint64_t start, std::uint64_t used) {
  const std::string name = "tag '" + tag.tag + "'";
  if (start < used) {
    return {Code::kInvalid, name + " existed before and its ids below " + std::to_string(used) +
                                " are used; it cannot start at " + std::to_string(start)};
  }
  const std::uint64_t max_id = tag.max_id.value_or(kMaxId);
  if (start > max_id) {
    return {Code::kInvalid, "the first id " + std::to_string(start) + " of " + name +
                                " lies above its largest id " + std::to_string(max_id)};
  }
  return Status::Ok();
}

// Of a tag whose step is `step`.
Status CheckRefill(const std::string& tag, std::uint64_t step, const RefillChange& refill) {
  const std::string name = "tag '" + tag + "'";
  if (refill.max_step.has_value() && (*refill.max_step < step || *refill.max_step > kMaxStep)) {
    return {Code::kInvalid, "the largest step of " + name + " must be from its step, " +
                                std::to_string(step) + ", to " + std::to_string(kMaxStep) +
                                ", not " + std::to_string(*refill.max_step)};
  }
  if (refill.max_prefetch.has_value() &&
      (*refill.max_prefetch < 2 * step || *refill.max_prefetch > shm::kMaxLimit)) {
    return {Code::kInvalid, "what is held of " + name + " at most must be two steps or more, " +
                                std::to_string(2 * step) + " ids, and below 2^63, not " +
                                std::to_string(*refill.max_prefetch)};
  }
  if (refill.outage_tolerance.has_value() && *refill.outage_tolerance > kMaxOutageTolerance) {
    return {Code::kInvalid, "the outage tolerance of " + name + " must be at most " +
                                std::to_string(kMaxOutageTolerance.count()) + " s"};
  }
  return Status::Ok();
}

Status CheckMode(const NewTag& tag) {
  if (IsMode(tag.mode)) return Status::Ok();
  return {Code::kInvalid, "the mode of tag '" + tag.tag +
                              "' must be segment, snowflake or ticket, not '" + tag.mode + "'"};
}

}  // namespace

Result<TagRecord> SqliteStore::ReadTag(const std::string& tag) {
  SqliteQuery query = db_->Query(std::string(kSelectTag) + " WHERE a.biz_tag = ?1", tag);
  // A hand-made column may compare without case; what it then finds is another tag.
  while (query.Next()) {
    if (query.TextIf(0) == tag) return ParseTag(query);
  }
  if (!query.Finish().ok()) return query.Finish();
  return Status(Code::kNoSuchTag, "there is no tag '" + tag + "' in " + DisplayUrl());
}

Result<std::vector<TagRecord>> SqliteStore::ListTags() {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(std::string(kSelectTag) + " ORDER BY a.biz_tag");
  std::vector<TagRecord> tags;
  while (query.Next()) {
    // A bad row hides no good one; FindTag and TakeLease say what is wrong with it.
    Result<TagRecord> tag = ParseTag(query);
    if (tag.ok()) tags.push_back(std::move(tag).value());
  }
  if (!query.Finish().ok()) return query.Finish();
  return tags;
}

Result<Store::TagResults> SqliteStore::FindTags(const std::vector<std::string>& tags) {
  if (!db_) return NotOpen();
  TagResults records;
  for (const std::string& tag : tags) records.push_back(ReadTag(tag));
  return records;
}

Result<TagRecord> SqliteStore::CreateTag(const NewTag& tag) {
  if (!db_) return NotOpen();
  if (Status status = wire::CheckTagName(tag.tag); !status.ok()) return status;
  if (Status status = CheckMode(tag); !status.ok()) return status;
  if (Status status = CheckStep(tag.tag, tag.step); !status.ok()) return status;
  if (Status status = CheckMaxId(tag.tag, tag.max_id.value_or(kMaxId)); !status.ok()) {
    return status;
  }
  if (Status status = CheckRefill(tag.tag, tag.step, tag.refill); !status.ok()) return status;
  return db_->InTransaction([&] { return CreateInTransaction(tag); });
}

Result<TagRecord> SqliteStore::CreateInTransaction(const NewTag& tag) {
  SqliteQuery existing = db_->Query("SELECT 1 FROM leaf_alloc WHERE biz_tag = ?1", tag.tag);
  const bool exists = existing.Next();
  if (!existing.Finish().ok()) return existing.Finish();
  if (exists) return Status(Code::kInvalid, "tag '" + tag.tag + "' already exists");
  Result<std::uint64_t> used = UsedLimit(tag.tag);
  if (!used.ok()) return used.status();
  const std::uint64_t start = tag.start.value_or(std::max<std::uint64_t>(used.value(), 1));
  if (Status status = CheckNewTag(tag, start, used.value()); !status.ok()) return status;
  Status status = db_->Run(
      "INSERT INTO leaf_alloc(biz_tag, max_id, step, description, update_time)"
      " VALUES(?1, ?2, ?3, ?4, CURRENT_TIMESTAMP)",
      tag.tag, start, tag.step, tag.description);
  if (!status.ok()) return status;
  // A row deleted by hand may have left its policy behind.
  status = db_->Run(
      "INSERT OR REPLACE INTO idd_tag(biz_tag, mode, max_id_allowed, access)"
      " VALUES(?1, ?2, ?3, ?4)",
      tag.tag, tag.mode, tag.max_id.value_or(kMaxId), std::string_view(TagAccessName(tag.access)));
  if (status.ok()) status = WriteRefill(tag.tag, tag.refill);
  if (!status.ok()) return status;
  return ReadTag(tag.tag);
}

// The row of idd_tag is made if it is not there.
Status SqliteStore::WriteRefill(const std::string& tag, const RefillChange& refill) {
  Status status;
  const auto write = [&](const char* column, const auto& value) {
    if (!status.ok()) return;
    const std::string name(column);
    status = db_->Run("INSERT INTO idd_tag(biz_tag, " + name + ") VALUES(?1, ?2)" +
                          " ON CONFLICT(biz_tag) DO UPDATE SET " + name + " = excluded." + name,
                      tag, value);
  };
  if (refill.rule.has_value()) write("refill", std::string_view(RefillRuleName(*refill.rule)));
  if (refill.max_step.has_value()) write("max_step", *refill.max_step);
  if (refill.max_prefetch.has_value()) write("max_prefetch", *refill.max_prefetch);
  if (refill.outage_tolerance.has_value()) {
    write("outage_tolerance_s", static_cast<std::uint64_t>(refill.outage_tolerance->count()));
  }
  return status;
}

Result<TagRecord> SqliteStore::ChangeTag(const TagChange& change) {
  if (!db_) return NotOpen();
  if (change.step.has_value()) {
    if (Status status = CheckStep(change.tag, *change.step); !status.ok()) return status;
  }
  if (change.max_id.has_value()) {
    if (Status status = CheckMaxId(change.tag, *change.max_id); !status.ok()) return status;
  }
  // What no step could make right; the rest is looked at beside the row.
  if (Status status = CheckRefill(change.tag, change.step.value_or(1), change.refill);
      !status.ok()) {
    return status;
  }
  return db_->InTransaction([&] { return ChangeInTransaction(change); });
}

// The row is checked behind the change, not before: setting the step is how a bad one is mended.
Result<TagRecord> SqliteStore::ChangeInTransaction(const TagChange& change) {
  Status status;
  if (change.step.has_value()) {
    status = db_->Run(
        "UPDATE leaf_alloc SET step = ?2, update_time = CURRENT_TIMESTAMP WHERE biz_tag = ?1",
        change.tag, *change.step);
  }
  if (status.ok() && change.description.has_value()) {
    status = db_->Run(
        "UPDATE leaf_alloc SET description = ?2, update_time = CURRENT_TIMESTAMP"
        " WHERE biz_tag = ?1",
        change.tag, *change.description);
  }
  if (status.ok() && change.max_id.has_value()) {
    status = db_->Run(
        "INSERT INTO idd_tag(biz_tag, max_id_allowed) VALUES(?1, ?2)"
        " ON CONFLICT(biz_tag) DO UPDATE SET max_id_allowed = excluded.max_id_allowed",
        change.tag, *change.max_id);
  }
  if (status.ok() && change.access.has_value()) {
    status = db_->Run(
        "INSERT INTO idd_tag(biz_tag, access) VALUES(?1, ?2)"
        " ON CONFLICT(biz_tag) DO UPDATE SET access = excluded.access",
        change.tag, std::string_view(TagAccessName(*change.access)));
  }
  if (status.ok()) status = WriteRefill(change.tag, change.refill);
  if (!status.ok()) return status;
  Result<TagRecord> record = ReadTag(change.tag);
  if (!record.ok()) return record;
  status = CheckRefill(change.tag, record.value().step, change.refill);
  if (!status.ok()) return status;
  // The next id may stand just above it: that stops the tag.
  if (change.max_id.has_value() && record.value().next_id > *change.max_id + 1) {
    return Status(Code::kInvalid, "the ids of tag '" + change.tag + "' below " +
                                      std::to_string(record.value().next_id) +
                                      " are leased already; its largest id cannot be " +
                                      std::to_string(*change.max_id));
  }
  return record;
}

Status SqliteStore::DeleteTag(const std::string& tag) {
  if (!db_) return NotOpen();
  Status status = db_->InTransaction([&] { return DeleteInTransaction(tag); });
  if (status.ok()) AtPoint("delete.committed");
  return status;
}

Status SqliteStore::DeleteInTransaction(const std::string& tag) {
  // A row that makes no sense is not deleted: its tombstone would not know where the ids ended.
  Result<TagRecord> record = ReadTag(tag);
  if (!record.ok()) return record.status();
  // Nobody will take the listed tails again, so they are given up.
  Status status = db_->Run(
      "UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
      " WHERE token IN (SELECT token FROM idd_returned WHERE biz_tag = ?1)",
      tag);
  if (!status.ok()) return status;
  Result<std::uint64_t> used = UsedLimit(tag);
  if (!used.ok()) return used.status();
  status = db_->Run(
      "INSERT INTO idd_deleted_tag(biz_tag, max_id) VALUES(?1, ?2)"
      " ON CONFLICT(biz_tag) DO UPDATE SET max_id = excluded.max_id,"
      " deleted_at = CURRENT_TIMESTAMP",
      tag, std::max(used.value(), record.value().next_id));
  if (!status.ok()) return status;
  AtPoint("delete.entombed");
  for (const char* sql :
       {"DELETE FROM idd_returned WHERE biz_tag = ?1", "DELETE FROM idd_tag WHERE biz_tag = ?1",
        "DELETE FROM leaf_alloc WHERE biz_tag = ?1"}) {
    if (status = db_->Run(sql, tag); !status.ok()) return status;
  }
  return status;
}

}  // namespace idd::daemon
