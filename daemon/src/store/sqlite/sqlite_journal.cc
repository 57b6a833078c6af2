// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: the lease journal and the reports read from it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "store/sqlite/sqlite_schema.h"
#include "store/sqlite/sqlite_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
Result<std::optional<shm::IdRange>> SqliteStore::FindActive(const LeaseClosure& closure) {
  SqliteQuery query = db_->Query(
      "SELECT base, \"limit\" FROM idd_lease"
      " WHERE token = ?1 AND biz_tag = ?2 AND host = ?3 AND state = 'active'",
      closure.token, closure.tag, options_.host_id);
  std::optional<shm::IdRange> ids;
  if (query.Next()) {
    ids = shm::IdRange{query.Uint(0), query.Uint(1)};
    if (ids->empty()) query.Reject(1, "a number above base");
  }
  if (!query.Finish().ok()) {
    return query.Finish().WithContext("idd_lease of tag '" + closure.tag + "', token '" +
                                      closure.token + "'");
  }
  return ids;
}

Status SqliteStore::JournalEnd(const LeaseClosure& closure, shm::IdRange ids) {
  const std::uint64_t rest = ids.size() - closure.claimed;
  const std::uint64_t returned = closure.state == LeaseState::kReturned ? rest : 0;
  const std::uint64_t abandoned = closure.state == LeaseState::kAbandoned ? rest : 0;
  return db_->Run(
      "UPDATE idd_lease SET state = ?2, claimed = ?3, returned = ?4, abandoned = ?5,"
      " closed_at = CURRENT_TIMESTAMP WHERE token = ?1 AND state = 'active'",
      closure.token, std::string_view(LeaseStateName(closure.state)), closure.claimed, returned,
      abandoned);
}

Status SqliteStore::CloseLeases(const std::vector<LeaseClosure>& closures) {
  if (!db_) return NotOpen();
  Status status = Change([&]() -> Status {
    for (const LeaseClosure& closure : closures) {
      if (closure.state != LeaseState::kExhausted && closure.state != LeaseState::kAbandoned) {
        return {Code::kInvalid, "lease " + closure.token + " of tag '" + closure.tag +
                                    "' must be closed as exhausted or abandoned"};
      }
      Result<std::optional<shm::IdRange>> ids = FindActive(closure);
      if (!ids.ok()) return ids.status();
      // The lease is closed already, or was never ours: the journal's entry stands.
      if (!ids.value().has_value()) continue;
      if (Status sound = CheckClosure(closure, *ids.value()); !sound.ok()) return sound;
      if (Status ended = JournalEnd(closure, *ids.value()); !ended.ok()) return ended;
    }
    AtPoint("close.journalled");
    return Status::Ok();
  });
  if (status.ok()) AtPoint("close.committed");
  return status;
}

Result<ReturnOutcome> SqliteStore::ReturnTail(const LeaseClosure& closure) {
  if (!db_) return NotOpen();
  if (closure.state != LeaseState::kReturned) {
    return Status(Code::kInvalid, "lease " + closure.token + " of tag '" + closure.tag +
                                      "' must be handed back in state 'returned'");
  }
  using Outcome = Result<std::optional<ReturnOutcome>>;
  Outcome outcome = Change([&] { return ReturnInTransaction(closure, RowChange::kAllowed); });
  if (outcome.status().code() == Code::kInvalid) {
    outcome = Change([&] { return ReturnInTransaction(closure, RowChange::kAvoided); });
  }
  if (!outcome.ok()) {
    return outcome.status().WithContext("cannot hand back lease " + closure.token + " of tag '" +
                                        closure.tag + "'");
  }
  AtPoint("return.committed");
  if (outcome.value().has_value()) return *outcome.value();
  return Status(Code::kNoSuchTag, "tag '" + closure.tag +
                                      "' was deleted or lifted; what is left of lease " +
                                      closure.token + " is journalled as abandoned");
}

Result<std::optional<ReturnOutcome>> SqliteStore::ReturnInTransaction(const LeaseClosure& closure,
                                                                      RowChange change) {
  AtPoint("return.begun");
  Result<std::optional<shm::IdRange>> found = FindActive(closure);
  if (!found.ok()) return found.status();
  if (!found.value().has_value()) return std::optional(ReturnOutcome::kStale);
  const shm::IdRange ids = *found.value();
  if (closure.claimed >= ids.size()) {
    return Status(Code::kInvalid, "nothing is left of " + RangeText(ids) + " after " +
                                      std::to_string(closure.claimed) + " claimed ids");
  }
  // Nothing below the tombstone goes back. It marks where a deleted tag ended: its successor must
  // not be lowered below that. Or it marks where another generator ended: the tag was lifted above
  // that.
  SqliteQuery alive = db_->Query(
      "SELECT EXISTS(SELECT 1 FROM leaf_alloc WHERE biz_tag = ?1) AND"
      "   NOT EXISTS(SELECT 1 FROM idd_deleted_tag WHERE biz_tag = ?1 AND max_id > ?2)",
      closure.tag, ids.first + closure.claimed);
  const bool is_alive = alive.Next() && alive.Uint(0) != 0;
  if (!alive.Finish().ok()) return alive.Finish();

  LeaseClosure end = closure;
  const bool is_restored = restored_tokens_.contains(closure.token);
  const bool goes_back = is_alive && !is_restored;
  end.state = goes_back ? LeaseState::kReturned : LeaseState::kAbandoned;
  std::optional<ReturnOutcome> outcome;
  if (is_alive && is_restored) outcome = ReturnOutcome::kAbandoned;
  if (goes_back) {
    Result<ReturnOutcome> given =
        GiveBack(closure, {ids.first + closure.claimed, ids.limit}, change);
    if (!given.ok()) return given.status();
    outcome = given.value();
    AtPoint("return.given_back");
  }
  if (Status status = JournalEnd(end, ids); !status.ok()) return status;
  AtPoint("return.journalled");
  return outcome;
}

Result<ReturnOutcome> SqliteStore::GiveBack(const LeaseClosure& closure, shm::IdRange tail,
                                            RowChange change) {
  // max_id is lowered only if the witness also shows that no host has leased after the tail.
  Status status;
  if (change == RowChange::kAllowed && NextOfWitness(closure.tag) == tail.limit) {
    status = db_->Run(
        "UPDATE leaf_alloc SET max_id = ?2, update_time = CURRENT_TIMESTAMP"
        " WHERE biz_tag = ?1 AND typeof(max_id) = 'integer' AND max_id = ?3",
        closure.tag, tail.first, tail.limit);
    if (!status.ok()) return status;
    if (db_->changes() == 1) {
      status = continuity_.witness().Announce(
          {.token = closure.token, .tag = closure.tag, .next = tail.first});
      if (!status.ok()) return status;
      continuity_.Lower(closure.tag, tail.first);
      return ReturnOutcome::kLowered;
    }
  }
  status = db_->Run(
      "INSERT INTO idd_returned(token, biz_tag, host, base, \"limit\") VALUES(?1, ?2, ?3, ?4, ?5)",
      closure.token, closure.tag, options_.host_id, tail.first, tail.limit);
  if (!status.ok()) return status;
  return ReturnOutcome::kListed;
}

Result<std::vector<LeaseRecord>> SqliteStore::AbandonActive(
    const std::vector<std::string>& except_tokens) {
  if (!db_) return NotOpen();
  using Leases = std::vector<LeaseRecord>;
  Result<Leases> abandoned = Change([&]() -> Result<Leases> {
    Leases leases;
    SqliteQuery query = db_->Query(std::string("SELECT ") + kSqliteLeaseColumns +
                                       " FROM idd_lease WHERE host = ?1 AND state = 'active'"
                                       " ORDER BY seq",
                                   options_.host_id);
    while (query.Next()) {
      Result<LeaseRecord> lease = ParseLeaseRow(query);
      if (!lease.ok()) {
        LogInvalidRow(lease.status());
        continue;
      }
      const auto kept = std::find(except_tokens.begin(), except_tokens.end(), lease.value().token);
      if (kept == except_tokens.end()) leases.push_back(std::move(lease).value());
    }
    if (!query.Finish().ok()) return query.Finish();
    Leases ended;
    for (LeaseRecord& lease : leases) {
      lease.state = LeaseState::kAbandoned;
      lease.abandoned = lease.ids.size();
      const Status status = JournalEnd({lease.token, lease.tag, lease.state, 0}, lease.ids);
      if (status.ok()) {
        ended.push_back(std::move(lease));
      } else if (status.code() == Code::kInvalid && db_->has_transaction()) {
        LogInvalidRow(status);
      } else {
        return status;
      }
    }
    AtPoint("abandon.journalled");
    return ended;
  });
  if (abandoned.ok()) AtPoint("abandon.committed");
  return abandoned;
}

Result<std::vector<LeaseRecord>> SqliteStore::ListLeases(const LeaseFilter& filter) {
  if (!db_) return NotOpen();
  std::optional<std::string> state;
  if (filter.state.has_value()) state = LeaseStateName(*filter.state);
  std::optional<std::string> among;
  if (filter.among.has_value()) among = nlohmann::json(*filter.among).dump();
  // Only bare terms can use an index.
  std::string where = " WHERE ?4 IS NOT 0";
  where += filter.tag ? " AND biz_tag = ?1" : " AND ?1 IS NULL";
  where += filter.host ? " AND host = ?2" : " AND ?2 IS NULL";
  where += state ? " AND state = ?3" : " AND ?3 IS NULL";
  if (among) where += " AND biz_tag IN (SELECT value FROM json_each(?4))";
  if (filter.containing.has_value()) {
    const std::string id = std::to_string(*filter.containing);
    where += " AND base <= " + id + " AND \"limit\" > " + id;
  }
  where += filter.since ? " AND leased_at >= ?5" : " AND ?5 IS NULL";
  const std::string limit = filter.newest == 0 ? "-1" : std::to_string(filter.newest);
  const auto select = [&](const std::string& table) -> Result<std::string> {
    const Result<std::string> between = Places(filter, table);
    if (!between.ok()) return between.status();
    return "SELECT * FROM (SELECT " + std::string(kSqliteLeaseColumns) + " FROM " +
           Rows(filter, table) + where + between.value() + " ORDER BY seq DESC LIMIT " + limit +
           ")";
  };
  const Result<std::string> lately = select("idd_lease");
  if (!lately.ok()) return lately.status();
  const Result<std::string> ended = select("idd_ended");
  if (!ended.ok()) return ended.status();
  // An active lease is in idd_lease.
  const bool is_active = filter.state == LeaseState::kActive;
  SqliteQuery query = db_->Query(lately.value() + (is_active ? "" : " UNION ALL " + ended.value()) +
                                     " ORDER BY seq DESC LIMIT " + limit,
                                 filter.tag, filter.host, state, among, filter.since);
  Result<std::vector<LeaseRecord>> leases = ParseLeases(query);
  if (leases.ok()) std::reverse(leases.value().begin(), leases.value().end());
  return leases;
}

// The table, with the index that leaves the fewest of the settled leases; without one, they are
// read in their order. Of those near an id, all that may contain it: the ids that leases have kept
// do not overlap, so the nearest ones are enough, even in a damaged journal. What was handed back
// may be in any lease that begins below the id.
std::string SqliteStore::Rows(const LeaseFilter& filter, const std::string& table) {
  if (table != "idd_ended") return table;
  if (filter.containing.has_value() && filter.tag.has_value()) {
    const std::string id = std::to_string(*filter.containing);
    return "(SELECT * FROM (SELECT * FROM idd_ended WHERE biz_tag = ?1 AND used_limit > " + id +
           " ORDER BY used_limit LIMIT 1000) UNION SELECT * FROM (SELECT * FROM idd_ended"
           " WHERE biz_tag = ?1 AND state = 'returned' AND base <= " +
           id + " ORDER BY base DESC LIMIT 1000))";
  }
  if (filter.tag.has_value()) return table + " INDEXED BY idd_ended_tag";
  if (filter.host.has_value()) return table + " INDEXED BY idd_ended_host";
  if (filter.state.has_value()) return table + " INDEXED BY idd_ended_state";
  return table;
}

// The places in the journal that a filter asks for. Leases are in the order of their time, but for
// what clocks differ, so the first place is searched for.
Result<std::string> SqliteStore::Places(const LeaseFilter& filter, const std::string& table) {
  std::string between;
  if (filter.before.has_value()) between += " AND seq < " + std::to_string(*filter.before);
  if (!filter.since.has_value()) return between;
  const auto query_two = [&](const std::string& sql) -> Result<std::pair<std::uint64_t, bool>> {
    SqliteQuery query = db_->Query(sql, filter.since);
    std::pair<std::uint64_t, bool> row{0, false};
    if (query.Next()) row = {query.Uint(0), query.Uint(1) != 0};
    if (!query.Finish().ok()) return query.Finish();
    return row;
  };
  const std::string is_before = "leased_at < datetime(?1, '-1 hour')";
  const auto ends = query_two("SELECT coalesce(MAX(seq), 0), ?1 IS NULL FROM " + table);
  if (!ends.ok()) return ends.status();
  std::uint64_t low = 0;  // the first place is above it
  std::uint64_t high = ends.value().first;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto row = query_two("SELECT seq, " + is_before + " FROM " + table + " WHERE seq > " +
                               std::to_string(middle) + " ORDER BY seq LIMIT 1");
    if (!row.ok()) return row.status();
    if (!row.value().second) {
      high = middle;
    } else {
      low = row.value().first;
    }
  }
  return between + " AND seq > " + std::to_string(low);
}

Result<std::vector<ReturnedRange>> SqliteStore::ListReturned(
    const std::optional<std::string>& tag) {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT biz_tag, host, base, \"limit\" FROM idd_returned"
      " WHERE ?1 IS NULL OR biz_tag = ?1 ORDER BY biz_tag, base",
      tag);
  std::vector<ReturnedRange> ranges;
  while (query.Next()) {
    ranges.push_back({query.Text(0), query.Text(1), {query.Uint(2), query.Uint(3)}});
    if (ranges.back().ids.empty()) query.Reject(3, "a number above base");
    if (!query.Finish().ok()) {
      return query.Finish().WithContext("idd_returned of tag '" + ranges.back().tag + "'");
    }
  }
  if (!query.Finish().ok()) return query.Finish();
  return ranges;
}

Result<std::set<std::string>> SqliteStore::LedgerTags() {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT biz_tag FROM leaf_alloc UNION SELECT DISTINCT biz_tag FROM idd_lease"
      " UNION SELECT DISTINCT biz_tag FROM idd_total");
  std::set<std::string> tags;
  while (query.Next()) tags.insert(query.Text(0));
  if (!query.Finish().ok()) return query.Finish();
  return tags;
}

}  // namespace idd::daemon
