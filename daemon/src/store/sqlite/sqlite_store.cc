// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite/sqlite_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/logging.h"
#include "store/sqlite/sqlite_schema.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// To read the ended leases of years takes as long as ten seconds for ten million. No lease depends
// on them: where the ids of each tag end is in other tables as well. `idctl audit --full` reads
// them.
constexpr SqliteDb::BulkTable kBulk = {.name = "idd_ended", .of_files_above = 64 << 20};

}  // namespace

SqliteStore::SqliteStore(SqliteStoreOptions options)
    : SqlStore(Dialect::kSqlite, options.host_id, "host = ?1"), options_(std::move(options)) {}

SqliteStore::~SqliteStore() = default;

std::string SqliteStore::DisplayUrl() const { return std::string(kSqliteScheme) + options_.path; }

Status SqliteStore::NotOpen() const {
  return {Code::kUnavailable, "the allocator " + DisplayUrl() + " is not open"};
}

void SqliteStore::AtPoint(const char* point) const {
  if (options_.at_point) options_.at_point(point);
}

// --- the witness

Status SqliteStore::CheckWitness() {
  // If the lock is taken, another idd is leasing and has checked.
  if (Status status = continuity_.witness().Lock(); !status.ok()) return Status::Ok();
  const WitnessHold hold(continuity_.witness());
  continuity_.Begin();
  return continuity_.Check(*db_);
}

// --- opening

std::chrono::milliseconds SqliteStore::reconcile_window() const {
  return is_explained_ ? std::chrono::milliseconds(0) : Store::reconcile_window();
}

// Saves the contents of a deleted log that is still open here: no other copy of them exists.
void SqliteStore::Rescue() {
  if (!db_ || continuity_.witness().state().line != continuity_.line()) return;
  continuity_.Begin();
  if (continuity_.Check(*db_).ok()) db_->RescueLog();
}

Status SqliteStore::OpenFile() {
  SqliteWitness& witness = continuity_.witness();
  Result<bool> is_there = witness.LockIfThere();
  const WitnessHold hold(witness);
  if (is_there.ok() && is_there.value()) Rescue();
  db_.reset();
  SqliteFormat format = AllocatorFormat();
  // The pages are not checked under the lock: that takes time in proportion to the file's size.
  format.check_pages = false;
  const bool is_wanted = std::exchange(is_new_allowed_, false);
  format.may_create = may_create_ && (is_wanted || witness.state().next.empty());
  if (witness.is_locked()) SqliteDb::RemoveStaleSharedMemory(options_.path);
  Result<std::unique_ptr<SqliteDb>> db = SqliteDb::Open(options_.path, format);
  if (!db.ok()) {
    if (!may_create_ || format.may_create) return db.status();
    return db.status().WithContext("ids were leased from it, as '" + witness.path() + "' says");
  }
  if (!is_there.ok()) return is_there.status();
  db_ = std::move(db).value();
  return Status::Ok();
}

// Adds what the database lacks: lifts the tags to the witness's next ids, and gives up the listed
// returned ranges, which may have been leased again since.
Status SqliteStore::LiftToWitness() {
  set_back_.emplace();
  for (const auto& [tag, next] : continuity_.witness().state().next) {
    if (Status status = LiftToMark({.tag = tag, .mark = next}, *set_back_); !status.ok()) {
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
  return continuity_.AdoptTags(*db_);
}

Status SqliteStore::Open() {
  // Checked while the old file is still open, so that a new file cannot have its inode.
  struct stat info {};
  const bool is_there = ::stat(options_.path.c_str(), &info) == 0;
  if (!is_there || file_ != SqliteDb::FileId{.device = info.st_dev, .inode = info.st_ino}) {
    file_.reset();
  }
  continuity_.witness().SetDatabase(options_.path);
  Status status = OpenFile();
  if (status.ok() && !file_.has_value()) status = db_->CheckPages(kBulk);
  if (status.ok()) {
    may_create_ = false;
    status = JoinWitness();
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

// A lift is committed before the witness forgets that it was needed.
Status SqliteStore::JoinWitness() {
  SqliteWitness& witness = continuity_.witness();
  if (Status status = witness.Lock(); !status.ok()) return status;
  const WitnessHold hold(witness);
  witness.ShareLike(options_.path);
  continuity_.Begin();
  set_back_.reset();
  using Join = SqliteContinuity::Join;
  const Result<Join> join = db_->InTransaction([this]() -> Result<Join> {
    Result<Join> joined = continuity_.JoinWitness(*db_);
    if (!joined.ok()) return joined;
    Status done;
    if (joined.value() == Join::kWasSetBack) done = LiftToWitness();
    if (done.ok()) done = JournalHost();
    if (done.ok()) done = AbandonLostLeases();
    if (done.ok()) done = continuity_.Stamp(*db_);
    if (!done.ok()) return done;
    return joined;
  });
  if (join.status().code() == Code::kInvalid) lifts_ = RowChange::kAvoided;
  if (!join.ok()) return join.status();
  const std::string before = continuity_.line();
  if (Status status = continuity_.RecordJoin(join.value()); !status.ok()) return status;
  // The file must say where it lies even if it loses its log.
  if (continuity_.is_new_place()) db_->CopyLog();
  const bool is_witness_lost = continuity_.is_witness_lost();
  is_explained_ = !is_witness_lost && (set_back_.has_value() || !before.empty());
  const bool is_other_line = !before.empty() && continuity_.line() != before;
  if (file_ != db_->file_id() || is_other_line) ++generation_;
  file_ = db_->file_id();
  if (is_witness_lost) {
    log::Warning("store.witness_lost", {{"database", options_.path}, {"witness", witness.path()}});
  }
  if (set_back_.has_value()) {
    log::Error("store.set_back", {{"database", options_.path},
                                  {"lifted_tags", set_back_->lifted.size()},
                                  {"action", "every tag stands above what any host was granted"}});
  }
  return Status::Ok();
}

// Checks the files each time, but their contents only once a second: each lease checks them itself.
Status SqliteStore::CheckCurrent() {
  if (!db_) return NotOpen();
  Status status = db_->CheckNotReplaced();
  if (status.ok()) status = continuity_.witness().CheckCurrent();
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
      " ON CONFLICT(host) DO UPDATE SET last_seen = CURRENT_TIMESTAMP, stopped_at = NULL",
      options_.host_id);
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

Result<std::uint64_t> SqliteStore::UsedLimit(const std::string& tag) {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT MAX(coalesce((SELECT max_id FROM idd_deleted_tag WHERE biz_tag = ?1), 0),"
      "           coalesce((SELECT used_limit FROM idd_lease WHERE biz_tag = ?1"
      "                     ORDER BY used_limit DESC LIMIT 1), 0),"
      "           coalesce((SELECT MAX(used_limit) FROM idd_total WHERE biz_tag = ?1), 0),"
      "           coalesce((SELECT MAX(\"limit\") FROM idd_returned WHERE biz_tag = ?1), 0))",
      tag);
  const std::uint64_t used = query.Next() ? query.Uint(0) : 0;
  if (!query.Finish().ok()) {
    return query.Finish().WithContext(
        "the ids in idd_lease, idd_returned and idd_deleted_tag of tag '" + tag + "'");
  }
  return used;
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
      if (Status status = LiftToMark(mark, found); !status.ok()) return status;
    }
    Reconciliation to_ceilings;
    for (const TagMark& ceiling : memory.ceilings) {
      if (Status status = LiftToMark(ceiling, to_ceilings); !status.ok()) return status;
    }
    found.lifted_to_ceilings = to_ceilings.lifted.size();
    found.refused.insert(found.refused.end(), to_ceilings.refused.begin(),
                         to_ceilings.refused.end());
    for (const Lease& lease : memory.held) {
      if (Status status = RestoreLease(lease, found); !status.ok()) return status;
    }
    const std::string held = TokensJson(memory.held);
    for (const Lease& lease : found.restored) {
      if (memory.from_other_data_set) break;  // ids shared with its own leases were leased twice
      if (Status status = CloseOverlapping(lease, held); !status.ok()) return status;
    }
    AtPoint("remind.reconciliation");
    return found;
  });
  const bool is_refused = reconciliation.status().code() == Code::kInvalid;
  lifts_ = is_refused ? RowChange::kAvoided : RowChange::kAllowed;
  if (!reconciliation.ok()) return reconciliation;
  AtPoint("remind.committed");
  set_back_.reset();
  return reconciliation;
}

Status SqliteStore::LiftToMark(const TagMark& mark, Reconciliation& reconciliation) {
  const Result<TagRecord> tag = ReadTag(mark.tag);
  // An invalid row is treated as missing: an operator will fix it, perhaps to less than the mark.
  const bool has_row = tag.ok();
  if (!has_row && tag.status().code() != Code::kNoSuchTag &&
      tag.status().code() != Code::kInvalid) {
    return tag.status();
  }
  const Result<std::uint64_t> journalled = UsedLimit(mark.tag);
  if (!journalled.ok() && journalled.status().code() != Code::kInvalid) return journalled.status();
  // A row of the journal that makes no sense shows no use.
  const std::uint64_t used = journalled.ok() ? journalled.value() : 0;
  const std::uint64_t stands_at = has_row ? tag.value().next_id : used;
  if (stands_at >= mark.mark) return Status::Ok();
  Status status = has_row ? LiftRow(mark, reconciliation) : Entomb(mark);
  if (!status.ok()) return status;
  reconciliation.lifted.push_back({.tag = mark.tag, .from = stands_at, .to = mark.mark});
  continuity_.Raise(mark.tag, mark.mark);
  if (std::max(stands_at, used) >= mark.mark) return Status::Ok();
  reconciliation.forgot_leases = true;
  // The witness knew less than this host, so it may also lack what the other hosts know.
  if (mark.mark > NextOfWitness(mark.tag)) is_explained_ = false;
  return Status::Ok();
}

Status SqliteStore::LiftRow(const TagMark& mark, Reconciliation& reconciliation) {
  std::string error = "another row has refused a transaction with many changes";
  if (lifts_ == RowChange::kAllowed) {
    Status status = db_->Run(
        "UPDATE leaf_alloc SET max_id = ?2, update_time = CURRENT_TIMESTAMP"
        " WHERE biz_tag = ?1 AND typeof(max_id) = 'integer' AND max_id < ?2",
        mark.tag, mark.mark);
    if (status.ok()) {
      // A trigger may have undone it without an error.
      const Result<TagRecord> after = ReadTag(mark.tag);
      if (!after.ok()) return after.status();
      if (after.value().next_id >= mark.mark) return Status::Ok();
      status = {Code::kInvalid, "max_id did not advance; look for triggers on the table"};
    }
    if (status.code() != Code::kInvalid || !db_->has_transaction()) return status;
    error = status.message();
  }
  reconciliation.refused.push_back({.tag = mark.tag, .mark = mark.mark, .error = error});
  return Entomb(mark);
}

Status SqliteStore::Entomb(const TagMark& mark) {
  return db_->Run(
      "INSERT INTO idd_deleted_tag(biz_tag, max_id) VALUES(?1, ?2)"
      " ON CONFLICT(biz_tag) DO UPDATE SET max_id = MAX(max_id, excluded.max_id)",
      mark.tag, mark.mark);
}

Status SqliteStore::RestoreLease(const Lease& lease, Reconciliation& reconciliation) {
  SqliteQuery known = db_->Query(
      "SELECT 1 FROM idd_lease WHERE token = ?1 UNION ALL"
      " SELECT 1 FROM idd_ended WHERE token = ?1",
      lease.token);
  const bool is_known = known.Next();
  if (!known.Finish().ok() || is_known) return known.Finish();
  reconciliation.forgot_leases = true;
  reconciliation.restored.push_back(lease);
  restored_tokens_.insert(lease.token);  // whether this commits or not
  // A copy that was made before this row is old, whoever granted ids since.
  continuity_.Raise(lease.tag, lease.ids.limit);
  return db_->Run(
      "INSERT INTO idd_lease(token, biz_tag, host, base, \"limit\") VALUES(?1, ?2, ?3, ?4, ?5)",
      lease.token, lease.tag, options_.host_id, lease.ids.first, lease.ids.limit);
}

// An older copy may still list ids of this lease as returned, or still have our earlier leases of
// the same ids as active. Those leases had given back their ids from this lease's base on, or the
// ids would not have been leased again. The fate of their other ids is unknown.
Status SqliteStore::CloseOverlapping(const Lease& lease, const std::string& held) {
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
