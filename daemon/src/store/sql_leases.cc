// SPDX-License-Identifier: Apache-2.0
//
// SqlStore: the end of a lease. The journal gets it, and what is left of the lease's ids goes back
// to max_id, into the list of returned ranges, or is abandoned.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "platform/random.h"
#include "store/sql_store.h"
#include "store/tag_row.h"
#include "store/time_budget.h"

namespace idd::daemon {
namespace {

// How long the server may still work at a packet of a connection that ended.
constexpr std::chrono::seconds kLostFor(120);

}  // namespace

Result<SqlStore::ActiveRanges> SqlStore::FindActive(const std::vector<LeaseClosure>& closures) {
  std::vector<std::string> tokens;
  for (const LeaseClosure& closure : closures) tokens.push_back(closure.token);
  const Result<std::vector<LeaseRecord>> leases = ParseLeaseRows(
      *Query(std::string("SELECT ") + kLeaseColumns +
                 " FROM idd_lease WHERE state = 'active' AND host = ?1 AND token" + In(2),
             {host_, tokens}));
  if (!leases.ok()) return leases.status();
  ActiveRanges ranges;
  for (const LeaseRecord& lease : leases.value()) {
    const bool is_asked_for = std::any_of(closures.begin(), closures.end(), [&](const auto& one) {
      return one.token == lease.token && one.tag == lease.tag;
    });
    if (is_asked_for) ranges[lease.token] = lease.ids;
  }
  return ranges;
}

// Its state is exhausted or abandoned.
SqlStatement SqlStore::EndOf(const LeaseClosure& closure) const {
  return {
      "UPDATE idd_lease SET state = ?3, claimed = ?4, returned = 0,"
      " abandoned = `limit` - base - ?4, closed_at = CURRENT_TIMESTAMP"
      " WHERE token = ?1 AND host = ?2 AND state = 'active'",
      {closure.token, host_, LeaseStateName(closure.state), closure.claimed}};
}

Status SqlStore::CloseLeases(const std::vector<LeaseClosure>& closures) {
  for (const LeaseClosure& closure : closures) {
    const bool is_end =
        closure.state == LeaseState::kExhausted || closure.state == LeaseState::kAbandoned;
    if (is_end && IsToken(closure.token)) continue;
    return {Code::kInvalid, "lease " + closure.token + " of tag '" + closure.tag +
                                "' must be closed as exhausted or abandoned"};
  }
  return ChangeIds(
      [&]() -> Status {
        const Result<ActiveRanges> active = FindActive(closures);
        if (!active.ok()) return active.status();
        std::vector<SqlStatement> statements;
        std::vector<std::string> exhausted;  // one statement ends any number of them
        for (const LeaseClosure& closure : closures) {
          const auto it = active.value().find(closure.token);
          // The lease is closed already, or was never ours: the journal's entry stands.
          if (it == active.value().end()) continue;
          if (Status status = CheckClosure(closure, it->second); !status.ok()) return status;
          if (closure.state == LeaseState::kExhausted) {
            exhausted.push_back(closure.token);
          } else {
            statements.push_back(EndOf(closure));
          }
        }
        if (!exhausted.empty()) {
          statements.push_back(
              {"UPDATE idd_lease SET state = 'exhausted', claimed = `limit` - base,"
               " closed_at = CURRENT_TIMESTAMP WHERE token" +
                   In(1) + " AND host = ?2 AND state = 'active'",
               {exhausted, host_}});
        }
        if (statements.empty()) return Status::Ok();
        statements.back().point = "close.journalled";
        return Transact(statements).status();
      },
      "close.committed");
}

// A row that refuses to be lowered must not cost the tail: the list of returned ranges takes it.
Result<ReturnOutcome> SqlStore::ReturnTail(const LeaseClosure& closure) {
  if (closure.state != LeaseState::kReturned || !IsToken(closure.token)) {
    return Status(Code::kInvalid, "lease " + closure.token + " of tag '" + closure.tag +
                                      "' must be handed back in state 'returned'");
  }
  Result<ReturnOutcome> outcome = ReturnOnce(closure, true);
  if (outcome.status().code() == Code::kInvalid) outcome = ReturnOnce(closure, false);
  if (outcome.ok() || outcome.status().code() == Code::kNoSuchTag) return outcome;
  return outcome.status().WithContext("cannot hand back lease " + closure.token + " of tag '" +
                                      closure.tag + "'");
}

Result<ReturnOutcome> SqlStore::ReturnOnce(const LeaseClosure& closure, bool may_lower) {
  Result<ReturnOutcome> outcome = ReturnOutcome::kStale;
  Status status = ChangeIds(
      [&]() -> Status {
        const Result<ActiveRanges> active = FindActive({closure});
        if (!active.ok()) return active.status();
        const auto it = active.value().find(closure.token);
        if (it == active.value().end()) return Status::Ok();
        if (closure.claimed >= it->second.size()) {
          return {Code::kInvalid, "nothing is left of " + RangeText(it->second) + " after " +
                                      std::to_string(closure.claimed) + " claimed ids"};
        }
        outcome = ReturnActive(closure, it->second, may_lower);
        // That the tag is gone is journalled.
        return outcome.status().code() == Code::kNoSuchTag ? Status::Ok() : outcome.status();
      },
      "return.committed");
  return status.ok() ? outcome : status;
}

// Three ways, of which the first that the tables allow at that moment is taken: max_id is lowered,
// if no lease lies above the tail; the tail is listed; it is abandoned. Each is a transaction,
// whose last statement ends the lease only if max_id, or the list, then shows the tail.
//
// Nothing below the tombstone goes back. It marks where a deleted tag ended: its successor must not
// be lowered below that. Or it marks where another generator ended: the tag was lifted above that.
Result<ReturnOutcome> SqlStore::ReturnActive(const LeaseClosure& closure, shm::IdRange ids,
                                             bool may_lower) {
  const std::uint64_t first = ids.first + closure.claimed;
  const SqlValues values = {closure.tag, closure.token, host_, first, ids.limit, closure.claimed};
  const std::string is_tag = IsExactly("biz_tag", 1);
  const std::string is_active = "token = ?2 AND host = ?3 AND state = 'active'";
  const std::string may_return =
      " AND EXISTS(SELECT 1 FROM idd_lease WHERE " + is_active +
      ") AND NOT EXISTS(SELECT 1 FROM idd_deleted_tag WHERE biz_tag = ?1 AND max_id > ?4)";
  const SqlStatement lock = {
      "SELECT COUNT(*) FROM leaf_alloc WHERE " + is_tag + may_return + ForUpdate(), values};
  const auto end = [&](const char* state, const char* rest, const std::string& condition) {
    return SqlStatement{
        "UPDATE idd_lease SET state = '" + std::string(state) + "', claimed = ?6, " + rest +
            " = `limit` - base - ?6, closed_at = CURRENT_TIMESTAMP WHERE " + is_active + condition,
        values, "return.journalled"};
  };
  const bool is_restored = restored_tokens_.contains(closure.token);
  const std::optional<std::uint64_t> witnessed = NextInWitness(closure.tag);
  if (may_lower && !is_restored && witnessed.value_or(ids.limit) == ids.limit) {
    const Result<std::vector<std::uint64_t>> lowered = Transact(
        {lock,
         {"UPDATE leaf_alloc SET max_id = ?4, update_time = CURRENT_TIMESTAMP WHERE " + is_tag +
              " AND max_id = ?5" + may_return,
          values, "return.given_back"},
         end("returned", "returned",
             " AND EXISTS(SELECT 1 FROM leaf_alloc WHERE " + is_tag + " AND max_id = ?4)")});
    NoteChange(closure.tag, 0);
    if (!lowered.ok()) return lowered.status();
    if (lowered.value()[2] == 1) {
      if (Status status = NoteLowered(closure, first); !status.ok()) return status;
      return ReturnOutcome::kLowered;
    }
  }
  if (!is_restored) {
    const Result<std::vector<std::uint64_t>> listed = Transact(
        {lock,
         {"INSERT INTO idd_returned(token, biz_tag, host, base, `limit`) SELECT ?2, ?1, ?3, ?4, ?5"
          " FROM leaf_alloc WHERE " +
              is_tag + may_return,
          values, "return.given_back"},
         end("returned", "returned", " AND EXISTS(SELECT 1 FROM idd_returned WHERE token = ?2)")});
    NoteChange(closure.tag, 0);
    if (!listed.ok()) return listed.status();
    if (listed.value()[2] == 1) return ReturnOutcome::kListed;
  }
  const Result<std::vector<std::uint64_t>> abandoned =
      Transact({lock, end("abandoned", "abandoned", "")});
  if (!abandoned.ok()) return abandoned.status();
  if (is_restored && abandoned.value()[0] != 0) return ReturnOutcome::kAbandoned;
  return Status(Code::kNoSuchTag, "tag '" + closure.tag +
                                      "' was deleted or lifted; what is left of lease " +
                                      closure.token + " is journalled as abandoned");
}

Result<std::vector<LeaseRecord>> SqlStore::ListActive(
    const std::vector<std::string>& except_tokens) {
  const auto query = Query(std::string("SELECT ") + kLeaseColumns +
                               " FROM idd_lease WHERE host = ?1 AND state = 'active' ORDER BY seq",
                           {host_});
  std::vector<LeaseRecord> active;
  while (query->Next()) {
    Result<LeaseRecord> lease = ParseLeaseRow(*query);
    if (!lease.ok()) {
      LogInvalidRow(lease.status());
      continue;
    }
    const auto kept = std::find(except_tokens.begin(), except_tokens.end(), lease.value().token);
    if (kept == except_tokens.end()) active.push_back(std::move(lease).value());
  }
  if (!query->Finish().ok()) return query->Finish();
  return active;
}

SqlStatement SqlStore::AbandonmentOf(const std::vector<std::string>& tokens) const {
  return {
      "UPDATE idd_lease SET state = 'abandoned', abandoned = `limit` - base,"
      " closed_at = CURRENT_TIMESTAMP WHERE host = ?1 AND state = 'active' AND token" +
          In(2),
      {host_, tokens},
      "abandon.journalled"};
}

// One row may refuse the statement that ends all of them: then each is ended on its own.
Result<std::vector<LeaseRecord>> SqlStore::AbandonActive(
    const std::vector<std::string>& except_tokens) {
  std::vector<LeaseRecord> ended;
  Status status = ChangeIds(
      [&]() -> Status {
        Result<std::vector<LeaseRecord>> active = ListActive(except_tokens);
        if (!active.ok() || active.value().empty()) return active.status();
        std::vector<std::string> tokens;
        for (LeaseRecord& lease : active.value()) {
          tokens.push_back(lease.token);
          lease.state = LeaseState::kAbandoned;
          lease.abandoned = lease.ids.size();
        }
        const Status all = Transact({AbandonmentOf(tokens)}).status();
        if (all.ok()) ended = std::move(active).value();
        if (all.ok() || IsOfStore(all)) return all;
        TimeBudget waits;
        for (LeaseRecord& lease : active.value()) {
          Status one(Code::kTimeout, "other rows were locked for too long");
          if (waits.GoesOn()) one = Transact({AbandonmentOf({lease.token})}).status();
          if (!one.ok() && IsOfStore(one)) return one;
          if (one.ok()) {
            ended.push_back(std::move(lease));
          } else {
            LogInvalidRow(one.WithContext("lease " + lease.token + " of tag '" + lease.tag + "'"));
          }
        }
        return Status::Ok();
      },
      "abandon.committed");
  if (!status.ok()) return status;
  return ended;
}

void SqlStore::NoteLost(const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens) lost_[token] = MonotonicClock::now();
}

Status SqlStore::AbandonLost() {
  if (lost_.empty()) return Status::Ok();
  std::vector<std::string> tokens;
  for (const auto& [token, since] : lost_) tokens.push_back(token);
  if (Status status = Transact({AbandonmentOf(tokens)}).status(); !status.ok()) return status;
  const auto ended = Query(
      "SELECT token FROM idd_lease WHERE token" + In(1) + " AND state <> 'active' AND host = ?2",
      {tokens, host_});
  while (ended->Next()) lost_.erase(ended->Text(0));
  std::erase_if(lost_,
                [](const auto& lost) { return lost.second < MonotonicClock::now() - kLostFor; });
  return ended->Finish();
}

}  // namespace idd::daemon
