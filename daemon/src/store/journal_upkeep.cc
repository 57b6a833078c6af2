// SPDX-License-Identifier: Apache-2.0
//
// A batch of the journal's upkeep, in this order: the host becomes the keeper, or finds that
// another one is; it settles leases; once none is left to settle, it folds.
#include "store/journal_upkeep.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <utility>

#include "idd/base/clock.h"
#include "store/folded_ranges.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// How many rows are looked at for each that may be settled: an active lease stays where it is.
constexpr std::uint64_t kLooks = 4;
// Leases that are folded together have numbers at most this far apart: finding them must not take
// long.
constexpr std::uint64_t kFoldWithin = 10'000;
// After this time, the leases of no further tag and host are folded in the same batch: in a file,
// other leases wait for it.
constexpr std::chrono::milliseconds kFoldFor(1);
// Of "2026-11-26 05:30:00".
constexpr std::size_t kMonth = 7;

// Whether a row was leased after that time. A time that is still to come is of a clock that was
// wrong, and says nothing about the rows after it.
std::string IsRecent(const std::string& time) {
  return "(leased_at > " + time + " AND leased_at <= CURRENT_TIMESTAMP)";
}

}  // namespace

struct JournalUpkeep::Group {
  std::string tag;
  std::string host;
  std::string month;
  std::uint64_t leased = 0;
  std::uint64_t claimed = 0;
  std::uint64_t returned = 0;
  std::uint64_t abandoned = 0;
  std::vector<std::uint64_t> seqs{};
  std::vector<shm::IdRange> kept{};
  shm::IdRange ids{shm::kMaxLimit, 0};  // encloses all of `kept`; empty if there are none

  void Add(const LeaseRecord& lease) {
    std::tie(tag, host, month) =
        std::tuple(lease.tag, lease.host, lease.closed_at.substr(0, kMonth));
    leased += lease.ids.size();
    claimed += lease.claimed;
    returned += lease.returned;
    abandoned += lease.abandoned;
    seqs.push_back(lease.seq);
    // What was handed back may have been leased again.
    const shm::IdRange rest{lease.ids.first, lease.ids.limit - lease.returned};
    if (rest.empty()) return;
    ids = {std::min(ids.first, rest.first), std::max(ids.limit, rest.limit)};
    kept.push_back(rest);
  }
};

Result<JournalOutcome> JournalUpkeep::KeepJournal(const JournalOrder& order) {
  JournalOutcome done{.settled_to = order.settled_to, .folded_to = order.folded_to};
  Status status = session_.ChangeIds([&] { return KeepBatch(order, done); }, "journal.committed");
  if (!status.ok()) return status;
  return done;
}

Status JournalUpkeep::KeepBatch(const JournalOrder& order, JournalOutcome& done) {
  const Result<bool> is_keeper = BecomeKeeper();
  if (!is_keeper.ok() || !is_keeper.value()) return is_keeper.status();
  done.is_keeper = true;
  if (Status status = Settle(order, done); !status.ok()) return status;
  if (done.settled_to == order.settled_to && order.retention.has_value()) {
    if (Status status = Fold(order, done); !status.ok()) return status;
  }
  done.is_done = done.settled_to == order.settled_to && done.folded_to == order.folded_to;
  return Status::Ok();
}

Result<bool> JournalUpkeep::BecomeKeeper() {
  // A time that is far ahead is of a clock that was wrong.
  const std::string is_free = "host = ?1 OR since < " + session_.Ago(kKeeperSilence) +
                              " OR since > " + session_.Ago(-kKeeperSilence);
  const std::string is_writable = session_.IsWritable();
  const Result<std::vector<std::uint64_t>> numbers = session_.Transact(
      {{"UPDATE idd_role SET host = ?1, since = CURRENT_TIMESTAMP WHERE role = 'journal' AND (" +
            is_free + ") AND " + is_writable,
        {host_}},
       {session_.InsertIfNew() + ("idd_role(role, host) SELECT 'journal', ?1 FROM (SELECT 1) AS one"
                                  " WHERE " +
                                  is_writable),
        {host_}},
       {"SELECT COUNT(*) FROM idd_role WHERE role = 'journal' AND host = ?1 AND " + is_writable,
        {host_}}});
  if (!numbers.ok()) return numbers.status();
  return numbers.value()[2] == 1;
}

SqlStatement JournalUpkeep::LockKeeper() const {
  return {"SELECT COUNT(*) FROM idd_role WHERE role = 'journal' AND host = ?1" +
              std::string(session_.ForUpdate()),
          {host_}};
}

// It needs no guard of the tables, because all that the transaction reads is in them.
std::string JournalUpkeep::IsKeeper() const {
  return "(SELECT COUNT(*) FROM idd_role WHERE role = 'journal' AND host = ?1) = 1";
}

// Looks at the oldest rows, up to one that was leased later than `settle_after` ago: no later one
// can have ended before it. The newest row stays: SQLite gives the next one a number above it. A
// listed tail's row stays too, because its tail may still be given up. The tables may have been
// restored one by one, so a row may be settled already.
Result<std::vector<std::uint64_t>> JournalUpkeep::FindDue(const JournalOrder& order,
                                                          JournalOutcome& done) {
  const std::string due = session_.Ago(order.settle_after);
  const auto query = session_.Query(
      "SELECT seq, " + IsRecent(due) + ", state <> 'active' AND COALESCE(closed_at <= " + due +
          ", 0) AND seq < (SELECT MAX(seq) FROM idd_lease)"
          " AND NOT EXISTS(SELECT 1 FROM idd_returned AS r WHERE r.token = l.token)"
          " AND NOT EXISTS(SELECT 1 FROM idd_ended AS e WHERE e.seq = l.seq AND e.token <> l.token)"
          " FROM idd_lease AS l WHERE seq > ?1 ORDER BY seq LIMIT ?2",
      {order.settled_to, kLooks * order.rows});
  std::vector<std::uint64_t> seqs;
  while (seqs.size() < order.rows && query->Next() && query->Uint(1) == 0) {
    done.settled_to = query->Uint(0);
    if (query->Uint(2) != 0) seqs.push_back(done.settled_to);
  }
  if (!query->Finish().ok()) return query->Finish();
  return seqs;
}

Status JournalUpkeep::Settle(const JournalOrder& order, JournalOutcome& done) {
  const Result<std::vector<std::uint64_t>> seqs = FindDue(order, done);
  if (!seqs.ok() || seqs.value().empty()) return seqs.status();
  const SqlValues values = {host_, seqs.value()};
  const std::string are_due =
      " WHERE " + IsKeeper() + " AND state <> 'active' AND seq" + session_.In(2);
  const std::string from = " FROM idd_lease AS l" + are_due +
                           " AND NOT EXISTS(SELECT 1 FROM idd_ended AS e WHERE e.token = l.token)";
  std::string sums = session_.OrUpdate("biz_tag, host, month");
  for (const char* column : {"leases", "leased", "claimed", "returned", "abandoned"}) {
    sums +=
        std::string(column) + " = idd_total." + column + " + " + session_.NewValue(column) + ", ";
  }
  sums +=
      "used_limit = " + session_.Largest({"idd_total.used_limit", session_.NewValue("used_limit")});
  const Result<std::vector<std::uint64_t>> numbers = session_.Transact(
      {LockKeeper(),
       {"INSERT INTO idd_total(biz_tag, host, month, leases, leased, claimed, returned, abandoned,"
        " used_limit, ranges) SELECT biz_tag, host, SUBSTR(closed_at, 1, 7), COUNT(*),"
        " SUM(`limit` - base), SUM(claimed), SUM(returned), SUM(abandoned), MAX(used_limit), ''" +
            from + " GROUP BY 1, 2, 3" + sums,
        values},
       {"INSERT INTO idd_ended(seq, token, biz_tag, host, base, `limit`, state, claimed, returned,"
        " abandoned, leased_at, closed_at, used_limit) SELECT seq, token, biz_tag, host, base,"
        " `limit`, state, claimed, returned, abandoned, leased_at, closed_at, used_limit" +
            from,
        values},
       {"DELETE FROM idd_lease" + are_due, values, "journal.settled"}});
  if (!numbers.ok()) return numbers.status();
  done.settled = numbers.value()[3];
  return Status::Ok();
}

// Looks at the oldest rows, as Settle() does, and returns leases of the first tag and host that
// have one to fold. Of each host the newest row stays, so that its connections find the last lease
// that they took.
Result<std::vector<LeaseRecord>> JournalUpkeep::FindFoldable(const JournalOrder& order,
                                                             JournalOutcome& done) {
  const std::string oldest = session_.Ago(*order.retention);
  // Not MAX(): MariaDB would read all of the host's rows for it.
  const std::string is_foldable =
      "(closed_at < " + oldest +
      " AND seq < (SELECT seq FROM idd_ended AS newest WHERE newest.host = e.host"
      " ORDER BY seq DESC LIMIT 1))";
  const auto query =
      session_.Query("SELECT seq, biz_tag, host, " + IsRecent(oldest) + ", " + is_foldable +
                         " FROM idd_ended AS e WHERE seq > ?1 ORDER BY seq LIMIT ?2",
                     {done.folded_to, std::uint64_t{order.rows}});
  std::string tag;
  std::string host;
  while (tag.empty() && query->Next() && query->Uint(3) == 0) {
    done.folded_to = query->Uint(0);
    if (query->Uint(4) == 0) continue;
    tag = query->Text(1);
    host = query->Text(2);
  }
  if (!query->Finish().ok()) return query->Finish();
  if (tag.empty()) return std::vector<LeaseRecord>();
  const auto group =
      session_.Query(std::string("SELECT ") + kLeaseColumns + " FROM idd_ended AS e" +
                         session_.ByIndex("idd_ended_tag") +
                         " WHERE biz_tag = ?1 AND host = ?2 AND seq BETWEEN ?3 AND ?4 AND NOT " +
                         IsRecent(oldest) + " AND " + is_foldable + " ORDER BY seq LIMIT ?5",
                     {tag, host, done.folded_to, done.folded_to + kFoldWithin,
                      std::uint64_t{order.rows - done.folded}});
  return ParseLeaseRows(*group);
}

// A row of idd_total that changes is rewritten with all its ranges, so leases of one tag and host
// are folded together.
Status JournalUpkeep::Fold(const JournalOrder& order, JournalOutcome& done) {
  const MonotonicTime began = MonotonicClock::now();
  while (done.folded < order.rows && MonotonicClock::now() - began < kFoldFor) {
    const Result<std::vector<LeaseRecord>> leases = FindFoldable(order, done);
    if (!leases.ok()) return leases.status();
    if (leases.value().empty()) break;
    std::map<std::string, Group> of_month;
    for (const LeaseRecord& lease : leases.value()) {
      of_month[lease.closed_at.substr(0, kMonth)].Add(lease);
    }
    for (const auto& [month, group] : of_month) {
      if (Status status = FoldGroup(group, done); !status.ok()) return status;
    }
  }
  return Status::Ok();
}

Result<FoldedRanges> JournalUpkeep::ReadRanges(const Group& group, std::uint64_t& folded) {
  const auto query = session_.Query(
      "SELECT folded_leases, ranges FROM idd_total WHERE biz_tag = ?1 AND host = ?2 AND month = ?3",
      {group.tag, group.host, group.month});
  const bool has_row = query->Next();
  folded = has_row ? query->Uint(0) : 0;
  const std::string text = has_row ? query->Text(1) : "";
  if (!query->Finish().ok()) return query->Finish();
  if (has_row) return FoldedRanges::Parse(text);
  return Status(Code::kInvalid, "idd_total has no sums of the leases of tag '" + group.tag +
                                    "' and host '" + group.host + "' that ended in " + group.month);
}

// The ranges are read before the transaction. It changes nothing if leases were folded since: their
// number has changed then.
Status JournalUpkeep::FoldGroup(const Group& group, JournalOutcome& done) {
  std::uint64_t folded = 0;
  Result<FoldedRanges> ranges = ReadRanges(group, folded);
  if (!ranges.ok()) return ranges.status();
  for (const shm::IdRange& range : group.kept) ranges.value().Add(range);
  ranges.value().Reduce(kMostFoldedRanges);
  const SqlValues values = {host_,
                            group.tag,
                            group.host,
                            group.month,
                            folded,
                            group.seqs,
                            std::uint64_t{group.seqs.size()},
                            group.leased,
                            group.claimed,
                            group.returned,
                            group.abandoned,
                            group.ids.first,
                            group.ids.limit,
                            ranges.value().Text()};
  const std::string row = "biz_tag = ?2 AND host = ?3 AND month = ?4 AND folded_leases = ?5";
  const Result<std::vector<std::uint64_t>> numbers = session_.Transact(
      {LockKeeper(),
       {"DELETE FROM idd_ended WHERE seq" + session_.In(6) + " AND " + IsKeeper() +
            " AND EXISTS(SELECT 1 FROM idd_total WHERE " + row + ")",
        values},
       {"UPDATE idd_total SET folded_leases = folded_leases + ?7, folded_leased = folded_leased +"
        " ?8, folded_claimed = folded_claimed + ?9, folded_returned = folded_returned + ?10,"
        " folded_abandoned = folded_abandoned + ?11, first_id = CASE WHEN last_limit = 0 OR"
        " first_id > ?12 THEN ?12 ELSE first_id END, last_limit = " +
            session_.Largest({"last_limit", "?13"}) + ", ranges = ?14 WHERE " + row + " AND " +
            IsKeeper(),
        values, "journal.folded"}});
  if (!numbers.ok()) return numbers.status();
  if (numbers.value()[2] == 0) {
    return {Code::kTimeout, "another process folds leases of tag '" + group.tag + "'"};
  }
  done.folded += group.seqs.size();
  return Status::Ok();
}

}  // namespace idd::daemon
