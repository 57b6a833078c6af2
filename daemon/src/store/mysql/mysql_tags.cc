// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: the tags' rows, and what else a lease needs to know of a tag.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "platform/random.h"
#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

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

Result<MysqlStore::TagStates> MysqlStore::ReadTogether(const std::vector<std::string>& tags) {
  const std::string texts = sql::Texts(tags);
  const std::string name = AsOwnName("a.biz_tag");
  // The indexes of these columns, read backwards, give the end of used ids; a GROUP BY would read
  // all of the tags' leases.
  const auto end_of = [&](const std::string& table, const std::string& column) {
    return "COALESCE((SELECT " + column + " FROM " + table + " l WHERE l.biz_tag = " + name +
           " ORDER BY " + column + " DESC LIMIT 1), 0)";
  };
  const std::string used = "GREATEST(" + end_of("idd_lease", "used_limit") + ", " +
                           end_of("idd_total", "used_limit") + ", " +
                           end_of("idd_returned", "`limit`") + ")";
  const Result<std::vector<MysqlResult>> found = db_->Packet(
      {SelectTags(", (" + SelectIsCurrent() + "), @@global.read_only, COALESCE(d.max_id, 0), " +
                  used +
                  ", COALESCE(c.pushed, 0), IF(c.term_number = m.number AND"
                  " c.term_witness = m.witness, c.active, 0), COALESCE(c.wanted, 0)") +
           " LEFT JOIN idd_deleted_tag d ON d.biz_tag = " + name +
           " LEFT JOIN idd_ceiling c ON c.biz_tag = " + name +
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

// Parses a row of ReadTogether's first statement.
Result<MysqlStore::TagState> MysqlStore::ReadState(const MysqlRow& row) const {
  Result<TagRecord> record = ParseTag(row);
  if (!record.ok()) return record.status();
  constexpr const char* kUsed = "the end of the used ids";
  constexpr std::array kNames = {kUsed, kUsed, kUsed, "idd_ceiling.active", "idd_ceiling.wanted"};
  std::array<std::uint64_t, kNames.size()> limits{};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const int column = kTagColumns + 2 + static_cast<int>(i);
    const std::optional<std::uint64_t> limit = row.UintIf(column);
    if (!limit.has_value()) {
      return Status(Code::kInvalid, std::string(kNames.at(i)) + " of tag '" + record.value().tag +
                                        "' is " + row.Describe(column) +
                                        "; it must be from 0 to 2^63-1");
    }
    limits.at(i) = *limit;
  }
  const auto& [tombstone, leased, pushed, ceiling, wanted] = limits;
  record.value().ceiling = ceiling;
  record.value().wanted_ceiling = wanted;
  record.value().used_limit = std::max({tombstone, leased, pushed});
  return TagState{.record = std::move(record).value(),
                  .tombstone = tombstone,
                  .returned = {},
                  .read_at = MonotonicClock::now()};
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
  }
  return records;
}

}  // namespace idd::daemon
