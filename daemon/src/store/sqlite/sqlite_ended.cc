// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: leases that have ended: they are settled and folded (journal_store.h), and their
// sums.
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/ended_leases.h"
#include "store/sqlite/sqlite_schema.h"
#include "store/sqlite/sqlite_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

std::string SecondsAgo(std::chrono::seconds age) {
  return "datetime('now', '" + std::to_string(-age.count()) + " seconds')";
}

// Whether a row was leased after that time. A time that is still to come is of a clock that was
// wrong, and says nothing about the rows after it.
std::string IsRecent(const std::string& time) {
  return "leased_at > " + time + " AND leased_at <= CURRENT_TIMESTAMP";
}

// `seqs`: a JSON array, as the first argument.
constexpr const char* kOfSeqs = " WHERE seq IN (SELECT value FROM json_each(?1))";

// How many rows are looked at for each that may be settled: an active lease stays where it is.
constexpr std::size_t kLooks = 4;
// Leases that are folded together have numbers at most this far apart: finding them must not take
// long.
constexpr std::uint64_t kFoldWithin = 10'000;
// After this time, the leases of no further tag and host are folded in the same transaction: other
// leases wait for it.
constexpr std::chrono::milliseconds kFoldFor(1);
// The tables may have been restored one by one, so a row may be settled already.
constexpr const char* kNotSettled =
    " AND NOT EXISTS(SELECT 1 FROM idd_ended AS e WHERE e.token = l.token)";

}  // namespace

Result<JournalOutcome> SqliteStore::KeepJournal(const JournalOrder& order) {
  if (!db_) return NotOpen();
  Result<JournalOutcome> outcome = Change([&]() -> Result<JournalOutcome> {
    JournalOutcome done{.settled_to = order.settled_to, .folded_to = order.folded_to};
    const Result<bool> is_keeper = BecomeKeeper();
    if (!is_keeper.ok()) return is_keeper.status();
    if (!is_keeper.value()) return done;
    done.is_keeper = true;
    Status status = Settle(order, done);
    const bool may_fold = done.settled_to == order.settled_to && order.retention.has_value();
    if (status.ok() && may_fold) status = Fold(order, done);
    if (!status.ok()) return status;
    done.is_done = done.settled_to == order.settled_to && done.folded_to == order.folded_to;
    AtPoint("journal.kept");
    return done;
  });
  if (outcome.ok()) AtPoint("journal.committed");
  return outcome;
}

Result<bool> SqliteStore::BecomeKeeper() {
  // A time that is far ahead is of a clock that was wrong.
  const Status status = db_->Run(
      "INSERT INTO idd_role(role, host) VALUES('journal', ?1) ON CONFLICT(role) DO UPDATE SET"
      " host = excluded.host, since = excluded.since WHERE host = excluded.host OR since < " +
          SecondsAgo(kKeeperSilence) + " OR since > " + SecondsAgo(-kKeeperSilence),
      options_.host_id);
  if (!status.ok()) return status;
  return db_->changes() == 1;
}

// Looks at the oldest rows, up to one that was leased later than `settle_after` ago: no later one
// can have ended before it. The newest row stays: SQLite gives the next one a number above it. A
// listed tail's row stays too, because its tail may still be given up.
Status SqliteStore::Settle(const JournalOrder& order, JournalOutcome& done) {
  const std::string due = SecondsAgo(order.settle_after);
  SqliteQuery query = db_->Query(
      "SELECT seq, " + IsRecent(due) + ", state <> 'active' AND closed_at <= " + due +
          " AND seq < (SELECT MAX(seq) FROM idd_lease)"
          " AND NOT EXISTS(SELECT 1 FROM idd_returned AS r WHERE r.token = l.token)"
          " AND NOT EXISTS(SELECT 1 FROM idd_ended AS e WHERE e.seq = l.seq AND e.token <> l.token)"
          " FROM idd_lease AS l WHERE seq > ?1 ORDER BY seq LIMIT " +
          std::to_string(kLooks * order.rows),
      order.settled_to);
  nlohmann::json seqs = nlohmann::json::array();
  while (seqs.size() < order.rows && query.Next() && query.Uint(1) == 0) {
    done.settled_to = query.Uint(0);
    if (query.Uint(2) != 0) seqs.push_back(done.settled_to);
  }
  if (!query.Finish().ok() || seqs.empty()) return query.Finish();
  done.settled = seqs.size();
  const std::string list = seqs.dump();
  const std::string from = std::string(" FROM idd_lease AS l") + kOfSeqs + kNotSettled;
  for (const std::string& sql :
       {"INSERT INTO idd_total(biz_tag, host, month, leases, leased, claimed, returned, abandoned,"
        " used_limit) SELECT biz_tag, host, substr(closed_at, 1, 7), COUNT(*), SUM(\"limit\" - "
        "base),"
        " SUM(claimed), SUM(returned), SUM(abandoned), MAX(used_limit)" +
            from +
            " GROUP BY 1, 2, 3 ON CONFLICT(biz_tag, host, month) DO UPDATE SET"
            " leases = leases + excluded.leases, leased = leased + excluded.leased,"
            " claimed = claimed + excluded.claimed, returned = returned + excluded.returned,"
            " abandoned = abandoned + excluded.abandoned,"
            " used_limit = MAX(used_limit, excluded.used_limit)",
        "INSERT INTO idd_ended SELECT seq, token, biz_tag, host, base, \"limit\", state, claimed,"
        " returned, abandoned, leased_at, closed_at, used_limit" +
            from,
        std::string("DELETE FROM idd_lease") + kOfSeqs}) {
    if (Status status = db_->Run(sql, list); !status.ok()) return status;
  }
  AtPoint("journal.settled");
  return Status::Ok();
}

// Looks at the oldest rows, as Settle() does, and returns leases of the first tag and host that
// have one to fold. Of each host the newest row stays, so that its connections find the last lease
// that they took.
Result<std::vector<LeaseRecord>> SqliteStore::FindFoldable(const JournalOrder& order,
                                                           std::size_t most, JournalOutcome& done) {
  const std::string oldest = SecondsAgo(*order.retention);
  const std::string is_foldable =
      "closed_at < " + oldest +
      " AND seq < (SELECT MAX(seq) FROM idd_ended AS newest WHERE newest.host = e.host)";
  SqliteQuery query = db_->Query(
      "SELECT seq, biz_tag, host, " + IsRecent(oldest) + ", " + is_foldable +
          " FROM idd_ended AS e WHERE seq > ?1 ORDER BY seq LIMIT " + std::to_string(order.rows),
      done.folded_to);
  std::string tag;
  std::string host;
  while (tag.empty() && query.Next() && query.Uint(3) == 0) {
    done.folded_to = query.Uint(0);
    if (query.Uint(4) == 0) continue;
    tag = query.Text(1);
    host = query.Text(2);
  }
  if (!query.Finish().ok()) return query.Finish();
  if (tag.empty()) return std::vector<LeaseRecord>();
  SqliteQuery group = db_->Query(
      std::string("SELECT ") + kSqliteLeaseColumns +
          " FROM idd_ended AS e WHERE biz_tag = ?1 AND host = ?2 AND seq BETWEEN ?3 AND ?4"
          " AND NOT (" +
          IsRecent(oldest) + ") AND " + is_foldable + " ORDER BY seq LIMIT " + std::to_string(most),
      tag, host, done.folded_to, done.folded_to + kFoldWithin);
  return ParseLeases(group);
}

// A row of idd_total that changes is rewritten with all its ranges, so leases of one tag and host
// are folded together.
Status SqliteStore::Fold(const JournalOrder& order, JournalOutcome& done) {
  const MonotonicTime began = MonotonicClock::now();
  while (done.folded < order.rows && MonotonicClock::now() - began < kFoldFor) {
    const Result<std::vector<LeaseRecord>> leases =
        FindFoldable(order, order.rows - done.folded, done);
    if (!leases.ok()) return leases.status();
    if (leases.value().empty()) break;
    std::map<FoldedGroup::Key, FoldedGroup> groups = GroupByMonth(leases.value());
    for (auto& [key, group] : groups) {
      if (Status status = FoldGroup(key, group); !status.ok()) return status;
    }
    done.folded += leases.value().size();
  }
  return Status::Ok();
}

Status SqliteStore::FoldGroup(const FoldedGroup::Key& key, FoldedGroup& group) {
  const auto& [tag, host, month] = key;
  SqliteQuery query =
      db_->Query("SELECT ranges FROM idd_total WHERE biz_tag = ?1 AND host = ?2 AND month = ?3",
                 tag, host, month);
  const bool has_row = query.Next();
  const std::string text = has_row ? query.Text(0) : "";
  if (!query.Finish().ok()) return query.Finish();
  if (!has_row) {
    return {Code::kInvalid, "idd_total has no sums of the leases of tag '" + tag + "' and host '" +
                                host + "' that ended in " + month};
  }
  Result<FoldedRanges> ranges = FoldedRanges::Parse(text);
  if (!ranges.ok()) return ranges.status();
  group.AddTo(ranges.value());
  const auto& sums = group.sums;
  Status status = db_->Run(
      "UPDATE idd_total SET folded_leases = folded_leases + ?4, folded_leased = folded_leased + ?5,"
      " folded_claimed = folded_claimed + ?6, folded_returned = folded_returned + ?7,"
      " folded_abandoned = folded_abandoned + ?8, ranges = ?9,"
      " first_id = IIF(last_limit = 0, ?10, MIN(first_id, ?10)), last_limit = MAX(last_limit, ?11)"
      " WHERE biz_tag = ?1 AND host = ?2 AND month = ?3",
      tag, host, month, sums.leases, sums.leased, sums.claimed, sums.returned, sums.abandoned,
      ranges.value().Text(), group.ids.first, group.ids.limit);
  if (status.ok()) {
    status =
        db_->Run(std::string("DELETE FROM idd_ended") + kOfSeqs, nlohmann::json(group.seqs).dump());
  }
  AtPoint("journal.folded");
  return status;
}

Result<std::vector<LeaseSums>> SqliteStore::SumLeases(const std::optional<std::string>& tag) {
  if (!db_) return NotOpen();
  const std::string of_tag = tag.has_value() ? " WHERE biz_tag = ?1" : " WHERE ?1 IS NULL";
  SqliteQuery query = db_->Query(
      "SELECT biz_tag, host, SUM(active), SUM(active_ids), SUM(leases), SUM(leased), SUM(claimed),"
      " SUM(returned), SUM(abandoned) FROM ("
      "SELECT biz_tag, host, SUM(state = 'active') AS active,"
      " SUM(IIF(state = 'active', \"limit\" - base, 0)) AS active_ids,"
      " SUM(state <> 'active') AS leases, SUM(IIF(state = 'active', 0, \"limit\" - base)) AS "
      "leased,"
      " SUM(claimed) AS claimed, SUM(returned) AS returned, SUM(abandoned) AS abandoned"
      " FROM idd_lease" +
          of_tag +
          " GROUP BY biz_tag, host UNION ALL"
          " SELECT biz_tag, host, 0, 0, leases, leased, claimed, returned, abandoned FROM "
          "idd_total" +
          of_tag + ") GROUP BY biz_tag, host ORDER BY biz_tag, host",
      tag);
  std::vector<LeaseSums> sums;
  while (query.Next()) {
    sums.push_back({.tag = query.Text(0),
                    .host = query.Text(1),
                    .active_leases = query.Uint(2),
                    .active_ids = query.Uint(3),
                    .ended = {.leases = query.Uint(4),
                              .leased = query.Uint(5),
                              .claimed = query.Uint(6),
                              .returned = query.Uint(7),
                              .abandoned = query.Uint(8)}});
  }
  if (!query.Finish().ok()) return query.Finish();
  return sums;
}

Result<std::vector<LeaseRecord>> SqliteStore::ParseLeases(SqliteQuery& query) {
  std::vector<LeaseRecord> leases;
  while (query.Next()) {
    Result<LeaseRecord> lease = ParseLeaseRow(query);
    if (!lease.ok()) return lease.status();
    leases.push_back(std::move(lease).value());
  }
  if (!query.Finish().ok()) return query.Finish();
  return leases;
}

Result<std::vector<LeaseRecord>> SqliteStore::ListByIds(const std::string& tag, std::uint64_t below,
                                                        std::size_t most) {
  if (!db_) return NotOpen();
  const std::string end =
      " WHERE biz_tag = ?1 AND used_limit BETWEEN 1 AND ?2"
      " ORDER BY used_limit DESC LIMIT " +
      std::to_string(most);
  const std::string columns = std::string("SELECT ") + kSqliteLeaseColumns + ", used_limit FROM ";
  SqliteQuery query = db_->Query("SELECT * FROM (" + columns + "idd_lease" + end +
                                     ") UNION ALL SELECT * FROM (" + columns + "idd_ended" + end +
                                     ") ORDER BY used_limit DESC LIMIT " + std::to_string(most),
                                 tag, below);
  return ParseLeases(query);
}

Result<std::vector<FoldedOrigin>> SqliteStore::FindFolded(const std::string& tag,
                                                          std::uint64_t id) {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT host, month, ranges FROM idd_total"
      " WHERE biz_tag = ?1 AND first_id <= ?2 AND last_limit > ?2 ORDER BY month DESC, host",
      tag, id);
  std::vector<FoldedOrigin> origins;
  while (query.Next()) {
    const Result<FoldedRanges> ranges = FoldedRanges::Parse(query.Text(2));
    if (!ranges.ok()) return ranges.status();
    if (!ranges.value().Contains(id)) continue;
    origins.push_back({query.Text(0), query.Text(1), ranges.value().is_exact()});
  }
  if (!query.Finish().ok()) return query.Finish();
  return origins;
}

Result<std::vector<std::string>> SqliteStore::CheckSums(const std::string& tag) {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT t.host, t.month, t.leases, t.leased, t.claimed, t.returned, t.abandoned,"
      " t.folded_leases + coalesce(e.leases, 0), t.folded_leased + coalesce(e.leased, 0),"
      " t.folded_claimed + coalesce(e.claimed, 0), t.folded_returned + coalesce(e.returned, 0),"
      " t.folded_abandoned + coalesce(e.abandoned, 0) FROM idd_total AS t LEFT JOIN ("
      "SELECT host, substr(closed_at, 1, 7) AS month, COUNT(*) AS leases,"
      " SUM(\"limit\" - base) AS leased, SUM(claimed) AS claimed, SUM(returned) AS returned,"
      " SUM(abandoned) AS abandoned FROM idd_ended WHERE biz_tag = ?1 GROUP BY 1, 2) AS e"
      " ON e.host = t.host AND e.month = t.month WHERE t.biz_tag = ?1 ORDER BY 1, 2",
      tag);
  std::vector<std::string> differences;
  while (query.Next()) {
    std::optional<std::string> difference = DifferenceOfSums(query, tag);
    if (difference.has_value()) differences.push_back(std::move(*difference));
  }
  if (!query.Finish().ok()) return query.Finish();
  return differences;
}

}  // namespace idd::daemon
