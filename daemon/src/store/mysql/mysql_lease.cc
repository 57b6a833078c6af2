// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: leasing, and leases whose answer was lost.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "store/mysql/mysql_schema.h"
#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// How long a tag's state is used after it was read. A lease's guards notice a row that was set back
// since, but not a journal with ids above it.
constexpr milliseconds kStateLife(100);
// How often a lease is tried if other transactions are in its way.
constexpr int kTries = 4;
constexpr unsigned kChanged = 1020;

Status NotYet(const std::string& tag) {
  return {Code::kTimeout, "the database is slow, and other tags were leased first; tag '" + tag +
                              "' is tried again"};
}

Status WasTakenMeanwhile(const std::string& tag) {
  return {Code::kTimeout,
          "other hosts lease tag '" + tag + "' at the same time; it is tried again"};
}

Status IsNotItsTurn(const std::string& tag) {
  return {Code::kTimeout, "many hosts lease at the same time; tag '" + tag +
                              "' is tried again when it is this host's turn"};
}

// Whether the statement has waited for a lock for the whole second.
bool HasWaited(unsigned error) {
  return error == sql::kLockTimeout || error == sql::kAutoIncrement;
}

bool IsInTheWay(unsigned error) {
  return HasWaited(error) || error == sql::kNullRefused || error == sql::kDeadlock ||
         error == kChanged;
}

}  // namespace

Result<Store::LeaseResults> MysqlStore::TakeLeases(const std::vector<LeaseRequest>& requests) {
  if (db_ == nullptr) return NotOpen();
  LeasePart apart;
  LeasePart together;
  LeaseResults leases;
  for (const LeaseRequest& request : requests) {
    (IsApart(request.tag) ? apart : together).Add(request, leases.size());
    leases.emplace_back(NotYet(request.tag));
  }
  if (!together.requests.empty()) {
    Result<LeaseResults> taken = TakeTogether(together.requests);
    if (!taken.ok()) return taken;
    together.PutInto(leases, taken.value());
  }
  if (!apart.requests.empty()) {
    Result<LeaseResults> taken = TakeApart(apart.requests);
    if (!taken.ok()) return GiveUp(leases, taken.status());
    apart.PutInto(leases, taken.value());
  }
  return leases;
}

Result<Store::LeaseResults> MysqlStore::TakeTogether(const std::vector<LeaseRequest>& requests) {
  const Result<bool> has_turn = AwaitTurn();
  if (!has_turn.ok()) return has_turn.status();
  if (!has_turn.value()) {
    LeaseResults leases;
    for (const LeaseRequest& request : requests) leases.emplace_back(IsNotItsTurn(request.tag));
    return leases;
  }
  Result<LeaseResults> taken = TakeInTurn(requests);
  EndTurn();
  return taken;
}

Result<Store::LeaseResults> MysqlStore::TakeInTurn(const std::vector<LeaseRequest>& requests) {
  Result<LeaseResults> taken = TakeOnce(requests);
  if (taken.ok() || db_ == nullptr) return taken;
  const unsigned error = db_->last_error();
  if (requests.size() == 1 && !IsInTheWay(error)) {
    if (IsOfStore(taken.status())) return taken;
    LeaseResults refused;
    refused.emplace_back(taken.status());
    return refused;
  }
  states_.clear();
  if (HasWaited(error)) {
    TakeTurns();
    NoteLocked(requests);
  }
  LeasePart free;
  LeaseResults leases;
  for (const LeaseRequest& request : requests) {
    if (!locked_.contains(request.tag)) free.Add(request, leases.size());
    leases.emplace_back(IsLocked(request.tag));
  }
  if (free.requests.empty()) return leases;
  // Beside many hosts, the state of one of the tags has often changed since it was read.
  if (free.requests.size() > 1 && IsInTheWay(error)) taken = TakeOnce(free.requests);
  // Another transaction was in the way of one lease again, or one row cannot be advanced: take each
  // lease alone.
  if (!taken.ok() && db_ != nullptr) {
    states_.clear();
    taken = Singly(free.requests);
  }
  if (!taken.ok()) return taken;
  free.PutInto(leases, taken.value());
  return leases;
}

// Begins with the tag that had no turn the last time: rows that are locked cost a second each, and
// must not keep the tags behind them waiting without end.
Result<Store::LeaseResults> MysqlStore::Singly(const std::vector<LeaseRequest>& requests) {
  EndTurn();  // this takes long
  const auto next =
      std::find_if(requests.begin(), requests.end(),
                   [this](const LeaseRequest& request) { return request.tag == next_in_row_; });
  const auto first = static_cast<std::size_t>(next - requests.begin()) % requests.size();
  next_in_row_.clear();
  LeaseResults singly;
  for (const LeaseRequest& request : requests) singly.emplace_back(NotYet(request.tag));
  TimeBudget tries;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t place = (first + i) % requests.size();
    if (!tries.GoesOn()) {
      next_in_row_ = requests[place].tag;
      break;
    }
    singly[place] = TakeSingly(requests[place]);
    if (!singly[place].ok() && db_ == nullptr) return GiveUp(singly, singly[place].status());
    if (singly[place].status().code() == Code::kInvalid) {
      refused_.insert_or_assign(requests[place].tag, MonotonicClock::now() + kApart);
    }
  }
  return singly;
}

Result<Lease> MysqlStore::TakeSingly(const LeaseRequest& request) {
  bool has_moved = false;  // or another error than the guard's came, which says nothing of the row
  std::optional<std::uint64_t> seen;
  Result<LeaseResults> lease = TakeOnce({request});
  for (int tries = 1; !lease.ok(); ++tries) {
    if (db_ == nullptr) return lease.status();
    const unsigned error = db_->last_error();
    const std::optional<std::uint64_t> next_id = NextIdOf(request.tag);
    has_moved |=
        error != sql::kNullRefused || !next_id.has_value() || (tries > 1 && next_id != seen);
    seen = next_id;
    if (!IsInTheWay(error)) return lease.status().WithContext("tag '" + request.tag + "'");
    if (tries == kTries - 1 || HasWaited(error)) break;
    states_.clear();
    lease = TakeOnce({request});
  }
  if (lease.ok()) return std::move(lease.value().front());
  if (db_->last_error() != sql::kNullRefused) {
    return lease.status().WithContext("tag '" + request.tag + "'");
  }
  // Below a ceiling that is near, each host asks for all that is left, so one is in the way of the
  // other again and again.
  if (has_moved) return WasTakenMeanwhile(request.tag);
  if (Status status = CheckGuard(); !status.ok()) return status;
  if (request.is_of_worker) {
    const Result<bool> owns = workers().Owns(request.tag);
    if (!owns.ok()) return owns.status();
    if (!owns.value()) return NoOwner(request.tag);
  }
  states_.clear();
  if (const Result<TagStates> states = StatesOf({request.tag}); !states.ok()) {
    return Failed(states.status());
  }
  if (NextIdOf(request.tag) != seen) return WasTakenMeanwhile(request.tag);
  return Status(Code::kInvalid, "leaf_alloc.max_id of tag '" + request.tag + "' in " +
                                    DisplayUrl() +
                                    " did not advance; look for triggers on the table");
}

// As it was read last; nothing if it was not.
std::optional<std::uint64_t> MysqlStore::NextIdOf(const std::string& tag) const {
  const auto state = states_.find(tag);
  if (state == states_.end() || !state->second.ok()) return std::nullopt;
  return state->second.value().record.next_id;
}

// Ends a batch that fails as a whole: the leases that it took before are not used, and are
// abandoned.
Status MysqlStore::GiveUp(const std::vector<Result<Lease>>& taken, Status status) {
  std::vector<std::string> tokens;
  for (const Result<Lease>& lease : taken) {
    if (lease.ok()) tokens.push_back(lease.value().token);
  }
  NoteLost(tokens);
  return status;
}

Result<MysqlStore::TagStates> MysqlStore::StatesOf(const std::vector<std::string>& tags) {
  const MonotonicTime oldest = MonotonicClock::now() - kStateLife;
  std::vector<std::string> stale;
  for (const std::string& tag : tags) {
    const auto it = states_.find(tag);
    // That a tag is used up is a final answer, so it is never made from a state that was kept:
    // another host may have raised max_id or handed ids back.
    const bool is_fresh = it != states_.end() && it->second.ok() &&
                          it->second.value().read_at > oldest && !it->second.value().IsUsedUp();
    if (!is_fresh) stale.push_back(tag);
  }
  if (!stale.empty()) {
    Result<TagStates> read = ReadTags(stale);
    if (!read.ok()) return read;
    for (auto& [tag, state] : read.value()) states_.insert_or_assign(tag, std::move(state));
  }
  TagStates found;
  for (const std::string& tag : tags) {
    const auto it = states_.find(tag);
    found.insert_or_assign(tag, it->second);
    if (!it->second.ok()) states_.erase(it);  // clients choose the names, so failures are not kept
  }
  return found;
}

Result<Store::LeaseResults> MysqlStore::TakeOnce(const std::vector<LeaseRequest>& requests) {
  std::vector<std::string> tags;
  tags.reserve(requests.size());
  for (const LeaseRequest& request : requests) tags.push_back(request.tag);
  const Result<TagStates> states = StatesOf(tags);
  if (!states.ok()) return Failed(states.status());
  LeaseResults leases;
  std::vector<Advance> advances;
  std::vector<std::size_t> places;  // of the advances in `leases`
  std::vector<std::pair<std::size_t, const ReturnedTail*>> tails;
  for (const LeaseRequest& request : requests) {
    const Result<TagState>& state = states.value().find(request.tag)->second;
    Status status = CheckLeaseRequest(request);
    if (status.ok()) status = state.status();
    if (!status.ok()) {
      leases.emplace_back(std::move(status));
      continue;
    }
    if (const ReturnedTail* const tail = state.value().LowestFor(request)) {
      tails.emplace_back(leases.size(), tail);
      leases.emplace_back(Status(Code::kSystem, "not leased yet"));
      continue;
    }
    Result<Advance> advance = Plan(request, state.value());
    if (advance.ok()) {
      places.push_back(leases.size());
      advances.push_back(advance.value());
    }
    leases.emplace_back(advance.ok() ? Status(Code::kSystem, "not leased yet") : advance.status());
  }
  // Each worker id has an owner to check (RunAdvances).
  const bool has_worker = std::any_of(requests.begin(), requests.end(),
                                      [](const LeaseRequest& one) { return one.is_of_worker; });
  if (has_worker && advances.size() > 1) return Singly(requests);
  if (!advances.empty()) {
    Result<LeaseResults> advanced = RunAdvances(advances);
    if (!advanced.ok()) return advanced.status();
    for (std::size_t i = 0; i < places.size(); ++i) {
      leases[places[i]] = std::move(advanced.value()[i]);
    }
  }
  TimeBudget tries;
  for (const auto& [place, tail] : tails) {
    leases[place] = tries.GoesOn() ? TakeBack(requests[place], *tail) : NotYet(requests[place].tag);
    if (db_ == nullptr) return GiveUp(leases, leases[place].status());
  }
  return leases;
}

// A returned range counts only at or above the mark. All ids that this host took back and handed
// out lie below the mark, so a list from a restored backup cannot be served twice. A range above
// max_id shows that max_id was moved by hand; an advance lifts max_id first.
const MysqlStore::ReturnedTail* MysqlStore::TagState::LowestFor(const LeaseRequest& request) const {
  if (request.rises) return nullptr;
  const std::uint64_t lowest = std::max({request.floor, request.high_water_mark, tombstone});
  for (const ReturnedTail& tail : returned) {
    const bool fits = tail.ids.first >= lowest && tail.ids.limit <= record.max_id + 1 &&
                      tail.ids.limit <= record.next_id;
    if (fits) return &tail;
  }
  return nullptr;
}

// The guard of a statement that leases: connection, server, tables and term are the same as at the
// last look, and the server is not read-only (a user with all rights could write to a read-only
// one). It locks the rows of the term and of this host until the COMMIT: a new term, and a host
// that takes this one's name, wait until the lease is known, however long the statement has waited
// for the tag's row.
std::string MysqlStore::IsGuarded() const {
  const Term& term = term_.term;
  return std::string(IsWritable()) +
         " AND (SELECT COUNT(*) FROM idd_term JOIN idd_host JOIN idd_meta WHERE idd_term.id = 1"
         " AND idd_term.number = " +
         std::to_string(term.number) + " AND idd_term.witness = " + MysqlDb::Text(term.witness) +
         " AND idd_term.identity = " + MysqlDb::Text(term_.is_current ? term_.identity : "-") +
         " AND " + HasOwnRows() + " LOCK IN SHARE MODE) = 1";
}

// The condition under which a lease may be taken. A host that takes the worker id over waits for
// the lease's COMMIT, because it locks the counter's row first, as the lease does.
std::string MysqlStore::OwnsWorker(const LeaseRequest& request) const {
  if (!request.is_of_worker) return "";
  const std::optional<CounterOf> counter = ParseCounterName(request.tag);
  if (!counter.has_value()) return " AND 1 = 0";
  return " AND (SELECT COUNT(*) FROM idd_worker WHERE biz_tag = " + MysqlDb::Text(counter->tag) +
         " AND worker = " + std::to_string(counter->worker) +
         " AND host = " + MysqlDb::Text(options_.host.id) + " LOCK IN SHARE MODE) = 1";
}

Result<MysqlStore::Advance> MysqlStore::Plan(const LeaseRequest& request, const TagState& state) {
  const std::uint64_t lowest =
      std::max({state.record.used_limit, request.high_water_mark, request.floor});
  const std::uint64_t base = std::max(state.record.next_id, lowest);
  if (base > state.record.max_id) {
    return Status(Code::kOutOfIds, "tag '" + request.tag + "' is used up: the next id would be " +
                                       std::to_string(base) + ", its largest allowed id is " +
                                       std::to_string(state.record.max_id));
  }
  const std::uint64_t most =
      std::min(state.record.max_id + 1, state.record.ceiling.value_or(shm::kMaxLimit));
  if (base >= most) {
    return Status(Code::kUnavailable, "tag '" + request.tag + "': ids from " +
                                          std::to_string(base) +
                                          " on may not be leased until a majority of the "
                                          "witnesses has noted the tag's next ceiling");
  }
  return Advance{.request = &request,
                 .seen = state.record.next_id,
                 .lowest = lowest,
                 .count = std::min(request.count, most - base),
                 .most = most};
}

// One packet: the advances, relative and guarded; the journal's rows, made from the new max_ids,
// which this transaction has locked; and COMMIT. If not each of them was advanced, the journal
// refuses the NULL token and nothing changes. (MySQL counts a row that a trigger has kept as it
// was.) The read of a row has checked that its name is the tag's, byte by byte. A row finds its
// numbers in lists, by the place of its tag: a CASE would compare the name with all tags for each
// number. (LAST_INSERT_ID() would be lost in a trigger on the table, such as that of a schema
// change.) Returns what was journalled.
Result<Store::LeaseResults> MysqlStore::RunAdvances(const std::vector<Advance>& advances) {
  std::vector<std::string> tags;
  std::vector<std::string> tokens;
  sql::List lowest;
  sql::List count;
  sql::List seen;
  sql::List most;
  for (const Advance& advance : advances) {
    tags.push_back(advance.request->tag);
    tokens.push_back(advance.request->token);
    lowest.Add(advance.lowest);
    count.Add(advance.count);
    seen.Add(advance.seen);
    most.Add(advance.most - advance.count);
  }
  const std::string place = sql::PlaceOfTag(tags);
  const std::string where = " WHERE biz_tag IN " + sql::Texts(tags);
  const std::string ids = count.NumberAt(place);
  const Result<std::vector<MysqlResult>> results = db_->Transaction(
      {"UPDATE leaf_alloc SET max_id = GREATEST(max_id, " + lowest.NumberAt(place) + ") + " + ids +
           where + " AND max_id BETWEEN " + seen.NumberAt(place) + " AND " + most.NumberAt(place) +
           sql::HasNoTombstoneAbove(tags, lowest.NumberAt(place)) +
           OwnsWorker(*advances.front().request) + " AND " + IsGuarded(),
       "INSERT INTO idd_lease(token, biz_tag, host, base, `limit`) SELECT IF(ROW_COUNT() = " +
           std::to_string(advances.size()) + " AND max_id - " + ids +
           " >= " + seen.NumberAt(place) + " AND " + tables_.AreSame() + ", ELT(" + place + ", " +
           sql::Words(tokens) + "), NULL), CONVERT(biz_tag USING utf8mb4), " +
           MysqlDb::Text(options_.host.id) + ", max_id - " + ids + ", max_id FROM leaf_alloc" +
           where},
      {"SELECT token, base, `limit` FROM idd_lease WHERE token IN (" + sql::Words(tokens) + ")"});
  if (!results.ok()) return LeaseFailed(results.status(), tokens, tags.front());
  std::map<std::string, shm::IdRange, std::less<>> journalled;
  for (const auto& cells : results.value().back().rows) {
    const MysqlRow row(cells);
    journalled[row.TextIf(0).value_or("")] = {row.UintIf(1).value_or(0), row.UintIf(2).value_or(0)};
  }
  if (journalled.empty()) {
    if (Status status = CheckIdentity(); !status.ok()) return status;
  }
  LeaseResults leases;
  for (const Advance& advance : advances) {
    if (journalled.empty()) states_.erase(advance.request->tag);  // the rows were deleted
    leases.push_back(journalled.empty() ? NoSuchTag(advance.request->tag)
                                        : Granted(advance, journalled[advance.request->token]));
  }
  return leases;
}

Status MysqlStore::LeaseFailed(const Status& status, const std::vector<std::string>& tokens,
                               const std::string& tag) {
  if (!db_->outcome_unknown()) return Failed(status);
  NoteLost(tokens);
  db_.reset();
  return status.WithContext("the outcome of a lease of tag '" + tag +
                            "' is unknown and its range is lost");
}

// The lease, if it is as requested. A trigger may have changed it.
Result<Lease> MysqlStore::Granted(const Advance& advance, shm::IdRange ids) {
  const LeaseRequest& request = *advance.request;
  const bool is_sound = ids.first < ids.limit && ids.size() == advance.count &&
                        ids.first >= std::max(advance.lowest, advance.seen) &&
                        ids.limit <= advance.most;
  if (!is_sound) {
    NoteLost({request.token});
    return Status(Code::kInvalid, "the journal of tag '" + request.tag + "' in " + DisplayUrl() +
                                      " does not have what was leased; look for triggers");
  }
  last_token_ = request.token;
  const auto state = states_.find(request.tag);
  if (state != states_.end() && state->second.ok()) {
    state->second.value().record.next_id = ids.limit;
  }
  Lease lease{.token = request.token, .tag = request.tag, .ids = ids};
  if (advance.lowest > advance.seen && ids.first == advance.lowest) {
    lease.lifted_from = advance.seen;
  }
  return lease;
}

Result<Lease> MysqlStore::TakeBack(const LeaseRequest& request, const ReturnedTail& tail) {
  const std::string range = std::to_string(tail.ids.first) + ", " + std::to_string(tail.ids.limit);
  const Result<std::vector<MysqlResult>> results = db_->Transaction(
      {"DELETE FROM idd_returned WHERE token = " + MysqlDb::Text(tail.token) + " AND host = " +
           MysqlDb::Text(options_.host.id) + " AND base = " + std::to_string(tail.ids.first) +
           " AND `limit` = " + std::to_string(tail.ids.limit) +
           sql::HasNoTombstoneAbove({request.tag}, std::to_string(tail.ids.first)) + " AND " +
           IsGuarded(),
       "INSERT INTO idd_lease(token, biz_tag, host, base, `limit`) SELECT IF(ROW_COUNT() = 1 AND " +
           tables_.AreSame() + ", '" + request.token + "', NULL), " + MysqlDb::Text(request.tag) +
           ", " + MysqlDb::Text(options_.host.id) + ", " + range});
  states_.erase(request.tag);
  if (!results.ok() && db_->last_error() == sql::kNullRefused && !db_->outcome_unknown()) {
    if (Status status = CheckTables(); !status.ok()) return status;
    return Status(Code::kTimeout, "a returned range of tag '" + request.tag +
                                      "' was taken by another lease; it is tried again");
  }
  if (!results.ok()) return LeaseFailed(results.status(), {request.token}, request.tag);
  last_token_ = request.token;
  return Lease{.token = request.token, .tag = request.tag, .ids = tail.ids, .from_returned = true};
}

}  // namespace idd::daemon
