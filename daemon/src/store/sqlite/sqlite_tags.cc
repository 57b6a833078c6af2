// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: tags.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "store/sqlite/sqlite_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

constexpr const char* kSelectTag =
    "SELECT a.biz_tag, a.max_id, a.step, a.description, a.update_time,"
    " coalesce(t.mode, 'segment'), coalesce(t.max_id_allowed, 9223372036854775806),"
    " coalesce(t.access, 'ring'),"
    " coalesce(t.refill, 'promise'), t.max_step, t.max_prefetch, t.outage_tolerance_s,"
    " coalesce(o.tag_order, 'host'), coalesce(o.lane_block, 0)"
    " FROM leaf_alloc AS a LEFT JOIN idd_tag AS t ON t.biz_tag = a.biz_tag"
    " LEFT JOIN idd_order AS o ON o.biz_tag = a.biz_tag";

}  // namespace

Result<TagRecord> SqliteStore::ReadTag(const std::string& tag) {
  SqliteQuery query = db_->Query(std::string(kSelectTag) + " WHERE a.biz_tag = ?1", tag);
  // A hand-made column may compare without case and so find another tag.
  while (query.Next()) {
    if (query.TextIf(0) != tag) continue;
    Result<TagRecord> record = ParseTagRow(query);
    if (!record.ok()) return record;
    Result<std::vector<Status>> wrong = workers().ReadLayouts({&record.value()});
    if (!wrong.ok()) return wrong.status();
    if (!wrong.value()[0].ok()) return wrong.value()[0];
    record.value().used_limit = NextOfWitness(tag);
    return record;
  }
  if (!query.Finish().ok()) return query.Finish();
  return Status(Code::kNoSuchTag, "there is no tag '" + tag + "' in " + DisplayUrl());
}

Result<std::vector<TagRecord>> SqliteStore::ListTags() {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(std::string(kSelectTag) + " ORDER BY a.biz_tag");
  std::vector<TagRecord> tags;
  while (query.Next()) {
    // A bad row must not hide the good ones; FindTag and TakeLease report what is wrong with it.
    Result<TagRecord> tag = ParseTagRow(query);
    if (tag.ok()) tags.push_back(std::move(tag).value());
  }
  if (!query.Finish().ok()) return query.Finish();
  if (Status status = workers().AddLayouts(tags); !status.ok()) return status;
  return tags;
}

Result<Store::TagResults> SqliteStore::FindTags(const std::vector<std::string>& tags) {
  if (!db_) return NotOpen();
  TagResults records;
  for (const std::string& tag : tags) records.push_back(ReadTag(tag));
  // A tag that is not found may lose its ring, so first check that the log was not replaced under
  // the reader.
  if (Status status = db_->CheckNotReplaced(); !status.ok()) return status;
  return records;
}

Result<TagRecord> SqliteStore::CreateTag(const NewTag& tag) {
  if (!db_) return NotOpen();
  if (Status status = CheckNewTag(tag); !status.ok()) return status;
  return Change([&] { return CreateInTransaction(tag); });
}

Result<TagRecord> SqliteStore::CreateInTransaction(const NewTag& tag) {
  SqliteQuery existing = db_->Query("SELECT 1 FROM leaf_alloc WHERE biz_tag = ?1", tag.tag);
  const bool exists = existing.Next();
  if (!existing.Finish().ok()) return existing.Finish();
  if (exists) return Status(Code::kInvalid, "tag '" + tag.tag + "' already exists");
  const Result<std::uint64_t> in_tables = UsedLimit(tag.tag);
  if (!in_tables.ok()) return in_tables.status();
  const std::uint64_t used = std::max(in_tables.value(), NextOfWitness(tag.tag));
  const std::uint64_t start = tag.start.value_or(std::max<std::uint64_t>(used, 1));
  if (Status status = CheckStart(tag, start, used); !status.ok()) return status;
  if (Status status = workers().CheckNew(tag, used); !status.ok()) return status;
  Status status = db_->Run(
      "INSERT INTO leaf_alloc(biz_tag, max_id, step, description, update_time)"
      " VALUES(?1, ?2, ?3, ?4, CURRENT_TIMESTAMP)",
      tag.tag, start, tag.step, tag.description);
  if (!status.ok()) return status;
  // A row deleted by hand may have left its policy behind.
  status = db_->Run(
      "INSERT OR REPLACE INTO idd_tag(biz_tag, mode, max_id_allowed, access)"
      " VALUES(?1, ?2, ?3, ?4)",
      tag.tag, std::string_view(TagModeName(tag.mode)), tag.max_id.value_or(kMaxId),
      std::string_view(TagAccessName(tag.access)));
  if (status.ok()) status = WriteRefill(tag.tag, tag.refill);
  if (status.ok() && tag.snowflake.has_value()) {
    status = db_->Run("REPLACE INTO idd_snowflake(biz_tag, layout) VALUES(?1, ?2)", tag.tag,
                      FormatLayout(*tag.snowflake));
  }
  if (status.ok()) {
    status = db_->Run(
        "INSERT OR REPLACE INTO idd_order(biz_tag, tag_order, lane_block) VALUES(?1, ?2, ?3)",
        tag.tag, std::string_view(TagOrderName(tag.order)), tag.lane_block);
  }
  if (!status.ok()) return status;
  return ReadTag(tag.tag);
}

// Makes the row of idd_tag if it is missing.
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
  if (Status status = CheckTagChange(change); !status.ok()) return status;
  return Change([&] { return ChangeInTransaction(change); });
}

// The row is checked after the change, not before, because setting the step is how a bad row is
// fixed.
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
  if (status.ok() && change.order.has_value()) {
    status = db_->Run(
        "INSERT INTO idd_order(biz_tag, tag_order) VALUES(?1, ?2)"
        " ON CONFLICT(biz_tag) DO UPDATE SET tag_order = excluded.tag_order",
        change.tag, std::string_view(TagOrderName(*change.order)));
  }
  if (status.ok() && change.lane_block.has_value()) {
    status = db_->Run(
        "INSERT INTO idd_order(biz_tag, lane_block) VALUES(?1, ?2)"
        " ON CONFLICT(biz_tag) DO UPDATE SET lane_block = excluded.lane_block",
        change.tag, *change.lane_block);
  }
  if (!status.ok()) return status;
  Result<TagRecord> record = ReadTag(change.tag);
  if (!record.ok()) return record;
  if (status = CheckChanged(change, record.value()); !status.ok()) return status;
  return record;
}

// ReturnTail() takes nothing back below a tombstone, so this leaves one, as for a deleted tag.
Result<TagRecord> SqliteStore::LiftTag(const std::string& tag, std::uint64_t to) {
  if (!db_) return NotOpen();
  return Change([&]() -> Result<TagRecord> {
    Result<TagRecord> record = ReadTag(tag);
    if (!record.ok()) return record;
    continuity_.Raise(tag, to);  // as durable as a lease
    for (const char* sql :
         {"UPDATE leaf_alloc SET max_id = ?2, update_time = CURRENT_TIMESTAMP"
          " WHERE biz_tag = ?1 AND max_id < ?2",
          "UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
          " WHERE token IN (SELECT token FROM idd_returned WHERE biz_tag = ?1 AND base < ?2)",
          "DELETE FROM idd_returned WHERE biz_tag = ?1 AND base < ?2",
          "INSERT INTO idd_deleted_tag(biz_tag, max_id) VALUES(?1, ?2)"
          " ON CONFLICT(biz_tag) DO UPDATE SET max_id = max(max_id, excluded.max_id)"}) {
      if (Status status = db_->Run(sql, tag, to); !status.ok()) return status;
    }
    return ReadTag(tag);
  });
}

Status SqliteStore::DeleteTag(const std::string& tag) {
  if (!db_) return NotOpen();
  Status status = Change([&] { return DeleteInTransaction(tag); });
  if (status.ok()) AtPoint("delete.committed");
  return status;
}

Status SqliteStore::DeleteInTransaction(const std::string& tag) {
  // An invalid row is not deleted: its tombstone would not show where the ids ended.
  Result<TagRecord> record = ReadTag(tag);
  if (!record.ok()) return record.status();
  // The listed tails will not be leased again, so they are given up.
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
        "DELETE FROM idd_order WHERE biz_tag = ?1", "DELETE FROM leaf_alloc WHERE biz_tag = ?1"}) {
    if (status = db_->Run(sql, tag); !status.ok()) return status;
  }
  return status;
}

}  // namespace idd::daemon
