// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite/sqlite_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/logging.h"
#include "platform/random.h"
#include "store/sqlite/sqlite_schema.h"
#include "store/tag_row.h"

namespace idd::daemon {
SqliteStore::SqliteStore(SqliteStoreOptions options) : options_(std::move(options)) {}

SqliteStore::~SqliteStore() = default;

std::string SqliteStore::DisplayUrl() const { return std::string(kSqliteScheme) + options_.path; }

Status SqliteStore::NotOpen() const {
  return {Code::kUnavailable, "the allocator " + DisplayUrl() + " is not open"};
}

void SqliteStore::AtPoint(const char* point) const {
  if (options_.at_point) options_.at_point(point);
}

// --- the witness

void SqliteStore::BeginChange() {
  next_.clear();
  is_granting_ = false;
  is_untold_ = false;
}

Result<SqliteStore::Stamps> SqliteStore::ReadStamps() {
  SqliteQuery query = db_->Query(
      "SELECT coalesce((SELECT value FROM idd_meta WHERE key = 'stamp'), ''),"
      "       coalesce((SELECT value FROM idd_meta WHERE key = 'previous_stamp'), '')");
  Stamps stamps;
  if (query.Next()) stamps = {.last = query.Text(0), .previous = query.Text(1)};
  if (!query.Finish().ok()) return query.Finish();
  return stamps;
}

// The stamp is random and written by every transaction that grants ids, so the database has it only
// if it knows all of them. It may be one ahead of the witness: that host died in between, and has
// answered nobody.
Status SqliteStore::CheckContinues() {
  const SqliteWitness::State& known = witness_.state();
  if (known.line.empty() || known.line != line_) {
    return {Code::kUnavailable, "'" + db_->path() +
                                    "' was set back, as another idd or its witness says; it is "
                                    "opened again"};
  }
  Result<Stamps> stamps = ReadStamps();
  if (!stamps.ok()) return stamps.status();
  stamp_ = std::move(stamps.value().last);
  const bool is_known = !stamp_.empty() && !known.stamp.empty();
  if (is_known && stamp_ == known.stamp) return ConfirmHandBack();
  if (is_known && stamps.value().previous == known.stamp) return AdoptAll();
  return {Code::kUnavailable, "'" + db_->path() + "' was set back: it lacks leases that '" +
                                  witness_.path() + "' knows; it is opened again"};
}

// Its daemon died before it could say so. Nothing was granted since, and the holder had given the
// tail up before it was announced: whatever the tables say, no host has these ids.
Status SqliteStore::ConfirmHandBack() {
  const SqliteWitness::State& known = witness_.state();
  if (!known.announced.has_value()) return Status::Ok();
  const SqliteWitness::HandBack& last = *known.announced;
  SqliteQuery query = db_->Query(
      "SELECT 1 FROM idd_lease AS l JOIN leaf_alloc AS a ON a.biz_tag = l.biz_tag"
      " WHERE l.token = ?1 AND l.biz_tag = ?2 AND l.state = 'returned'"
      "  AND l.base + l.claimed = ?3 AND typeof(a.max_id) = 'integer' AND a.max_id = ?3"
      "  AND NOT EXISTS (SELECT 1 FROM idd_returned AS r WHERE r.token = l.token)",
      last.token, last.tag, last.next);
  const bool was_committed = query.Next();
  if (!query.Finish().ok()) return query.Finish();
  if (!was_committed) return Status::Ok();
  return witness_.Append(
      {.line = known.line, .stamp = known.stamp, .next = {{last.tag, last.next}}},
      SqliteWitness::Durability::kWritten);
}

Status SqliteStore::AdoptAll() {
  SqliteQuery query = db_->Query("SELECT biz_tag, max_id FROM leaf_alloc");
  while (query.Next()) {
    const std::optional<std::string> tag = query.TextIf(0);
    const std::optional<std::uint64_t> next = query.UintIf(1);
    if (!tag.has_value() || !next.has_value()) continue;  // nothing is leased from such a row
    if (*next > witness_.NextOf(*tag)) next_[*tag] = *next;
  }
  is_granting_ = true;
  return query.Finish();
}

Status SqliteStore::Stamp() {
  if (!is_granting_) return Status::Ok();
  std::string stamp = RandomToken();
  Status status = db_->Run(
      "INSERT INTO idd_meta(key, value) VALUES('previous_stamp', ?1), ('stamp', ?2)"
      " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
      stamp_, stamp);
  if (status.ok()) stamp_ = std::move(stamp);
  return status;
}

// What only went back need not be durable: a witness that is too high makes a gap.
Status SqliteStore::TellWitness() {
  if (!is_granting_ && next_.empty()) return Status::Ok();
  Status status = witness_.Append(
      {.line = line_, .stamp = stamp_, .next = next_},
      is_granting_ ? SqliteWitness::Durability::kSynced : SqliteWitness::Durability::kWritten);
  is_untold_ = !status.ok();
  return status;
}

Status SqliteStore::CheckWitness() {
  if (Status status = witness_.Lock(); !status.ok()) return Status::Ok();  // another idd leases
  const WitnessHold hold(witness_);
  BeginChange();
  return CheckContinues();
}

// --- opening

std::chrono::milliseconds SqliteStore::reconcile_window() const {
  return is_explained_ ? std::chrono::milliseconds(0) : Store::reconcile_window();
}

// The last word of who has a deleted log open: nothing else has what is in it.
void SqliteStore::Rescue() {
  if (!db_ || witness_.state().line != line_) return;
  BeginChange();
  if (CheckContinues().ok()) db_->RescueLog();
}

Status SqliteStore::OpenFile() {
  Result<bool> is_there = witness_.LockIfThere();
  const WitnessHold hold(witness_);
  if (is_there.ok() && is_there.value()) Rescue();
  db_.reset();
  SqliteFormat format = AllocatorFormat();
  // Not under the lock: it takes as long as the file is large.
  format.check_pages = false;
  format.may_create = may_create_ && witness_.state().next.empty();
  if (witness_.is_locked()) SqliteDb::RemoveStaleSharedMemory(options_.path);
  Result<std::unique_ptr<SqliteDb>> db = SqliteDb::Open(options_.path, format);
  if (!db.ok()) {
    if (!may_create_ || format.may_create) return db.status();
    return db.status().WithContext("ids were leased from it, as '" + witness_.path() + "' says");
  }
  if (!is_there.ok()) return is_there.status();
  db_ = std::move(db).value();
  return Status::Ok();
}

// The answer: the line of the data set. What is lifted is committed before the witness forgets that
// it had to be.
Result<std::string> SqliteStore::JoinLine() {
  const SqliteWitness::State& known = witness_.state();
  Result<Stamps> stamps = ReadStamps();
  if (!stamps.ok()) return stamps.status();
  stamp_ = stamps.value().last;
  is_witness_lost_ = known.line.empty() && !stamp_.empty();
  Status status;
  const bool is_known = !known.stamp.empty() && !stamp_.empty();
  if (is_known && stamp_ == known.stamp) {
    if (status = ConfirmHandBack(); !status.ok()) return status;
    return known.line;
  }
  if (is_known && stamps.value().previous == known.stamp) {
    status = AdoptAll();
    if (status.ok()) return known.line;
  } else if (known.line.empty() || known.next.empty()) {
    status = AdoptAll();
  } else {
    status = LiftToWitness();
  }
  if (!status.ok()) return status;
  return RandomToken();
}

// What the database lacks: the tags stand where the witness says, and what it lists as returned may
// have been taken again since.
Status SqliteStore::LiftToWitness() {
  set_back_.emplace();
  for (const auto& [tag, next] : witness_.state().next) {
    if (Status status = RemindOfMark({.tag = tag, .mark = next}, *set_back_); !status.ok()) {
      return status;
    }
  }
  set_back_->forgot_leases = true;
  for (const char* sql :
       {"UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
        " WHERE token IN (SELECT token FROM idd_returned)",
        "DELETE FROM idd_returned"}) {
    if (Status status = db_->Run(sql); !status.ok()) return status;
  }
  return AdoptAll();
}

Status SqliteStore::Open() {
  // Looked at while the old file is still open: another one cannot have its inode.
  struct stat info {};
  const bool is_there = ::stat(options_.path.c_str(), &info) == 0;
  if (!is_there || file_ != SqliteDb::FileId{.device = info.st_dev, .inode = info.st_ino}) {
    file_.reset();
  }
  witness_.SetDatabase(options_.path);
  Status status = OpenFile();
  if (status.ok() && !file_.has_value()) status = db_->CheckPages();
  if (status.ok()) {
    may_create_ = false;
    status = OpenLine();
  }
  if (!status.ok()) {
    db_.reset();
    return status;
  }
  lost_tokens_.clear();
  looked_ = MonotonicClock::now();
  return status;
}

Status SqliteStore::OpenToRead() {
  Result<std::unique_ptr<SqliteDb>> db = SqliteDb::OpenToRead(options_.path, AllocatorFormat());
  if (!db.ok()) return db.status();
  db_ = std::move(db).value();
  return Status::Ok();
}

Status SqliteStore::OpenLine() {
  if (Status status = witness_.Lock(); !status.ok()) return status;
  const WitnessHold hold(witness_);
  witness_.ShareLike(options_.path);
  BeginChange();
  set_back_.reset();
  Result<std::string> line = db_->InTransaction([this]() -> Result<std::string> {
    Result<std::string> joined = JoinLine();
    if (!joined.ok()) return joined;
    Status done = JournalHost();
    if (done.ok()) done = AbandonLostLeases();
    if (done.ok()) done = Stamp();
    if (!done.ok()) return done;
    return joined;
  });
  if (!line.ok()) return line.status();
  const std::string before = std::exchange(line_, std::move(line).value());
  if (Status status = TellWitness(); !status.ok()) {
    line_ = before;
    return status;
  }
  is_explained_ = !is_witness_lost_ && (set_back_.has_value() || !before.empty());
  if (file_ != db_->file_id() || (!before.empty() && line_ != before)) ++generation_;
  file_ = db_->file_id();
  if (is_witness_lost_) {
    log::Warning("store.witness_lost", {{"database", options_.path}, {"witness", witness_.path()}});
  }
  if (set_back_.has_value()) {
    log::Error("store.set_back", {{"database", options_.path},
                                  {"lifted_tags", set_back_->lifted.size()},
                                  {"action", "every tag stands above what any host was granted"}});
  }
  return Status::Ok();
}

// The files are looked at each time, what is in them once a second: leases look by themselves.
Status SqliteStore::CheckCurrent() {
  if (!db_) return NotOpen();
  Status status = db_->CheckNotReplaced();
  if (status.ok()) status = witness_.CheckCurrent();
  constexpr std::chrono::seconds kBetweenLooks(1);
  const MonotonicTime now = MonotonicClock::now();
  if (status.ok() && now - looked_ >= kBetweenLooks) {
    status = CheckWitness();
    if (status.ok()) looked_ = now;
  }
  if (!status.ok()) log::Warning("store.not_current", {{"reason", status.message()}});
  return status;
}

Status SqliteStore::JournalHost() {
  return db_->Run(
      "INSERT INTO idd_host(host) VALUES(?1)"
      " ON CONFLICT(host) DO UPDATE SET last_seen = CURRENT_TIMESTAMP",
      options_.host_id);
}

Status SqliteStore::AbandonLostLeases() {
  for (const std::string& token : lost_tokens_) {
    Status status = db_->Run(
        "UPDATE idd_lease SET state = 'abandoned', abandoned = \"limit\" - base,"
        " closed_at = CURRENT_TIMESTAMP WHERE token = ?1 AND host = ?2 AND state = 'active'",
        token, options_.host_id);
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

Result<std::string> SqliteStore::Incarnation() {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query("SELECT value FROM idd_meta WHERE key = 'incarnation'");
  const std::string incarnation = query.Next() ? query.Text(0) : "";
  if (!query.Finish().ok()) return query.Finish();
  if (!incarnation.empty()) return incarnation;
  return Status(Code::kIncompatible, "'" + db_->path() + "' has no incarnation in idd_meta; " +
                                         "restore it from a backup");
}

// --- leasing

Result<Store::LeaseResults> SqliteStore::TakeLeases(const std::vector<LeaseRequest>& requests) {
  if (!db_) return NotOpen();
  Result<LeaseResults> leases = Change([&] { return LeaseInTransaction(requests); });
  if (leases.ok()) {
    AtPoint("lease.committed");
    return leases;
  }
  // Committed, perhaps, and never answered; not in the witness, which the next grant corrects.
  if (!db_->commit_outcome_unknown() && !is_untold_) return leases;
  for (const LeaseRequest& request : requests) lost_tokens_.push_back(request.token);
  return leases.status().WithContext("the outcome of a lease of tag '" + requests.front().tag +
                                     "' is unknown and its range is lost");
}

Result<Store::LeaseResults> SqliteStore::LeaseInTransaction(
    const std::vector<LeaseRequest>& requests) {
  LeaseResults leases;
  for (const LeaseRequest& request : requests) {
    if (Status status = CheckLeaseRequest(request); !status.ok()) {
      leases.emplace_back(std::move(status));
      continue;
    }
    if (Status status = db_->Run("SAVEPOINT one"); !status.ok()) return status;
    Result<Lease> lease = LeaseOne(request);
    const Code code = lease.status().code();
    const bool is_its_own =
        code == Code::kNoSuchTag || code == Code::kInvalid || code == Code::kOutOfIds;
    if (!lease.ok() && !is_its_own) return lease.status();
    Status status = lease.ok() ? Status::Ok() : db_->Run("ROLLBACK TO one");
    if (status.ok()) status = db_->Run("RELEASE one");
    if (!status.ok()) return status;
    leases.push_back(std::move(lease));
  }
  return leases;
}

Result<Lease> SqliteStore::LeaseOne(const LeaseRequest& request) {
  AtPoint("lease.begun");
  Result<TagRecord> tag = ReadTag(request.tag);
  if (!tag.ok()) return tag.status();
  Result<std::optional<Lease>> taken = TakeBack(request, tag.value());
  if (!taken.ok()) return taken.status();
  Result<Lease> lease = taken.value().has_value() ? *taken.value() : Advance(request, tag.value());
  if (!lease.ok()) return lease;
  AtPoint(lease.value().from_returned ? "lease.taken_back" : "lease.advanced");
  const shm::IdRange ids = lease.value().ids;
  Status status = db_->Run(
      "INSERT INTO idd_lease(token, biz_tag, host, base, \"limit\") VALUES(?1, ?2, ?3, ?4, ?5)",
      request.token, request.tag, options_.host_id, ids.first, ids.limit);
  if (status.ok()) status = JournalHost();
  if (!status.ok()) return status;
  AtPoint("lease.journalled");
  next_[request.tag] = std::max(lease.value().from_returned ? tag.value().next_id : ids.limit,
                                witness_.NextOf(request.tag));
  is_granting_ = true;
  return lease;
}

// A returned range counts only at or above the mark: whatever this host took back and handed out
// lies below it, so a list of returned ranges from a restored backup can not be served twice. One
// above max_id says that max_id was moved by hand; Advance() lifts it first.
Result<std::optional<Lease>> SqliteStore::TakeBack(const LeaseRequest& request,
                                                   const TagRecord& tag) {
  const std::uint64_t lowest = std::max(request.floor, request.high_water_mark);
  SqliteQuery query = db_->Query(
      "SELECT token, base, \"limit\" FROM idd_returned"
      " WHERE biz_tag = ?1 AND host = ?2 AND base >= ?3 AND \"limit\" <= ?4 AND \"limit\" <= ?5"
      " ORDER BY base LIMIT 1",
      request.tag, options_.host_id, lowest, tag.max_id + 1, tag.next_id);
  if (!query.Next()) {
    if (!query.Finish().ok()) return query.Finish();
    return std::optional<Lease>();
  }
  const std::string returned_token = query.Text(0);
  Lease lease{.token = request.token,
              .tag = request.tag,
              .ids = {query.Uint(1), query.Uint(2)},
              .from_returned = true};
  if (lease.ids.empty()) query.Reject(2, "a number above base");
  if (!query.Finish().ok()) {
    return query.Finish().WithContext("idd_returned of tag '" + request.tag + "'");
  }
  Status status = db_->Run("DELETE FROM idd_returned WHERE token = ?1", returned_token);
  if (!status.ok()) return status;
  return std::optional<Lease>(std::move(lease));
}

// max_id is advanced relatively, from the highest of itself and all that this host, the daemon, the
// journal and a tombstone know to be used: lifting only makes gaps.
Result<Lease> SqliteStore::Advance(const LeaseRequest& request, const TagRecord& tag) {
  Result<std::uint64_t> used = UsedLimit(request.tag);
  if (!used.ok()) return used.status();
  const std::uint64_t lowest = std::max(
      {used.value(), request.high_water_mark, request.floor, witness_.NextOf(request.tag)});
  const std::uint64_t base = std::max(tag.next_id, lowest);
  if (base > tag.max_id) {
    return Status(Code::kOutOfIds, "tag '" + request.tag + "' is used up: the next id would be " +
                                       std::to_string(base) + ", its largest allowed id is " +
                                       std::to_string(tag.max_id));
  }
  const std::uint64_t count = std::min(request.count, tag.max_id - base + 1);
  const std::uint64_t limit = base + count;
  Status status = db_->Run(
      "UPDATE leaf_alloc SET max_id = MAX(max_id, ?2) + ?3, update_time = CURRENT_TIMESTAMP"
      " WHERE biz_tag = ?1 AND typeof(max_id) = 'integer' AND max_id BETWEEN 0 AND ?4 - ?3"
      " AND ?2 <= ?4 - ?3",
      request.tag, lowest, count, tag.max_id + 1);
  if (!status.ok()) return status;
  const bool advanced = db_->changes() == 1;
  // A trigger or a column of another type may have made something else of it.
  Result<TagRecord> after = ReadTag(request.tag);
  if (!after.ok()) return after.status();
  if (!advanced || after.value().next_id != limit) {
    return Status(Code::kInvalid,
                  "leaf_alloc.max_id of tag '" + request.tag + "' in " + DisplayUrl() +
                      " did not advance to " + std::to_string(limit) + " but is " +
                      std::to_string(after.value().next_id) + "; look for triggers on the table");
  }
  Lease lease{.token = request.token, .tag = request.tag, .ids = {base, limit}};
  if (base > tag.next_id) lease.lifted_from = tag.next_id;
  return lease;
}

Result<std::uint64_t> SqliteStore::UsedLimit(const std::string& tag) {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT MAX(coalesce((SELECT max_id FROM idd_deleted_tag WHERE biz_tag = ?1), 0),"
      "           coalesce((SELECT used_limit FROM idd_lease WHERE biz_tag = ?1"
      "                     ORDER BY used_limit DESC LIMIT 1), 0),"
      "           coalesce((SELECT MAX(\"limit\") FROM idd_returned WHERE biz_tag = ?1), 0))",
      tag);
  const std::uint64_t used = query.Next() ? query.Uint(0) : 0;
  if (!query.Finish().ok()) {
    return query.Finish().WithContext(
        "the ids in idd_lease, idd_returned and idd_deleted_tag of tag '" + tag + "'");
  }
  return used;
}

// --- handing back

Result<ReturnOutcome> SqliteStore::ReturnTail(const LeaseClosure& closure) {
  if (!db_) return NotOpen();
  if (closure.state != LeaseState::kReturned) {
    return Status(Code::kInvalid, "lease " + closure.token + " of tag '" + closure.tag +
                                      "' is handed back in state 'returned' only");
  }
  Result<std::optional<ReturnOutcome>> outcome =
      Change([&] { return ReturnInTransaction(closure); });
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

Result<std::optional<ReturnOutcome>> SqliteStore::ReturnInTransaction(const LeaseClosure& closure) {
  AtPoint("return.begun");
  Result<std::optional<shm::IdRange>> found = FindActive(closure);
  if (!found.ok()) return found.status();
  if (!found.value().has_value()) return std::optional(ReturnOutcome::kStale);
  const shm::IdRange ids = *found.value();
  if (closure.claimed >= ids.size()) {
    return Status(Code::kInvalid, "nothing is left of " + RangeText(ids) + " after " +
                                      std::to_string(closure.claimed) + " claimed ids");
  }
  // Nothing below the tombstone goes back: it was a deleted tag's, whose successor must not be
  // lowered under the place where it began, or another generator's, above which the tag was lifted.
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
    Result<ReturnOutcome> given = GiveBack(closure, {ids.first + closure.claimed, ids.limit});
    if (!given.ok()) return given.status();
    outcome = given.value();
    AtPoint("return.given_back");
  }
  if (Status status = JournalEnd(end, ids); !status.ok()) return status;
  AtPoint("return.journalled");
  return outcome;
}

Result<ReturnOutcome> SqliteStore::GiveBack(const LeaseClosure& closure, shm::IdRange tail) {
  // No host has leased after it only where the witness says so too.
  Status status;
  if (witness_.NextOf(closure.tag) == tail.limit) {
    status = db_->Run(
        "UPDATE leaf_alloc SET max_id = ?2, update_time = CURRENT_TIMESTAMP"
        " WHERE biz_tag = ?1 AND typeof(max_id) = 'integer' AND max_id = ?3",
        closure.tag, tail.first, tail.limit);
    if (!status.ok()) return status;
    if (db_->changes() == 1) {
      status = witness_.Announce({.token = closure.token, .tag = closure.tag, .next = tail.first});
      if (!status.ok()) return status;
      next_[closure.tag] = tail.first;
      return ReturnOutcome::kLowered;
    }
  }
  status = db_->Run(
      "INSERT INTO idd_returned(token, biz_tag, host, base, \"limit\") VALUES(?1, ?2, ?3, ?4, ?5)",
      closure.token, closure.tag, options_.host_id, tail.first, tail.limit);
  if (!status.ok()) return status;
  return ReturnOutcome::kListed;
}

// --- what this host knows and the data set may not

namespace {

std::string TokensJson(const std::vector<Lease>& leases) {
  nlohmann::json tokens = nlohmann::json::array();
  for (const Lease& lease : leases) tokens.push_back(lease.token);
  return tokens.dump();
}

}  // namespace

Result<Reconciliation> SqliteStore::Reconcile(const HostMemory& memory) {
  if (!db_) return NotOpen();
  Result<Reconciliation> reconciliation = Change([&]() -> Result<Reconciliation> {
    Reconciliation found = set_back_.value_or(Reconciliation{});
    for (const TagMark& mark : memory.marks) {
      if (Status status = RemindOfMark(mark, found); !status.ok()) return status;
    }
    for (const Lease& lease : memory.held) {
      if (Status status = RemindOfLease(lease, found); !status.ok()) return status;
    }
    const std::string held = TokensJson(memory.held);
    for (const Lease& lease : found.restored) {
      if (memory.from_other_data_set) break;  // what its own leases share with these came twice
      if (Status status = CloseWhatPreceded(lease, held); !status.ok()) return status;
    }
    AtPoint("remind.reconciliation");
    return found;
  });
  if (!reconciliation.ok()) return reconciliation;
  AtPoint("remind.committed");
  set_back_.reset();
  return reconciliation;
}

Status SqliteStore::RemindOfMark(const TagMark& mark, Reconciliation& reconciliation) {
  const Result<TagRecord> tag = ReadTag(mark.tag);
  // An invalid row will be fixed by hand, perhaps to less than the mark: as if not there.
  const bool has_row = tag.ok();
  if (!has_row && tag.status().code() != Code::kNoSuchTag &&
      tag.status().code() != Code::kInvalid) {
    return tag.status();
  }
  const Result<std::uint64_t> used = UsedLimit(mark.tag);
  if (!used.ok()) return used.status();
  const std::uint64_t stands_at = has_row ? tag.value().next_id : used.value();
  if (stands_at >= mark.mark) return Status::Ok();
  Status status = has_row
                      ? db_->Run(
                            "UPDATE leaf_alloc SET max_id = ?2, update_time = CURRENT_TIMESTAMP"
                            " WHERE biz_tag = ?1 AND typeof(max_id) = 'integer' AND max_id < ?2",
                            mark.tag, mark.mark)
                      : db_->Run(
                            "INSERT INTO idd_deleted_tag(biz_tag, max_id) VALUES(?1, ?2)"
                            " ON CONFLICT(biz_tag) DO UPDATE SET max_id = excluded.max_id",
                            mark.tag, mark.mark);
  if (!status.ok()) return status;
  reconciliation.lifted.push_back({.tag = mark.tag, .from = stands_at, .to = mark.mark});
  next_[mark.tag] = std::max(mark.mark, witness_.NextOf(mark.tag));
  is_granting_ = true;  // as durable as a lease
  if (std::max(stands_at, used.value()) >= mark.mark) return Status::Ok();
  reconciliation.forgot_leases = true;
  // The witness knew less than this host: what it does not know of the others, only they do.
  if (mark.mark > witness_.NextOf(mark.tag)) is_explained_ = false;
  return Status::Ok();
}

Status SqliteStore::RemindOfLease(const Lease& lease, Reconciliation& reconciliation) {
  SqliteQuery known = db_->Query("SELECT 1 FROM idd_lease WHERE token = ?1", lease.token);
  const bool is_known = known.Next();
  if (!known.Finish().ok() || is_known) return known.Finish();
  reconciliation.forgot_leases = true;
  reconciliation.restored.push_back(lease);
  restored_tokens_.insert(lease.token);  // whether this commits or not
  return db_->Run(
      "INSERT INTO idd_lease(token, biz_tag, host, base, \"limit\") VALUES(?1, ?2, ?3, ?4, ?5)",
      lease.token, lease.tag, options_.host_id, lease.ids.first, lease.ids.limit);
}

// An older copy may still list ids of the lease as returned, or have leases of ours as active whose
// ids these are: what they had from here on was given back, or it would not have been leased again.
// What became of the rest of them is not known.
Status SqliteStore::CloseWhatPreceded(const Lease& lease, const std::string& held) {
  Status status = db_->Run(
      "DELETE FROM idd_returned WHERE biz_tag = ?1 AND host = ?2 AND base < ?4 AND \"limit\" > ?3",
      lease.tag, options_.host_id, lease.ids.first, lease.ids.limit);
  if (!status.ok()) return status;
  return db_->Run(
      "UPDATE idd_lease SET state = 'returned', returned = \"limit\" - MAX(base, ?3),"
      " abandoned = MAX(base, ?3) - base, closed_at = CURRENT_TIMESTAMP"
      " WHERE biz_tag = ?1 AND host = ?2 AND state = 'active'"
      " AND token NOT IN (SELECT value FROM json_each(?5))"
      " AND base < ?4 AND \"limit\" > ?3",
      lease.tag, options_.host_id, lease.ids.first, lease.ids.limit, held);
}

}  // namespace idd::daemon
