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

Status SqliteStore::TransactionIsGone() const {
  return {Code::kInvalid, "a row of " + DisplayUrl() + " has ended a transaction of many changes"};
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
  std::vector<TagMark> marks;
  for (const auto& [tag, next] : continuity_.witness().state().next) {
    marks.push_back({.tag = tag, .mark = next});
  }
  set_back_.emplace();
  if (Status status = LiftToMarks(marks, *set_back_); !status.ok()) return status;
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
    is_changing_ = true;
    if (joined.value() == Join::kWasSetBack) done = LiftToWitness();
    if (done.ok()) done = JournalHost();
    if (done.ok()) done = AbandonLost();
    is_changing_ = false;
    if (done.ok()) done = continuity_.Stamp(*db_);
    if (!done.ok()) return done;
    return joined;
  });
  if (join.status().code() == Code::kInvalid) avoids_rows_ = true;
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

// --- tags

// The witness knew less than this host, so it may also lack what the other hosts know.
void SqliteStore::NoteForgotten(const TagMark& mark) {
  if (mark.mark > *NextInWitness(mark.tag)) is_explained_ = false;
}

void SqliteStore::NoteChange(const std::string& tag, std::uint64_t least) {
  if (least != 0) continuity_.Raise(tag, least);
}

Status SqliteStore::NoteLowered(const LeaseClosure& closure, std::uint64_t next) {
  Status status =
      continuity_.witness().Announce({.token = closure.token, .tag = closure.tag, .next = next});
  if (!status.ok()) return status;
  continuity_.Lower(closure.tag, next);
  AtPoint("return.announced");
  return Status::Ok();
}

Result<TagRecord> SqliteStore::ReadTag(const std::string& tag) {
  const auto query = Query(SelectTags() + " WHERE a.biz_tag = ?1", {tag});
  // A hand-made column may compare without case and so find another tag.
  while (query->Next()) {
    if (query->TextIf(0) != tag) continue;
    Result<TagRecord> record = ParseTag(*query);
    if (!record.ok()) return record;
    record.value().used_limit = *NextInWitness(tag);
    return record;
  }
  if (!query->Finish().ok()) return query->Finish();
  return NoSuchTag(tag);
}

Result<Store::TagResults> SqliteStore::FindTags(const std::vector<std::string>& tags) {
  if (!db_) return NotOpen();
  TagResults records;
  for (const std::string& tag : tags) records.push_back(ReadTag(tag));
  // A tag that is not found may lose its ring, so first check that the log was not replaced under
  // the reader.
  if (Status status = db_->CheckNotReplaced(); !status.ok()) return status;
  return records;
}

}  // namespace idd::daemon
