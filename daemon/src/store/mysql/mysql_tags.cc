// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: tags.
#include <algorithm>
#include <string>
#include <utility>

#include "platform/random.h"
#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// A tag's name with the character set and collation of idd's own tables.
constexpr const char* kComparedName = "CONVERT(a.biz_tag USING utf8mb4) COLLATE utf8mb4_bin";

std::string SelectTags(const std::string& more = "") {
  const std::string name(kComparedName);
  return "SELECT a.biz_tag, a.max_id, a.step, a.description, a.update_time,"
         " COALESCE(t.mode, 'segment'), COALESCE(t.max_id_allowed, 9223372036854775806),"
         " COALESCE(t.access, 'ring'), COALESCE(t.refill, 'promise'), t.max_step, t.max_prefetch,"
         " t.outage_tolerance_s, COALESCE(o.tag_order, 'host'), COALESCE(o.lane_block, 0)" +
         more + " FROM leaf_alloc a LEFT JOIN idd_tag t ON t.biz_tag = " + name +
         " LEFT JOIN idd_order o ON o.biz_tag = " + name;
}

std::string Assign(const std::string& tag, const std::string& column, const std::string& value,
                   const std::string& table = "idd_tag") {
  return "INSERT INTO " + table + "(biz_tag, " + column + ") VALUES(" + MysqlDb::Text(tag) + ", " +
         value + ") ON DUPLICATE KEY UPDATE " + column + " = " + value;
}

std::vector<std::string> AssignRefill(const std::string& tag, const RefillChange& refill) {
  std::vector<std::string> statements;
  if (refill.rule.has_value()) {
    statements.push_back(
        Assign(tag, "refill", "'" + std::string(RefillRuleName(*refill.rule)) + "'"));
  }
  if (refill.max_step.has_value()) {
    statements.push_back(Assign(tag, "max_step", std::to_string(*refill.max_step)));
  }
  if (refill.max_prefetch.has_value()) {
    statements.push_back(Assign(tag, "max_prefetch", std::to_string(*refill.max_prefetch)));
  }
  if (refill.outage_tolerance.has_value()) {
    statements.push_back(
        Assign(tag, "outage_tolerance_s", std::to_string(refill.outage_tolerance->count())));
  }
  return statements;
}

// Explains why the server refused to make a tag.
Status InWords(const Status& status, unsigned error, const std::string& tag) {
  constexpr unsigned kDuplicate = 1062;
  if (error == kDuplicate) {
    return {Code::kInvalid, "tag '" + tag +
                                "' already exists, or another name that the column "
                                "biz_tag treats as equal (case, spaces), or a unique index of "
                                "leaf_alloc has its value: " +
                                status.message()};
  }
  return status;
}

// The last one is MySQL's.
bool IsIncomparable(unsigned error) {
  return error == 1267 || error == 1270 || error == 1271 || error == 3854;
}

}  // namespace

// A column with another character set cannot be compared with every name. If the comparison fails,
// there is no such tag.
Result<MysqlStore::TagStates> MysqlStore::ReadTags(const std::vector<std::string>& tags) {
  Result<TagStates> together = ReadTogether(tags);
  if (together.ok() || db_ == nullptr || !IsIncomparable(db_->last_error())) return together;
  TagStates states;
  for (const std::string& tag : tags) {
    Result<TagStates> state = ReadTogether({tag});
    if (state.ok()) {
      states.merge(state.value());
    } else if (db_ != nullptr && IsIncomparable(db_->last_error())) {
      states.emplace(tag, NoSuchTag(tag));
    } else {
      return state;
    }
  }
  return states;
}

Status MysqlStore::NoSuchTag(const std::string& tag) const {
  return {Code::kNoSuchTag, "there is no tag '" + tag + "' in " + DisplayUrl()};
}

// Replaces a state by the error if its layout is missing or wrong.
Status MysqlStore::ReadLayouts(TagStates& states) {
  std::vector<Result<TagState>*> right;
  std::vector<TagRecord*> records;
  for (auto& [tag, state] : states) {
    if (!state.ok()) continue;
    right.push_back(&state);
    records.push_back(&state.value().record);
  }
  Result<std::vector<Status>> wrong = workers().ReadLayouts(records);
  if (!wrong.ok()) return wrong.status();
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (!wrong.value()[i].ok()) *right[i] = std::move(wrong.value()[i]);
  }
  return Status::Ok();
}

Result<MysqlStore::TagStates> MysqlStore::ReadTogether(const std::vector<std::string>& tags) {
  const std::string texts = sql::Texts(tags);
  // The indexes of these columns, read backwards, give the end of used ids; a GROUP BY would read
  // all of the tags' leases.
  const auto end_of = [](const std::string& table, const std::string& column) {
    return "COALESCE((SELECT " + column + " FROM " + table +
           " l WHERE l.biz_tag = " + kComparedName + " ORDER BY " + column + " DESC LIMIT 1), 0)";
  };
  const std::string used = "GREATEST(" + end_of("idd_lease", "used_limit") + ", " +
                           end_of("idd_total", "used_limit") + ", " +
                           end_of("idd_returned", "`limit`") + ")";
  const Result<std::vector<MysqlResult>> found = db_->Packet(
      {SelectTags(", (" + SelectIsCurrent() + "), @@global.read_only, COALESCE(d.max_id, 0), " +
                  used +
                  ", COALESCE(c.pushed, 0), IF(c.term_number = m.number AND"
                  " c.term_witness = m.witness, c.active, 0), COALESCE(c.wanted, 0)") +
           " LEFT JOIN idd_deleted_tag d ON d.biz_tag = " + kComparedName +
           " LEFT JOIN idd_ceiling c ON c.biz_tag = " + kComparedName +
           " LEFT JOIN idd_term m ON m.id = 1 WHERE a.biz_tag IN " + texts,
       "SELECT biz_tag, `limit`, base, token FROM idd_returned WHERE biz_tag IN " + texts +
           " AND host = " + MysqlDb::Text(options_.host.id) + " ORDER BY base"});
  if (!found.ok()) return found.status();
  TagStates states;
  for (const auto& cells : found.value()[0].rows) {
    const MysqlRow row(cells);
    if (row.TextIf(kTagColumns) != "1") return SetBack();
    if (!IsOff(row.TextIf(kTagColumns + 1))) return ReadOnly();
    states.insert_or_assign(row.TextIf(0).value_or(""), ReadState(row));
  }
  for (const auto& cells : found.value()[1].rows) {
    const MysqlRow row(cells);
    const auto it = states.find(row.TextIf(0).value_or(""));
    if (it == states.end() || !it->second.ok()) continue;
    const shm::IdRange ids{row.UintIf(2).value_or(0), row.UintIf(1).value_or(0)};
    const std::string token = row.TextIf(3).value_or("");
    if (ids.empty() || !row.UintIf(2).has_value() || !IsToken(token)) {
      it->second = Status(Code::kInvalid, "idd_returned.limit of tag '" + it->first + "' is " +
                                              row.Describe(1) + "; it must be a number above base");
    } else {
      it->second.value().returned.push_back({.token = token, .ids = ids});
    }
  }
  if (Status status = ReadLayouts(states); !status.ok()) return status;
  bool all_found = true;
  for (const std::string& tag : tags) {
    // A column that compares without case returns another tag's row.
    all_found &= !states.try_emplace(tag, NoSuchTag(tag)).second;
  }
  if (all_found || is_beside_) return states;
  // A table that is being restored exists before its rows do.
  if (Status status = CheckIdentity(); !status.ok()) return status;
  return states;
}

// The largest id of a tag is also bounded by the column, which stores the next one.
Result<TagRecord> MysqlStore::ParseTag(const MysqlRow& row) const {
  Result<TagRecord> record = ParseTagRow(row);
  if (!record.ok()) return record;
  record.value().max_id = std::min(record.value().max_id, largest_max_id_ - 1);
  return record;
}

Status MysqlStore::CheckFits(const std::string& tag, std::optional<std::uint64_t> max_id) const {
  if (max_id.value_or(0) < largest_max_id_) return Status::Ok();
  return {Code::kInvalid, "the column max_id of leaf_alloc stores numbers up to " +
                              std::to_string(largest_max_id_) + ", so the largest id of tag '" +
                              tag + "' cannot be " + std::to_string(*max_id) +
                              "; make the column a bigint"};
}

// Parses a row of ReadTogether's first statement.
Result<MysqlStore::TagState> MysqlStore::ReadState(const MysqlRow& row) const {
  Result<TagRecord> record = ParseTag(row);
  if (!record.ok()) return record.status();
  TagState state;
  state.record = std::move(record).value();
  state.read_at = MonotonicClock::now();
  Result<TagState> result(std::move(state));
  RaiseUsed(row, kTagColumns + 2, result);
  if (result.ok()) result.value().tombstone = result.value().used_limit;
  RaiseUsed(row, kTagColumns + 3, result);
  RaiseUsed(row, kTagColumns + 4, result);
  const std::optional<std::uint64_t> ceiling = row.UintIf(kTagColumns + 5);
  if (!result.ok()) return result;
  if (!ceiling.has_value()) {
    return Status(Code::kInvalid, "idd_ceiling.active of tag '" + row.TextIf(0).value_or("") +
                                      "' is " + row.Describe(kTagColumns + 5) +
                                      "; it must be from 0 to 2^63-1");
  }
  result.value().record.ceiling = *ceiling;
  result.value().record.wanted_ceiling = row.UintIf(kTagColumns + 6).value_or(0);
  return result;
}

// Raises the end of used ids to the value of a column.
void MysqlStore::RaiseUsed(const MysqlRow& row, int column, Result<TagState>& state) {
  if (!state.ok()) return;
  const std::optional<std::uint64_t> limit = row.UintIf(column);
  if (limit.has_value()) {
    state.value().used_limit = std::max(state.value().used_limit, *limit);
    return;
  }
  state =
      Status(Code::kInvalid, "the end of the used ids of tag '" + row.TextIf(0).value_or("") +
                                 "' is " + row.Describe(column) + "; it must be from 0 to 2^63-1");
}

Result<std::uint64_t> MysqlStore::UsedLimit(const std::string& tag) {
  if (db_ == nullptr) return NotOpen();
  const std::string is_tag = " WHERE biz_tag = " + MysqlDb::Text(tag);
  const Result<MysqlResult> found =
      db_->Query("SELECT GREATEST(COALESCE((SELECT MAX(used_limit) FROM idd_lease" + is_tag +
                 "), 0), COALESCE((SELECT MAX(used_limit) FROM idd_total" + is_tag +
                 "), 0), COALESCE((SELECT MAX(`limit`) FROM idd_returned" + is_tag +
                 "), 0), COALESCE((SELECT max_id FROM idd_deleted_tag" + is_tag + "), 0))");
  if (!found.ok()) return Failed(found.status());
  const std::optional<std::uint64_t> used = MysqlRow(found.value().rows.at(0)).UintIf(0);
  if (used.has_value()) return *used;
  return Status(Code::kInvalid, "the journal of tag '" + tag + "' knows of ids beyond 2^63");
}

Result<std::vector<TagRecord>> MysqlStore::ListTags() {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> found = db_->Query(SelectTags() + " ORDER BY a.biz_tag");
  if (!found.ok()) return Failed(found.status());
  std::vector<TagRecord> tags;
  for (const auto& cells : found.value().rows) {
    // A bad row must not hide the good ones; FindTags and TakeLeases report what is wrong with it.
    Result<TagRecord> tag = ParseTag(MysqlRow(cells));
    if (tag.ok()) tags.push_back(std::move(tag).value());
  }
  if (Status status = workers().AddLayouts(tags); !status.ok()) return status;
  return tags;
}

Result<Store::TagResults> MysqlStore::FindTags(const std::vector<std::string>& tags) {
  for (const std::string& tag : tags) states_.erase(tag);
  return FindTagsCached(tags);
}

Result<Store::TagResults> MysqlStore::FindTagsCached(const std::vector<std::string>& tags) {
  if (db_ == nullptr) return NotOpen();
  if (tags.empty()) return TagResults();
  const Result<TagStates> states = StatesOf(tags);
  if (!states.ok()) return Failed(states.status());
  TagResults records;
  for (const std::string& tag : tags) {
    const Result<TagState>& state = states.value().find(tag)->second;
    records.push_back(state.ok() ? Result<TagRecord>(state.value().record)
                                 : Result<TagRecord>(state.status()));
    if (state.ok()) records.back().value().used_limit = state.value().used_limit;
  }
  return records;
}

Result<TagRecord> MysqlStore::CreateTag(const NewTag& tag) {
  if (db_ == nullptr) return NotOpen();
  if (Status status = CheckNewTag(tag); !status.ok()) return status;
  if (Status status = CheckFits(tag.tag, tag.max_id); !status.ok()) return status;
  const Result<std::uint64_t> used = UsedLimit(tag.tag);
  if (!used.ok()) return used.status();
  const std::uint64_t start = tag.start.value_or(std::max<std::uint64_t>(used.value(), 1));
  if (Status status = CheckStart(tag, start, used.value()); !status.ok()) return status;
  if (Status status = workers().CheckNew(tag, used.value()); !status.ok()) return status;
  const std::string name = MysqlDb::Text(tag.tag);
  std::vector<std::string> statements = {
      "INSERT INTO leaf_alloc(biz_tag, max_id, step, description) VALUES(" + name + ", " +
          std::to_string(start) + ", " + std::to_string(tag.step) + ", " +
          MysqlDb::Text(tag.description) + ")",
      // A row deleted by hand may have left its policy behind.
      "REPLACE INTO idd_tag(biz_tag, mode, max_id_allowed, access) VALUES(" + name + ", '" +
          TagModeName(tag.mode) + "', " + std::to_string(tag.max_id.value_or(kMaxId)) + ", '" +
          TagAccessName(tag.access) + "')",
      "REPLACE INTO idd_order(biz_tag, tag_order, lane_block) VALUES(" + name + ", '" +
          TagOrderName(tag.order) + "', " + std::to_string(tag.lane_block) + ")"};
  for (std::string& statement : AssignRefill(tag.tag, tag.refill)) {
    statements.push_back(std::move(statement));
  }
  if (tag.snowflake.has_value()) {
    statements.push_back("REPLACE INTO idd_snowflake(biz_tag, layout) VALUES(" + name + ", " +
                         MysqlDb::Text(FormatLayout(*tag.snowflake)) + ")");
  }
  const Status status = db_->Transaction(statements).status();
  if (!status.ok()) return Failed(InWords(status, db_->last_error(), tag.tag));
  states_.erase(tag.tag);
  return FindTag(tag.tag);
}

// The row is checked after the change, not before, because setting the step is how a bad row is
// fixed. A change whose result is invalid is rolled back.
Result<TagRecord> MysqlStore::ChangeTag(const TagChange& change) {
  if (db_ == nullptr) return NotOpen();
  if (Status status = CheckTagChange(change); !status.ok()) return status;
  if (Status status = CheckFits(change.tag, change.max_id); !status.ok()) return status;
  states_.erase(change.tag);
  std::vector<std::string> statements = {"SELECT COUNT(*) FROM leaf_alloc WHERE " +
                                         sql::IsTag(change.tag) + " FOR UPDATE"};
  const auto set_leaf = [&](const char* column, const std::string& value) {
    statements.push_back(std::string("UPDATE leaf_alloc SET ") + column + " = " + value +
                         " WHERE " + sql::IsTag(change.tag));
  };
  if (change.step.has_value()) set_leaf("step", std::to_string(*change.step));
  if (change.description.has_value()) {
    set_leaf("description", MysqlDb::Text(*change.description));
  }
  if (change.max_id.has_value()) {
    statements.push_back(Assign(change.tag, "max_id_allowed", std::to_string(*change.max_id)));
  }
  if (change.access.has_value()) {
    statements.push_back(
        Assign(change.tag, "access", std::string("'") + TagAccessName(*change.access) + "'"));
  }
  for (std::string& statement : AssignRefill(change.tag, change.refill)) {
    statements.push_back(std::move(statement));
  }
  if (change.order.has_value()) {
    const std::string order = std::string("'") + TagOrderName(*change.order) + "'";
    statements.push_back(Assign(change.tag, "tag_order", order, "idd_order"));
  }
  if (change.lane_block.has_value()) {
    const std::string block = std::to_string(*change.lane_block);
    statements.push_back(Assign(change.tag, "lane_block", block, "idd_order"));
  }
  // The row is read inside the transaction, on the same connection.
  statements.insert(statements.begin(), "START TRANSACTION");
  statements.push_back(SelectTags() + " WHERE a.biz_tag = " + MysqlDb::Text(change.tag));
  const Result<std::vector<MysqlResult>> results = db_->Packet(statements);
  Result<TagRecord> after =
      results.ok() ? Changed(change, results.value().back()) : Result<TagRecord>(results.status());
  const Result<MysqlResult> end = db_ == nullptr || db_->broken()
                                      ? Result<MysqlResult>(after.status())
                                      : db_->Query(after.ok() ? "COMMIT" : "ROLLBACK");
  if (!after.ok()) return Failed(after.status());
  if (!end.ok()) return Failed(end.status());
  return after;
}

Result<TagRecord> MysqlStore::Changed(const TagChange& change, const MysqlResult& rows) {
  for (const auto& cells : rows.rows) {
    if (cells[0] != change.tag) continue;
    Result<TagRecord> record = ParseTag(MysqlRow(cells));
    if (!record.ok()) return record;
    std::vector<TagRecord> one{std::move(record).value()};
    if (Status status = workers().AddLayouts(one); !status.ok()) return status;
    if (one.empty()) return FindTag(change.tag);  // says what is wrong with its layout
    record = std::move(one.front());
    if (Status status = CheckChanged(change, record.value()); !status.ok()) return status;
    return record;
  }
  return Status(Code::kNoSuchTag, "there is no tag '" + change.tag + "' in " + DisplayUrl());
}

// ReturnTail() takes nothing back below a tombstone, so this leaves one, as for a deleted tag.
Result<TagRecord> MysqlStore::LiftTag(const std::string& tag, std::uint64_t to) {
  if (db_ == nullptr) return NotOpen();
  states_.erase(tag);
  const std::string name = MysqlDb::Text(tag);
  const std::string limit = std::to_string(to);
  const std::string returned = " WHERE biz_tag = " + name + " AND base < " + limit;
  const Result<std::vector<MysqlResult>> lifted = db_->Transaction(
      {"SELECT max_id FROM leaf_alloc WHERE " + sql::IsTag(tag) + " FOR UPDATE",
       "UPDATE leaf_alloc SET max_id = " + limit + " WHERE " + sql::IsTag(tag) + " AND max_id < " +
           limit,
       "UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
       " WHERE token IN (SELECT token FROM idd_returned" +
           returned + ")",
       "DELETE FROM idd_returned" + returned,
       "INSERT INTO idd_deleted_tag(biz_tag, max_id) SELECT " + name + ", " + limit +
           " FROM leaf_alloc WHERE " + sql::IsTag(tag) +
           " ON DUPLICATE KEY UPDATE max_id = GREATEST(idd_deleted_tag.max_id, VALUES(max_id))"});
  if (!lifted.ok()) return Failed(lifted.status());
  return FindTag(tag);
}

Status MysqlStore::DeleteTag(const std::string& tag) {
  if (db_ == nullptr) return NotOpen();
  states_.erase(tag);
  // An invalid row is not deleted: its tombstone would not show where the ids ended.
  Result<TagRecord> record = FindTag(tag);
  if (!record.ok()) return record.status();
  states_.clear();
  const std::string name = MysqlDb::Text(tag);
  const std::string is_tag = " WHERE biz_tag = " + name;
  // The listed tails will not be leased again, so they are given up. The tombstone takes max_id
  // under the row's lock.
  const Result<std::vector<MysqlResult>> deleted = db_->Transaction(
      {"SELECT max_id FROM leaf_alloc WHERE " + sql::IsTag(tag) + " FOR UPDATE",
       "UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
       " WHERE token IN (SELECT token FROM idd_returned" +
           is_tag + ")",
       "INSERT INTO idd_deleted_tag(biz_tag, max_id) SELECT " + name +
           ", GREATEST(a.max_id, COALESCE((SELECT MAX(used_limit) FROM idd_lease" + is_tag +
           "), 0), COALESCE((SELECT MAX(used_limit) FROM idd_total" + is_tag +
           "), 0)) FROM leaf_alloc a WHERE " + sql::IsTag(tag) +
           " ON DUPLICATE KEY UPDATE max_id = GREATEST(idd_deleted_tag.max_id, VALUES(max_id)),"
           " deleted_at = CURRENT_TIMESTAMP",
       "DELETE FROM idd_returned" + is_tag, "DELETE FROM idd_tag" + is_tag,
       "DELETE FROM idd_order" + is_tag, "DELETE FROM leaf_alloc WHERE " + sql::IsTag(tag)});
  return Failed(deleted.status());
}

}  // namespace idd::daemon
