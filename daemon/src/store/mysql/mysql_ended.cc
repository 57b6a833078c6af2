// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: leases that have ended: they are settled and folded (journal_store.h), and their
// sums. A packet that changes something locks the keeper's row first, so two hosts never do so at
// the same time.
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// How many rows are looked at for each that may be folded, to find more of the same tag and host.
constexpr std::size_t kFoldLooks = 10;
// No group is added to a transaction that writes more than that many bytes already.
constexpr std::size_t kMostRanges = 128 * 1024;

std::string SecondsAgo(std::chrono::seconds age) {
  return "(CURRENT_TIMESTAMP - INTERVAL " + std::to_string(age.count()) + " SECOND)";
}

// Whether a row was leased after that time. A time that is still to come is of a clock that was
// wrong, and says nothing about the rows after it.
std::string IsRecent(const std::string& time) {
  return "leased_at > " + time + " AND leased_at <= CURRENT_TIMESTAMP";
}

// "(number, ...)". Precondition: not empty.
std::string Numbers(const std::vector<std::uint64_t>& numbers) {
  std::string list;
  for (const std::uint64_t number : numbers) {
    list += list.empty() ? "(" : ", ";
    list += std::to_string(number);
  }
  return list + ")";
}

}  // namespace

Result<JournalOutcome> MysqlStore::KeepJournal(const JournalOrder& order) {
  if (db_ == nullptr) return NotOpen();
  JournalOutcome done{.settled_to = order.settled_to, .folded_to = order.folded_to};
  const Result<bool> is_keeper = BecomeKeeper();
  if (!is_keeper.ok()) return Failed(is_keeper.status());
  if (!is_keeper.value()) return done;
  done.is_keeper = true;
  Status status = Settle(order, done);
  const bool may_fold = done.settled_to == order.settled_to && order.retention.has_value();
  if (status.ok() && may_fold) status = Fold(order, done);
  if (!status.ok()) return Failed(std::move(status));
  done.is_done = done.settled_to == order.settled_to && done.folded_to == order.folded_to;
  return done;
}

Result<bool> MysqlStore::BecomeKeeper() {
  const std::string host = MysqlDb::Text(options_.host.id);
  // A time that is far ahead is of a clock that was wrong.
  const Result<std::vector<MysqlResult>> became =
      db_->Packet({"INSERT IGNORE INTO idd_role(role, host) VALUES('journal', " + host + ")",
                   "UPDATE idd_role SET host = " + host +
                       ", since = CURRENT_TIMESTAMP WHERE role = 'journal' AND (host = " + host +
                       " OR since < " + SecondsAgo(kKeeperSilence) + " OR since > " +
                       SecondsAgo(-kKeeperSilence) + ")",
                   "SELECT host FROM idd_role WHERE role = 'journal'"});
  if (!became.ok()) return became.status();
  const auto& rows = became.value()[2].rows;
  return !rows.empty() && rows.front().front() == options_.host.id;
}

// The first statement of a transaction: locks the keeper's row, and finds out whether that is this
// host's. It needs no guard of the tables, because all that the transaction reads is in them; but a
// user with all rights could write to a read-only server.
std::string MysqlStore::IsKeeper() const {
  return "SELECT COUNT(*) INTO @idd_keeps FROM idd_role WHERE role = 'journal' AND host = " +
         MysqlDb::Text(options_.host.id) +
         " AND CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND @@innodb_read_only = 0"
         " FOR UPDATE";
}

// Looks at the oldest rows, up to one that was leased later than `settle_after` ago: no later one
// can have ended before it. The newest row stays, as in SQLite. A listed tail's row stays too,
// because its tail may still be given up. The tables may have been restored one by one, so a row
// may be settled already.
Status MysqlStore::Settle(const JournalOrder& order, JournalOutcome& done) {
  const std::string due = SecondsAgo(order.settle_after);
  const Result<MysqlResult> found = db_->Query(
      "SELECT seq, " + IsRecent(due) + ", state <> 'active' AND closed_at <= " + due +
      " AND seq < (SELECT MAX(seq) FROM idd_lease)"
      " AND NOT EXISTS(SELECT 1 FROM idd_returned r WHERE r.token = l.token)"
      " AND NOT EXISTS(SELECT 1 FROM idd_ended e WHERE e.seq = l.seq AND e.token <> l.token)"
      " FROM idd_lease l WHERE seq > " +
      std::to_string(order.settled_to) + " ORDER BY seq LIMIT " + std::to_string(order.rows));
  if (!found.ok()) return found.status();
  std::vector<std::uint64_t> seqs;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    const std::optional<std::uint64_t> seq = row.UintIf(0);
    if (!seq.has_value()) {
      return {Code::kInvalid, "a lease's number in idd_lease is " + row.Describe(0)};
    }
    if (row.TextIf(1) == "1") break;
    done.settled_to = *seq;
    if (row.TextIf(2) == "1") seqs.push_back(*seq);
  }
  if (seqs.empty()) return Status::Ok();
  const std::string from =
      " FROM idd_lease l WHERE @idd_keeps = 1 AND state <> 'active' AND seq IN " + Numbers(seqs) +
      " AND NOT EXISTS(SELECT 1 FROM idd_ended e WHERE e.token = l.token)";
  const Result<std::vector<MysqlResult>> settled = db_->Transaction(
      {IsKeeper(),
       "INSERT INTO idd_total(biz_tag, host, month, leases, leased, claimed, returned, abandoned,"
       " used_limit, ranges) SELECT biz_tag, host, DATE_FORMAT(closed_at, '%Y-%m'), COUNT(*),"
       " SUM(`limit` - base), SUM(claimed), SUM(returned), SUM(abandoned), MAX(used_limit), ''" +
           from +
           " GROUP BY 1, 2, 3 ON DUPLICATE KEY UPDATE leases = idd_total.leases + VALUES(leases),"
           " leased = idd_total.leased + VALUES(leased),"
           " claimed = idd_total.claimed + VALUES(claimed),"
           " returned = idd_total.returned + VALUES(returned),"
           " abandoned = idd_total.abandoned + VALUES(abandoned),"
           " used_limit = GREATEST(idd_total.used_limit, VALUES(used_limit))",
       "INSERT INTO idd_ended(seq, token, biz_tag, host, base, `limit`, state, claimed, returned,"
       " abandoned, leased_at, closed_at, used_limit) SELECT seq, token, biz_tag, host, base,"
       " `limit`, state, claimed, returned, abandoned, leased_at, closed_at, used_limit" +
           from,
       "DELETE FROM idd_lease WHERE @idd_keeps = 1 AND state <> 'active' AND seq IN " +
           Numbers(seqs)});
  if (!settled.ok()) return settled.status();
  done.settled = settled.value().back().changed;
  return Status::Ok();
}

// Looks at the oldest rows, as Settle() does, in the order of their numbers. Of each host the
// newest row stays, so that its connections find the last lease that they took.
Result<std::vector<MysqlStore::Foldable>> MysqlStore::FindFoldable(const JournalOrder& order) {
  constexpr int kIsRecent = sql::kLeaseColumnCount;
  const std::string oldest = SecondsAgo(*order.retention);
  const Result<MysqlResult> found = db_->Query(
      std::string("SELECT ") + sql::kLeaseColumns + ", " + IsRecent(oldest) + ", closed_at < " +
      oldest +
      // Not MAX(): MariaDB would read all of the host's rows for it.
      " AND seq < (SELECT seq FROM idd_ended newest WHERE newest.host = e.host ORDER BY seq DESC"
      " LIMIT 1) FROM idd_ended e WHERE seq > " +
      std::to_string(order.folded_to) + " ORDER BY seq LIMIT " +
      std::to_string(kFoldLooks * order.rows));
  if (!found.ok()) return found.status();
  std::vector<Foldable> rows;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    if (row.TextIf(kIsRecent) == "1") break;
    Result<LeaseRecord> lease = ParseLeaseRow(row);
    if (!lease.ok()) return lease.status();
    rows.push_back({std::move(lease).value(), row.TextIf(kIsRecent + 1) == "1"});
  }
  return rows;
}

// The statement that adds leases to their row of idd_total. The row's ranges are read here, before
// the transaction.
Result<std::string> MysqlStore::UpdateOfTotal(const FoldedGroup::Key& key,
                                              const FoldedGroup& group) {
  const auto& [tag, host, month] = key;
  const std::string row = " WHERE biz_tag = " + MysqlDb::Text(tag) +
                          " AND host = " + MysqlDb::Text(host) + " AND month = '" + month + "'";
  const Result<MysqlResult> found = db_->Query("SELECT folded_leases, ranges FROM idd_total" + row);
  if (!found.ok()) return found.status();
  if (found.value().rows.empty()) {
    return Status(Code::kInvalid, "idd_total has no sums of the leases of tag '" + tag +
                                      "' and host '" + host + "' that ended in " + month);
  }
  const MysqlRow cells(found.value().rows.front());
  Result<FoldedRanges> ranges = FoldedRanges::Parse(cells.TextIf(1).value_or(""));
  if (!ranges.ok()) return ranges.status();
  group.AddTo(ranges.value());
  const auto plus = [](const std::string& column, std::uint64_t number) {
    return column + " = " + column + " + " + std::to_string(number);
  };
  const std::string first = std::to_string(group.ids.first);
  return "UPDATE idd_total SET " + plus("folded_leases", group.sums.leases) + ", " +
         plus("folded_leased", group.sums.leased) + ", " +
         plus("folded_claimed", group.sums.claimed) + ", " +
         plus("folded_returned", group.sums.returned) + ", " +
         plus("folded_abandoned", group.sums.abandoned) + ", first_id = IF(last_limit = 0, " +
         first + ", LEAST(first_id, " + first + ")), last_limit = GREATEST(last_limit, " +
         std::to_string(group.ids.limit) + "), ranges = '" + ranges.value().Text() + "'" + row +
         " AND @idd_keeps = 1 AND folded_leases = " + std::to_string(cells.UintIf(0).value_or(0));
}

// A row of idd_total that changes is rewritten with all its ranges, so leases of one tag, host and
// month are folded together, those of the oldest lease first. The transaction counts the rows that
// it changes, and a NULL in place of the keeper's name undoes it all if another host has changed
// one meanwhile.
Status MysqlStore::Fold(const JournalOrder& order, JournalOutcome& done) {
  const Result<std::vector<Foldable>> found = FindFoldable(order);
  if (!found.ok()) return found.status();
  std::map<FoldedGroup::Key, std::vector<LeaseRecord>> groups;
  std::vector<FoldedGroup::Key> keys;  // the one of the oldest lease first
  for (const auto& [lease, is_due] : found.value()) {
    if (!is_due) continue;
    std::vector<LeaseRecord>& group = groups[KeyOf(lease)];
    if (group.empty()) keys.push_back(KeyOf(lease));
    group.push_back(lease);
  }
  std::vector<std::string> statements = {IsKeeper(), "SET @idd_changed = 0"};
  std::vector<std::uint64_t> seqs;
  std::size_t changes = 0;
  std::size_t bytes = 0;
  for (const FoldedGroup::Key& key : keys) {
    if (seqs.size() >= order.rows || bytes > kMostRanges) break;
    std::vector<LeaseRecord>& group = groups[key];
    group.resize(std::min(group.size(), order.rows - seqs.size()));
    const FoldedGroup sums = GroupByMonth(group).at(key);
    Result<std::string> update = UpdateOfTotal(key, sums);
    if (!update.ok()) return update.status();
    bytes += update.value().size();
    statements.push_back(std::move(update).value());
    statements.emplace_back("SET @idd_changed = @idd_changed + ROW_COUNT()");
    seqs.insert(seqs.end(), sums.seqs.begin(), sums.seqs.end());
    ++changes;
  }
  std::sort(seqs.begin(), seqs.end());
  for (const auto& [lease, is_due] : found.value()) {
    if (is_due && !std::binary_search(seqs.begin(), seqs.end(), lease.seq)) break;
    done.folded_to = lease.seq;
  }
  if (seqs.empty()) return Status::Ok();
  statements.push_back("DELETE FROM idd_ended WHERE @idd_keeps = 1 AND seq IN " + Numbers(seqs));
  statements.emplace_back("SET @idd_changed = @idd_changed + ROW_COUNT()");
  statements.push_back("INSERT INTO idd_role(role, host) SELECT 'journal', IF(@idd_changed = " +
                       std::to_string(changes + seqs.size()) +
                       ", host, NULL) FROM idd_role WHERE role = 'journal' AND @idd_keeps = 1"
                       " ON DUPLICATE KEY UPDATE since = CURRENT_TIMESTAMP");
  const Result<std::vector<MysqlResult>> folded = db_->Transaction(statements);
  if (!folded.ok()) return folded.status();
  done.folded = folded.value()[statements.size() - 3].changed;
  return Status::Ok();
}

Result<std::vector<LeaseSums>> MysqlStore::SumLeases(const std::optional<std::string>& tag) {
  if (db_ == nullptr) return NotOpen();
  const std::string of_tag = tag.has_value() ? " WHERE biz_tag = " + MysqlDb::Text(*tag) : "";
  // One statement, so that a lease that is settled meanwhile is counted once.
  const Result<MysqlResult> found = db_->Query(
      "SELECT biz_tag, host, SUM(active), SUM(active_ids), SUM(leases), SUM(leased), SUM(claimed),"
      " SUM(returned), SUM(abandoned) FROM ("
      "SELECT biz_tag, host, SUM(state = 'active') AS active,"
      " SUM(IF(state = 'active', `limit` - base, 0)) AS active_ids,"
      " SUM(state <> 'active') AS leases, SUM(IF(state = 'active', 0, `limit` - base)) AS leased,"
      " SUM(claimed) AS claimed, SUM(returned) AS returned, SUM(abandoned) AS abandoned"
      " FROM idd_lease" +
      of_tag +
      " GROUP BY biz_tag, host UNION ALL SELECT biz_tag, host, 0, 0, SUM(leases), SUM(leased),"
      " SUM(claimed), SUM(returned), SUM(abandoned) FROM idd_total" +
      of_tag + " GROUP BY biz_tag, host) AS every GROUP BY biz_tag, host ORDER BY biz_tag, host");
  if (!found.ok()) return Failed(found.status());
  std::vector<LeaseSums> sums;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    constexpr int kCounts = 7;
    std::array<std::uint64_t, kCounts> counts{};
    for (int i = 0; i < kCounts; ++i) {
      const std::optional<std::uint64_t> count = row.UintIf(2 + i);
      if (!count.has_value()) {
        return Status(Code::kInvalid, "a sum of the leases of tag '" + row.TextIf(0).value_or("") +
                                          "' is " + row.Describe(2 + i));
      }
      counts.at(static_cast<std::size_t>(i)) = *count;
    }
    sums.push_back({.tag = row.TextIf(0).value_or(""),
                    .host = row.TextIf(1).value_or(""),
                    .active_leases = counts[0],
                    .active_ids = counts[1],
                    .ended = {.leases = counts[2],
                              .leased = counts[3],
                              .claimed = counts[4],
                              .returned = counts[5],
                              .abandoned = counts[6]}});
  }
  return sums;
}

Result<std::vector<LeaseRecord>> MysqlStore::ListByIds(const std::string& tag, std::uint64_t below,
                                                       std::size_t most) {
  if (db_ == nullptr) return NotOpen();
  const std::string end = " ORDER BY used_limit DESC LIMIT " + std::to_string(most);
  const auto select = [&](const std::string& table) {
    return std::string("(SELECT ") + sql::kLeaseColumns + ", used_limit FROM " + table +
           " FORCE INDEX(" + table + "_used) WHERE biz_tag = " + MysqlDb::Text(tag) +
           " AND used_limit BETWEEN 1 AND " + std::to_string(below) + end + ")";
  };
  return ReadLeases(select("idd_lease") + " UNION ALL " + select("idd_ended") + end);
}

Result<std::vector<FoldedOrigin>> MysqlStore::FindFolded(const std::string& tag, std::uint64_t id) {
  if (db_ == nullptr) return NotOpen();
  constexpr std::size_t kAtOnce = 64;  // rows, of some 40 KB at most
  std::vector<FoldedOrigin> origins;
  for (std::size_t offset = 0;; offset += kAtOnce) {
    const Result<MysqlResult> found = db_->Query(
        "SELECT host, month, ranges FROM idd_total WHERE biz_tag = " + MysqlDb::Text(tag) +
        " AND first_id <= " + std::to_string(id) + " AND last_limit > " + std::to_string(id) +
        " ORDER BY month DESC, host LIMIT " + std::to_string(offset) + ", " +
        std::to_string(kAtOnce));
    if (!found.ok()) return Failed(found.status());
    for (const auto& cells : found.value().rows) {
      const Result<FoldedRanges> ranges = FoldedRanges::Parse(cells[2].value_or(""));
      if (!ranges.ok()) return ranges.status();
      if (!ranges.value().Contains(id)) continue;
      origins.push_back({cells[0].value_or(""), cells[1].value_or(""), ranges.value().is_exact()});
    }
    if (found.value().rows.size() < kAtOnce) return origins;
  }
}

// Counts the tag's settled leases in parts: a statement over all of them takes longer than the
// connection waits for. Precondition: a snapshot is open.
Result<MysqlStore::CountedLeases> MysqlStore::CountEnded(const std::string& tag) {
  constexpr std::size_t kAtOnce = 20'000;
  CountedLeases counted;
  std::uint64_t last = 0;
  while (true) {
    const Result<MysqlResult> found = db_->Query(
        "SELECT host, month, COUNT(*), SUM(leased), SUM(claimed), SUM(returned), SUM(abandoned),"
        " MAX(seq) FROM (SELECT seq, host, DATE_FORMAT(closed_at, '%Y-%m') AS month,"
        " `limit` - base AS leased, claimed, returned, abandoned FROM idd_ended"
        " FORCE INDEX(idd_ended_tag) WHERE biz_tag = " +
        MysqlDb::Text(tag) + " AND seq > " + std::to_string(last) + " ORDER BY seq LIMIT " +
        std::to_string(kAtOnce) + ") part GROUP BY 1, 2");
    if (!found.ok()) return found.status();
    std::uint64_t rows = 0;
    for (const auto& cells : found.value().rows) {
      const MysqlRow row(cells);
      SumsOfLeases& sums = counted[{row.TextIf(0).value_or(""), row.TextIf(1).value_or("")}];
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::optional<std::uint64_t> sum = row.UintIf(2 + static_cast<int>(i));
        if (!sum.has_value()) {
          return Status(Code::kInvalid, "a sum of the settled leases of tag '" + tag + "' is " +
                                            row.Describe(2 + static_cast<int>(i)));
        }
        sums.at(i) += *sum;
      }
      rows += row.UintIf(2).value_or(0);
      last = std::max(last, row.UintIf(2 + static_cast<int>(sums.size())).value_or(last));
    }
    if (rows < kAtOnce) return counted;
  }
}

Result<std::vector<std::string>> MysqlStore::CompareSums(const std::string& tag) {
  const Result<CountedLeases> counted = CountEnded(tag);
  if (!counted.ok()) return counted.status();
  const Result<MysqlResult> found = db_->Query(
      "SELECT host, month, leases, leased, claimed, returned, abandoned, folded_leases,"
      " folded_leased, folded_claimed, folded_returned, folded_abandoned FROM idd_total"
      " WHERE biz_tag = " +
      MysqlDb::Text(tag) + " ORDER BY 1, 2");
  if (!found.ok()) return found.status();
  std::vector<std::string> differences;
  for (const auto& cells : found.value().rows) {
    constexpr std::size_t kColumns = 12;
    MysqlCells compared = cells;
    compared.resize(kColumns);
    const auto rows = counted.value().find({cells[0].value_or(""), cells[1].value_or("")});
    if (rows != counted.value().end()) {
      const std::size_t folded = compared.size() - rows->second.size();
      for (std::size_t i = 0; i < rows->second.size(); ++i) {
        const std::optional<std::uint64_t> sum =
            MysqlRow(cells).UintIf(static_cast<int>(folded + i));
        if (sum.has_value())
          compared.data()[folded + i] = std::to_string(*sum + rows->second.at(i));
      }
    }
    std::optional<std::string> difference = DifferenceOfSums(MysqlRow(compared), tag);
    if (difference.has_value()) differences.push_back(std::move(*difference));
  }
  return differences;
}

Result<std::vector<std::string>> MysqlStore::CheckSums(const std::string& tag) {
  if (db_ == nullptr) return NotOpen();
  Result<std::vector<std::string>> differences = std::vector<std::string>();
  Status status = Snapshot([&] {
    differences = CompareSums(tag);
    return Failed(differences.status());
  });
  if (!status.ok()) return status;
  return differences;
}

}  // namespace idd::daemon
