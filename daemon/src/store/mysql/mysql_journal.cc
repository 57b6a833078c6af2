// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: the lease journal and the reports read from it.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "platform/random.h"
#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// How many rows of the journal one statement reads.
constexpr std::uint64_t kRowsOfAPage = 10'000;

std::string SelectLease(const std::string& from = "idd_lease") {
  return std::string("SELECT ") + sql::kLeaseColumns + " FROM " + from;
}

// The table, with the index that leaves the fewest of the settled leases.
std::string Rows(const LeaseFilter& filter, const std::string& table) {
  if (table != "idd_ended") return table;
  if (filter.tag.has_value()) return table + " FORCE INDEX(idd_ended_tag)";
  if (filter.host.has_value()) return table + " FORCE INDEX(idd_ended_host)";
  if (filter.state.has_value()) return table + " FORCE INDEX(idd_ended_state)";
  return table;
}

// Selects, by index, some leases of a tag, among them all that contain the id; otherwise the whole
// journal would be read. The ids that leases have kept do not overlap, so the nearest leases that
// end above the id are enough, even in a damaged journal. Ids that were handed back may be in any
// lease that begins below the id.
std::string NearId(const std::string& table, const std::string& tag, const std::string& id) {
  const std::string is_tag = "biz_tag = " + MysqlDb::Text(tag);
  const std::string kept = "((SELECT * FROM " + table + " WHERE " + is_tag + " AND used_limit > " +
                           id + " ORDER BY used_limit LIMIT 1000) UNION (";
  const std::string returned =
      table == "idd_ended"
          ? "SELECT * FROM idd_ended WHERE " + is_tag +
                " AND state = 'returned' AND base <= " + id + " ORDER BY base DESC LIMIT 1000"
          : "SELECT lease.* FROM idd_host STRAIGHT_JOIN idd_lease lease ON lease.host ="
            " idd_host.host WHERE " +
                is_tag + " AND state = 'returned' AND base <= " + id + " AND `limit` > " + id;
  return kept + returned + ")) AS near_id";
}

std::string EndOf(const LeaseClosure& closure, shm::IdRange ids, const std::string& host) {
  const std::string rest = std::to_string(ids.size() - closure.claimed);
  return std::string("UPDATE idd_lease SET state = '") + LeaseStateName(closure.state) +
         "', claimed = " + std::to_string(closure.claimed) + ", returned = 0, abandoned = " + rest +
         ", closed_at = CURRENT_TIMESTAMP WHERE token = '" + closure.token +
         "' AND state = 'active' AND host = " + MysqlDb::Text(host);
}

// Ends leases of which no id is left. A row has all that its end needs, so one statement ends any
// number of them.
std::string EndOfExhausted(const std::vector<std::string>& tokens, const std::string& host) {
  return std::string("UPDATE idd_lease SET state = '") + LeaseStateName(LeaseState::kExhausted) +
         "', claimed = `limit` - base, returned = 0, abandoned = 0, closed_at = CURRENT_TIMESTAMP"
         " WHERE token IN " +
         sql::Texts(tokens) + " AND state = 'active' AND host = " + MysqlDb::Text(host);
}

}  // namespace

Result<std::optional<shm::IdRange>> MysqlStore::FindActive(const LeaseClosure& closure) {
  Result<ActiveRanges> active = FindAllActive({closure});
  if (!active.ok()) return active.status();
  const auto it = active.value().find(closure.token);
  if (it == active.value().end()) return std::optional<shm::IdRange>();
  return std::optional(it->second);
}

Result<MysqlStore::ActiveRanges> MysqlStore::FindAllActive(
    const std::vector<LeaseClosure>& closures) {
  std::vector<std::string> tokens;
  tokens.reserve(closures.size());
  for (const LeaseClosure& closure : closures) tokens.push_back(closure.token);
  const Result<MysqlResult> found = db_->Query(
      SelectLease() + " WHERE state = 'active' AND host = " + MysqlDb::Text(options_.host.id) +
      " AND token IN " + sql::Texts(tokens));
  if (!found.ok()) return found.status();
  ActiveRanges ranges;
  for (const auto& cells : found.value().rows) {
    const Result<LeaseRecord> lease = ParseLeaseRow(MysqlRow(cells));
    if (!lease.ok()) return lease.status();
    ranges[lease.value().token] = lease.value().ids;
  }
  return ranges;
}

Status MysqlStore::CloseLeases(const std::vector<LeaseClosure>& closures) {
  if (db_ == nullptr) return NotOpen();
  if (closures.empty()) return Status::Ok();
  for (const LeaseClosure& closure : closures) {
    const bool is_end =
        closure.state == LeaseState::kExhausted || closure.state == LeaseState::kAbandoned;
    if (!is_end || !IsToken(closure.token)) {
      return {Code::kInvalid, "lease " + closure.token + " of tag '" + closure.tag +
                                  "' must be closed as exhausted or abandoned"};
    }
  }
  const Result<ActiveRanges> active = FindAllActive(closures);
  if (!active.ok()) return Failed(active.status());
  std::vector<std::string> statements;
  std::vector<std::string> exhausted;
  for (const LeaseClosure& closure : closures) {
    const auto it = active.value().find(closure.token);
    // The lease is closed already, or was never ours: the journal's entry stands.
    if (it == active.value().end()) continue;
    if (Status status = CheckClosure(closure, it->second); !status.ok()) return status;
    if (closure.state == LeaseState::kExhausted) {
      exhausted.push_back(closure.token);
    } else {
      statements.push_back(EndOf(closure, it->second, options_.host.id));
    }
  }
  if (!exhausted.empty()) statements.push_back(EndOfExhausted(exhausted, options_.host.id));
  if (statements.empty()) return Status::Ok();
  return Failed(db_->Transaction(statements).status());
}

// A row that refuses to be lowered must not cost the tail: the list of returned ranges takes it.
Result<ReturnOutcome> MysqlStore::ReturnTail(const LeaseClosure& closure) {
  Result<ReturnOutcome> outcome = ReturnBy(RowChange::kAllowed, closure);
  if (outcome.status().code() != Code::kInvalid) return outcome;
  return ReturnBy(RowChange::kAvoided, closure);
}

Result<ReturnOutcome> MysqlStore::ReturnBy(RowChange change, const LeaseClosure& closure) {
  if (db_ == nullptr) return NotOpen();
  if (closure.state != LeaseState::kReturned || !IsToken(closure.token)) {
    return Status(Code::kInvalid, "lease " + closure.token + " of tag '" + closure.tag +
                                      "' must be handed back in state 'returned'");
  }
  const Result<std::optional<shm::IdRange>> found = FindActive(closure);
  if (!found.ok()) return Failed(found.status());
  if (!found.value().has_value()) return ReturnOutcome::kStale;
  const shm::IdRange ids = *found.value();
  if (closure.claimed >= ids.size()) {
    return Status(Code::kInvalid, "nothing is left of " + RangeText(ids) + " after " +
                                      std::to_string(closure.claimed) + " claimed ids");
  }
  const bool is_restored = restored_tokens_.contains(closure.token);
  const std::string first = std::to_string(ids.first + closure.claimed);
  const std::string limit = std::to_string(ids.limit);
  const std::string rest = std::to_string(ids.size() - closure.claimed);
  const std::string lease = "token = '" + closure.token +
                            "' AND host = " + MysqlDb::Text(options_.host.id) +
                            " AND state = 'active'";
  // Nothing below the tombstone goes back. It marks where a deleted tag ended: its successor must
  // not be lowered below that. Or it marks where another generator ended: the tag was lifted above
  // that.
  const std::string alive = " WHERE " + sql::IsTag(closure.tag) +
                            " AND EXISTS(SELECT 1 FROM idd_lease WHERE " + lease +
                            ") AND NOT EXISTS(SELECT 1 FROM idd_deleted_tag WHERE biz_tag = " +
                            MysqlDb::Text(closure.tag) + " AND max_id > " + first + ")";
  const std::string goes_back = is_restored ? " AND FALSE" : "";
  const std::string lowers = change == RowChange::kAvoided ? " AND FALSE" : "";
  const Result<std::vector<MysqlResult>> results = db_->Transaction(
      {"SELECT max_id FROM leaf_alloc WHERE " + sql::IsTag(closure.tag) + " FOR UPDATE",
       "UPDATE leaf_alloc SET max_id = " + first + alive + " AND max_id = " + limit + goes_back +
           lowers,
       "SET @idd_lowered = ROW_COUNT()",
       "INSERT INTO idd_returned(token, biz_tag, host, base, `limit`) SELECT '" + closure.token +
           "', " + MysqlDb::Text(closure.tag) + ", " + MysqlDb::Text(options_.host.id) + ", " +
           first + ", " + limit + " FROM leaf_alloc" + alive + " AND @idd_lowered = 0" + goes_back,
       "SET @idd_listed = ROW_COUNT()", "SELECT COUNT(*) FROM leaf_alloc" + alive,
       "UPDATE idd_lease SET state = IF(@idd_lowered + @idd_listed > 0, 'returned', 'abandoned'),"
       " claimed = " +
           std::to_string(closure.claimed) + ", returned = IF(@idd_lowered + @idd_listed > 0, " +
           rest +
           ", 0), abandoned ="
           " IF(@idd_lowered + @idd_listed > 0, 0, " +
           rest + "), closed_at = CURRENT_TIMESTAMP WHERE " + lease},
      {"SELECT @idd_lowered, @idd_listed"});
  if (!results.ok()) {
    return Failed(results.status())
        .WithContext("cannot hand back lease " + closure.token + " of tag '" + closure.tag + "'");
  }
  states_.erase(closure.tag);
  const auto& outcome = results.value().back().rows.at(0);
  if (outcome[0] == "1") return ReturnOutcome::kLowered;
  if (outcome[1] == "1") return ReturnOutcome::kListed;
  if (is_restored && results.value()[5].rows.at(0)[0] != "0") return ReturnOutcome::kAbandoned;
  return Status(Code::kNoSuchTag, "tag '" + closure.tag +
                                      "' was deleted or lifted; what is left of lease " +
                                      closure.token + " is journalled as abandoned");
}

Result<std::vector<LeaseRecord>> MysqlStore::AbandonActive(
    const std::vector<std::string>& except_tokens) {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> found = db_->Query(
      SelectLease() + " WHERE state = 'active' AND host = " + MysqlDb::Text(options_.host.id) +
      " ORDER BY seq");
  if (!found.ok()) return Failed(found.status());
  std::vector<LeaseRecord> abandoned;
  std::vector<std::string> statements;
  for (const auto& cells : found.value().rows) {
    Result<LeaseRecord> lease = ParseLeaseRow(MysqlRow(cells));
    if (!lease.ok()) {
      LogInvalidRow(lease.status());
      continue;
    }
    LeaseRecord& record = lease.value();
    const auto kept = std::find(except_tokens.begin(), except_tokens.end(), record.token);
    if (kept != except_tokens.end()) continue;
    record.state = LeaseState::kAbandoned;
    record.abandoned = record.ids.size();
    statements.push_back(EndOf(
        {.token = record.token, .tag = record.tag, .state = LeaseState::kAbandoned, .claimed = 0},
        record.ids, options_.host.id));
    abandoned.push_back(std::move(record));
  }
  if (statements.empty()) return abandoned;
  Status status = Failed(db_->Transaction(statements).status());
  if (status.ok()) return abandoned;
  if (IsOfStore(status)) return status;
  return EndEach(statements, abandoned);
}

// One row has refused a transaction with the ends of many leases.
Result<std::vector<LeaseRecord>> MysqlStore::EndEach(const std::vector<std::string>& ends,
                                                     std::vector<LeaseRecord>& leases) {
  std::vector<LeaseRecord> ended;
  TimeBudget waits;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    Status status(Code::kTimeout, "other rows were locked for too long");
    if (waits.GoesOn()) status = Failed(db_->Query(ends[i]).status());
    if (status.ok()) {
      ended.push_back(std::move(leases[i]));
    } else if (IsOfStore(status)) {
      return status;
    } else {
      LogInvalidRow(
          status.WithContext("lease " + leases[i].token + " of tag '" + leases[i].tag + "'"));
    }
  }
  return ended;
}

Result<std::vector<LeaseRecord>> MysqlStore::ListLeases(const LeaseFilter& filter) {
  if (db_ == nullptr) return NotOpen();
  std::string where = " WHERE TRUE";
  if (filter.tag.has_value()) where += " AND biz_tag = " + MysqlDb::Text(*filter.tag);
  if (filter.host.has_value()) where += " AND host = " + MysqlDb::Text(*filter.host);
  if (filter.state.has_value()) {
    where += std::string(" AND state = '") + LeaseStateName(*filter.state) + "'";
  }
  std::vector<std::string> tables = {"idd_lease"};
  if (filter.state != LeaseState::kActive) tables.emplace_back("idd_ended");
  std::vector<std::string> froms;
  for (const std::string& table : tables) froms.push_back(Rows(filter, table));
  if (filter.containing.has_value()) {
    const std::string id = std::to_string(*filter.containing);
    where += " AND base <= " + id + " AND `limit` > " + id;
    for (std::size_t i = 0; filter.tag.has_value() && i < tables.size(); ++i) {
      froms[i] = NearId(tables[i], *filter.tag, id);
    }
  }
  if (filter.among.has_value()) {
    if (filter.among->empty()) return std::vector<LeaseRecord>();
    where += " AND biz_tag IN " + sql::Texts(*filter.among);
  }
  if (filter.since.has_value()) where += " AND leased_at >= " + MysqlDb::Text(*filter.since);
  std::vector<std::string> selects;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    std::string first;
    if (filter.since.has_value()) {
      const Result<std::uint64_t> place = PlaceBefore(*filter.since, tables[i]);
      if (!place.ok()) return Failed(place.status());
      first = " AND seq > " + std::to_string(place.value());
    }
    selects.push_back(SelectLease(froms[i]) + where + first);
  }
  std::vector<LeaseRecord> leases;
  std::optional<std::uint64_t> before = filter.before;
  while (true) {
    const std::uint64_t page =
        filter.newest == 0 ? kRowsOfAPage
                           : std::min<std::uint64_t>(kRowsOfAPage, filter.newest - leases.size());
    const std::string order = (before ? " AND seq < " + std::to_string(*before) : "") +
                              " ORDER BY seq DESC LIMIT " + std::to_string(page);
    std::string query;
    for (const std::string& select : selects) {
      query += query.empty() ? "(" : " UNION ALL (";
      query += select;
      query += order + ")";
    }
    Result<std::vector<LeaseRecord>> rows =
        ReadLeases(query + " ORDER BY seq DESC LIMIT " + std::to_string(page));
    if (!rows.ok()) return rows;
    std::move(rows.value().begin(), rows.value().end(), std::back_inserter(leases));
    if (rows.value().size() < page || leases.size() == filter.newest) break;
    before = leases.back().seq;
  }
  std::reverse(leases.begin(), leases.end());
  return leases;
}

Result<std::vector<LeaseRecord>> MysqlStore::ReadLeases(const std::string& query) {
  const Result<MysqlResult> found = db_->Query(query);
  if (!found.ok()) return Failed(found.status());
  std::vector<LeaseRecord> leases;
  for (const auto& cells : found.value().rows) {
    Result<LeaseRecord> lease = ParseLeaseRow(MysqlRow(cells));
    if (!lease.ok()) return lease.status();
    leases.push_back(std::move(lease).value());
  }
  return leases;
}

// A place in the journal before all leases that were taken since then. Leases are in the order of
// their time, but for what servers' clocks and the numbers of a cluster's nodes differ.
Result<std::uint64_t> MysqlStore::PlaceBefore(const std::string& since, const std::string& table) {
  const auto ask = [&](const std::string& sql) -> Result<std::pair<std::uint64_t, bool>> {
    const Result<MysqlResult> found = db_->Query(sql);
    if (!found.ok()) return found.status();
    if (found.value().rows.empty()) return std::pair<std::uint64_t, bool>(0, false);
    const MysqlRow row(found.value().rows.front());
    return std::pair(row.UintIf(0).value_or(0), row.UintIf(1).value_or(0) != 0);
  };
  const std::string is_before = "leased_at < " + MysqlDb::Text(since) + " - INTERVAL 1 HOUR";
  const auto ends = ask("SELECT COALESCE(MAX(seq), 0), 0 FROM " + table);
  if (!ends.ok()) return ends.status();
  std::uint64_t low = 0;
  std::uint64_t high = ends.value().first;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto row = ask("SELECT seq, " + is_before + " FROM " + table + " WHERE seq > " +
                         std::to_string(middle) + " ORDER BY seq LIMIT 1");
    if (!row.ok()) return row.status();
    if (row.value().second) {
      low = row.value().first;
    } else {
      high = middle;
    }
  }
  return low;
}

Result<std::vector<ReturnedRange>> MysqlStore::ListReturned(const std::optional<std::string>& tag) {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> found =
      db_->Query("SELECT biz_tag, host, base, `limit` FROM idd_returned" +
                 (tag.has_value() ? " WHERE biz_tag = " + MysqlDb::Text(*tag) : std::string()) +
                 " ORDER BY biz_tag, base");
  if (!found.ok()) return Failed(found.status());
  std::vector<ReturnedRange> ranges;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    const shm::IdRange ids{row.UintIf(2).value_or(0), row.UintIf(3).value_or(0)};
    ranges.push_back({row.TextIf(0).value_or(""), row.TextIf(1).value_or(""), ids});
    if (!row.UintIf(2).has_value() || ids.empty()) {
      return Status(Code::kInvalid, "idd_returned.limit of tag '" + ranges.back().tag + "' is " +
                                        row.Describe(3) + "; it must be a number above base");
    }
  }
  return ranges;
}

Result<std::set<std::string>> MysqlStore::LedgerTags() {
  if (db_ == nullptr) return NotOpen();
  std::set<std::string> tags;
  // Not a UNION: the columns' character sets may differ.
  for (const char* sql :
       {"SELECT biz_tag FROM leaf_alloc", "SELECT DISTINCT biz_tag FROM idd_lease",
        "SELECT DISTINCT biz_tag FROM idd_total"}) {
    const Result<MysqlResult> found = db_->Query(sql);
    if (!found.ok()) return Failed(found.status());
    for (const auto& cells : found.value().rows) tags.insert(cells[0].value_or(""));
  }
  return tags;
}

}  // namespace idd::daemon
