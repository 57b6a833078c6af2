// SPDX-License-Identifier: Apache-2.0
//
// SqlStore: tags.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "store/sql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// A setting's column and its value for ParseTagRow().
using TagColumns = std::array<std::pair<std::string, std::string>, kTagColumns>;
TagColumns ColumnsOfTags() {
  return {{{"biz_tag", "a.biz_tag"},
           {"max_id", "a.max_id"},
           {"step", "a.step"},
           {"description", "a.description"},
           {"update_time", "a.update_time"},
           {"mode", "COALESCE(t.mode, 'segment')"},
           {"max_id_allowed", "COALESCE(t.max_id_allowed, 9223372036854775806)"},
           {"access", "COALESCE(t.access, 'ring')"},
           {"refill", "COALESCE(t.refill, 'promise')"},
           {"max_step", "t.max_step"},
           {"max_prefetch", "t.max_prefetch"},
           {"outage_tolerance_s", "t.outage_tolerance_s"},
           {"tag_order", "COALESCE(o.tag_order, 'host')"},
           {"lane_block", "COALESCE(o.lane_block, 0)"},
           {"layout", "s.layout"}}};
}

std::string Select(const SqlSession& session, const TagColumns& columns, const std::string& more) {
  std::string list;
  for (const auto& [column, value] : columns) list += (list.empty() ? "" : ", ") + value;
  const std::string name = session.AsOwnName("a.biz_tag");
  return "SELECT " + list + more +
         " FROM leaf_alloc AS a LEFT JOIN idd_tag AS t ON t.biz_tag = " + name +
         " LEFT JOIN idd_order AS o ON o.biz_tag = " + name +
         " LEFT JOIN idd_snowflake AS s ON s.biz_tag = " + name;
}

struct Setting {
  const char* table;
  const char* column;
  SqlValue value;
};

std::vector<Setting> SettingsOf(const TagChange& change) {
  std::vector<Setting> settings;
  const auto set = [&](const char* table, const char* column, SqlValue value) {
    settings.push_back({table, column, std::move(value)});
  };
  const RefillChange& refill = change.refill;
  if (change.step) set("leaf_alloc", "step", *change.step);
  if (change.description) set("leaf_alloc", "description", *change.description);
  if (change.max_id) set("idd_tag", "max_id_allowed", *change.max_id);
  if (change.access) set("idd_tag", "access", TagAccessName(*change.access));
  if (refill.rule) set("idd_tag", "refill", RefillRuleName(*refill.rule));
  if (refill.max_step) set("idd_tag", "max_step", *refill.max_step);
  if (refill.max_prefetch) set("idd_tag", "max_prefetch", *refill.max_prefetch);
  if (refill.outage_tolerance) {
    set("idd_tag", "outage_tolerance_s",
        static_cast<std::uint64_t>(refill.outage_tolerance->count()));
  }
  if (change.order) set("idd_order", "tag_order", TagOrderName(*change.order));
  if (change.lane_block) set("idd_order", "lane_block", *change.lane_block);
  return settings;
}

// Returned ranges that are not leased again are given up.
std::vector<SqlStatement> GiveUp(const std::string& returned, const SqlValues& values) {
  return {
      {"UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
       " WHERE token IN (SELECT token FROM idd_returned WHERE " +
           returned + ")",
       values},
      {"DELETE FROM idd_returned WHERE " + returned, values}};
}

}  // namespace

std::string SqlStore::SelectTags(const std::string& more) const {
  return Select(*this, ColumnsOfTags(), more);
}

Status SqlStore::NoSuchTag(const std::string& tag) const {
  return {Code::kNoSuchTag, "there is no tag '" + tag + "' in " + DisplayUrl()};
}

// The largest id of a tag is also bounded by the column, which stores the next one.
Result<TagRecord> SqlStore::ParseTag(const StoredRow& row) const {
  Result<TagRecord> record = ParseTagRow(row);
  if (record.ok()) record.value().max_id = std::min(record.value().max_id, largest_max_id() - 1);
  return record;
}

Status SqlStore::CheckFits(const std::string& tag, std::optional<std::uint64_t> max_id) const {
  if (max_id.value_or(0) < largest_max_id()) return Status::Ok();
  return {Code::kInvalid, "the column max_id of leaf_alloc stores numbers up to " +
                              std::to_string(largest_max_id()) + ", so the largest id of tag '" +
                              tag + "' cannot be " + std::to_string(*max_id) +
                              "; make the column a bigint"};
}

Result<std::vector<TagRecord>> SqlStore::ListTags() {
  const auto query = Query(SelectTags() + " ORDER BY a.biz_tag");
  std::vector<TagRecord> tags;
  while (query->Next()) {
    // A bad row must not hide the good ones; FindTags and TakeLeases report what is wrong with it.
    Result<TagRecord> tag = ParseTag(*query);
    if (tag.ok()) tags.push_back(std::move(tag).value());
  }
  if (!query->Finish().ok()) return query->Finish();
  return tags;
}

Result<std::uint64_t> SqlStore::UsedLimit(const std::string& tag) {
  const auto or_0 = [](const std::string& rows) { return "COALESCE((SELECT " + rows + "), 0)"; };
  const auto query = Query(
      // Not MAX() for leases: SQLite would read all of the tag's.
      "SELECT " + Largest({or_0("used_limit FROM idd_lease WHERE biz_tag = ?1"
                                " ORDER BY used_limit DESC LIMIT 1"),
                           or_0("MAX(used_limit) FROM idd_total WHERE biz_tag = ?1"),
                           or_0("MAX(`limit`) FROM idd_returned WHERE biz_tag = ?1"),
                           or_0("max_id FROM idd_deleted_tag WHERE biz_tag = ?1")}),
      {tag});
  const std::uint64_t used = query->Next() ? query->Uint(0) : 0;
  if (query->Finish().ok()) return used;
  return query->Finish().WithContext(
      "the ids in idd_lease, idd_returned and idd_deleted_tag of tag '" + tag + "'");
}

Result<TagRecord> SqlStore::CreateTag(const NewTag& tag) {
  if (Status status = CheckNewTag(tag); !status.ok()) return status;
  if (Status status = CheckFits(tag.tag, tag.max_id); !status.ok()) return status;
  if (Status status = ChangeIds([&] { return MakeTag(tag); }); !status.ok()) return status;
  return FindTag(tag.tag);
}

Status SqlStore::MakeTag(const NewTag& tag) {
  const Result<std::uint64_t> in_tables = UsedLimit(tag.tag);
  if (!in_tables.ok()) return in_tables.status();
  const std::uint64_t used = std::max(in_tables.value(), NextInWitness(tag.tag).value_or(0));
  const std::uint64_t start = tag.start.value_or(std::max<std::uint64_t>(used, 1));
  if (Status status = CheckStart(tag, start, used); !status.ok()) return status;
  if (Status status = workers_.CheckNew(tag, used); !status.ok()) return status;
  std::vector<SqlStatement> statements = {
      {"INSERT INTO leaf_alloc(biz_tag, max_id, step, description, update_time)"
       " VALUES(?1, ?2, ?3, ?4, CURRENT_TIMESTAMP)",
       {tag.tag, start, tag.step, tag.description}},
      // A row deleted by hand may have left its policy behind.
      {"REPLACE INTO idd_tag(biz_tag, mode, max_id_allowed, access) VALUES(?1, ?2, ?3, ?4)",
       {tag.tag, TagModeName(tag.mode), tag.max_id.value_or(kMaxId), TagAccessName(tag.access)}},
      {"REPLACE INTO idd_order(biz_tag, tag_order, lane_block) VALUES(?1, ?2, ?3)",
       {tag.tag, TagOrderName(tag.order), tag.lane_block}}};
  for (Setting& setting : SettingsOf(TagChange{.tag = tag.tag, .refill = tag.refill})) {
    statements.push_back(Assign(tag.tag, setting.table, setting.column, std::move(setting.value)));
  }
  if (tag.snowflake.has_value()) {
    statements.push_back({"REPLACE INTO idd_snowflake(biz_tag, layout) VALUES(?1, ?2)",
                          {tag.tag, FormatLayout(*tag.snowflake)}});
  }
  Status status = Transact(statements).status();
  NoteChange(tag.tag, 0);
  if (status.ok() || IsOfStore(status)) return status;
  const auto there = Query("SELECT biz_tag FROM leaf_alloc WHERE biz_tag = ?1", {tag.tag});
  if (!there->Next()) return status;
  const std::string name = there->TextIf(0).value_or("");
  if (name == tag.tag) return {Code::kInvalid, "tag '" + tag.tag + "' already exists"};
  return {Code::kInvalid, "the column biz_tag of leaf_alloc treats the name of tag '" + tag.tag +
                              "' as equal to that of tag '" + name + "', which already exists"};
}

// The tag as the change would leave it. That is checked, not the tag as it is, because setting the
// step is how a bad row is fixed.
Result<TagRecord> SqlStore::PreviewOf(const TagChange& change) {
  TagColumns columns = ColumnsOfTags();
  SqlValues values = {change.tag};
  for (Setting& setting : SettingsOf(change)) {
    values.push_back(std::move(setting.value));
    for (auto& [column, value] : columns) {
      if (column == setting.column) value = "?" + std::to_string(values.size());
    }
  }
  const auto query = Query(Select(*this, columns, "") + " WHERE a.biz_tag = ?1", values);
  // A column that compares without case finds other tags too.
  while (query->Next()) {
    if (query->TextIf(0) == change.tag) return ParseTag(*query);
  }
  if (!query->Finish().ok()) return query->Finish();
  return NoSuchTag(change.tag);
}

// A row of the table, which is made if it is missing, as long as the tag is there.
SqlStatement SqlStore::Assign(const std::string& tag, const std::string& table,
                              const std::string& column, SqlValue value) const {
  const std::string is_tag = IsExactly("biz_tag", 1);
  if (table == "leaf_alloc") {
    return {"UPDATE leaf_alloc SET " + column + " = ?2, update_time = CURRENT_TIMESTAMP WHERE " +
                is_tag,
            {tag, std::move(value)}};
  }
  return {"INSERT INTO " + table + "(biz_tag, " + column +
              ") SELECT ?1, ?2 FROM leaf_alloc WHERE " + is_tag + OrUpdate("biz_tag") + column +
              " = " + NewValue(column),
          {tag, std::move(value)}};
}

// A lease or another change in between is not noticed on a server. The largest id may then lie
// below the next one, which stops the tag until it is changed again.
Result<TagRecord> SqlStore::ChangeTag(const TagChange& change) {
  if (Status status = CheckTagChange(change); !status.ok()) return status;
  if (Status status = CheckFits(change.tag, change.max_id); !status.ok()) return status;
  Status status = ChangeIds([&]() -> Status {
    const Result<TagRecord> after = PreviewOf(change);
    if (!after.ok()) return after.status();
    if (Status sound = CheckChanged(change, after.value()); !sound.ok()) return sound;
    std::vector<SqlStatement> statements;
    for (Setting& setting : SettingsOf(change)) {
      statements.push_back(
          Assign(change.tag, setting.table, setting.column, std::move(setting.value)));
    }
    return Transact(statements).status();
  });
  NoteChange(change.tag, 0);
  if (!status.ok()) return status;
  return FindTag(change.tag);
}

// ReturnTail() takes nothing back below a tombstone, so this leaves one, as for a deleted tag.
Result<TagRecord> SqlStore::LiftTag(const std::string& tag, std::uint64_t to) {
  Status status = ChangeIds([&]() -> Status {
    if (Status found = FindTag(tag).status(); !found.ok()) return found;
    const SqlValues values = {tag, to};
    const std::string is_tag = IsExactly("biz_tag", 1);
    std::vector<SqlStatement> statements = {
        {"SELECT COUNT(*) FROM leaf_alloc WHERE " + is_tag + ForUpdate(), values},
        {"UPDATE leaf_alloc SET max_id = ?2, update_time = CURRENT_TIMESTAMP WHERE " + is_tag +
             " AND max_id < ?2",
         values}};
    for (SqlStatement& one : GiveUp("biz_tag = ?1 AND base < ?2", values)) {
      statements.push_back(std::move(one));
    }
    statements.push_back(
        {"INSERT INTO idd_deleted_tag(biz_tag, max_id) SELECT ?1, ?2 FROM"
         " leaf_alloc WHERE " +
             is_tag + OrUpdate("biz_tag") +
             "max_id = " + Largest({"idd_deleted_tag.max_id", NewValue("max_id")}),
         values});
    NoteChange(tag, to);  // as durable as a lease
    return Transact(statements).status();
  });
  if (!status.ok()) return status;
  return FindTag(tag);
}

Status SqlStore::Entomb(const TagMark& mark) {
  return Transact(
             {{"INSERT INTO idd_deleted_tag(biz_tag, max_id) VALUES(?1, ?2)" + OrUpdate("biz_tag") +
                   "max_id = " + Largest({"idd_deleted_tag.max_id", NewValue("max_id")}),
               {mark.tag, mark.mark}}})
      .status();
}

// The listed tails will not be leased again. The tombstone takes max_id under the row's lock.
Status SqlStore::DeleteTag(const std::string& tag) {
  Status status = ChangeIds(
      [&]() -> Status {
        // An invalid row is not deleted: its tombstone would not show where the ids ended.
        if (Status found = FindTag(tag).status(); !found.ok()) return found;
        const Result<std::uint64_t> used = UsedLimit(tag);
        if (!used.ok()) return used.status();
        const SqlValues values = {tag, used.value()};
        const std::string is_tag = IsExactly("biz_tag", 1);
        std::vector<SqlStatement> statements = {
            {"SELECT COUNT(*) FROM leaf_alloc WHERE " + is_tag + ForUpdate(), values},
            {"INSERT INTO idd_deleted_tag(biz_tag, max_id) SELECT ?1, " +
                 Largest({"a.max_id", "?2"}) + " FROM leaf_alloc AS a WHERE " + is_tag +
                 OrUpdate("biz_tag") +
                 "max_id = " + Largest({"idd_deleted_tag.max_id", NewValue("max_id")}) +
                 ", deleted_at = CURRENT_TIMESTAMP",
             values, "delete.entombed"}};
        for (SqlStatement& one : GiveUp("biz_tag = ?1", values))
          statements.push_back(std::move(one));
        for (const char* table : {"idd_tag", "idd_order"}) {
          statements.push_back(
              {std::string("DELETE FROM ") + table + " WHERE biz_tag = ?1", values});
        }
        statements.push_back({"DELETE FROM leaf_alloc WHERE " + is_tag, values});
        return Transact(statements).status();
      },
      "delete.committed");
  NoteChange(tag, 0);
  return status;
}

}  // namespace idd::daemon
