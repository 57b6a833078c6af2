// SPDX-License-Identifier: Apache-2.0
#include "sql/sqlite_db.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "idd/base/check.h"
#include "idd/base/error_text.h"
#include "idd/shm/abi.h"
#include "platform/path_error.h"

namespace idd::daemon {
namespace {

static_assert(SQLITE_VERSION_NUMBER >= 3037000, "STRICT tables need SQLite 3.37");

constexpr int kSynchronousFull = 2;
// A connection that only reads works for kWork at most before it pauses for kPause. It looks at the
// clock after kSteps of SQLite's virtual machine, some microseconds.
constexpr std::chrono::microseconds kWork(200);
constexpr std::chrono::microseconds kPause(100);
constexpr int kSteps = 100;
// More than idd has different statements for one file.
constexpr std::size_t kMaxIdleStatements = 128;

Code CodeOf(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:  // lost the race for the WAL locks too often
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Code::kUnavailable;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
    case SQLITE_SCHEMA:
      return Code::kIncompatible;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
    case SQLITE_TOOBIG:
      return Code::kInvalid;
    default:
      return Code::kSystem;
  }
}

// Why this user cannot write the file or make files beside it; "" if it can.
std::string WhyNotWritable(const std::string& path) {
  if (::access(path.c_str(), R_OK | W_OK) != 0 && errno != ENOENT) return PathError(path, errno);
  const std::string beside = path + "-wal";
  if (::access(DirectoryOf(path).c_str(), W_OK | X_OK) != 0) return PathError(beside, errno);
  return "";
}

std::string AdviceFor(int sqlite_code, const std::string& path) {
  if (sqlite_code == SQLITE_CONSTRAINT_NOTNULL) return "; give the column a default value";
  switch (sqlite_code & 0xff) {
    case SQLITE_CONSTRAINT:
      return "; a constraint or a trigger of the table refuses the row";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "; another process holds its lock";
    case SQLITE_FULL:
      return "; free space on its file system";
    case SQLITE_IOERR:
      return "; check the disk, its quota, the process's limit of a file's size (LimitFSIZE=, "
             "ulimit -f), and the kernel log";
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CANTOPEN: {
      const std::string why = WhyNotWritable(path);
      if (!why.empty()) return "; " + why;
      return "; the file and its directory must be writable for idd's user";
    }
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return "; restore it from a backup; idd does not overwrite it";
    default:
      return "";
  }
}

// SQLite treats names like ":memory:" and "file:..." specially, but not a path with a directory.
std::string AsPlainPath(const std::string& path) {
  return path.starts_with('/') ? path : "./" + path;
}

// Whether the directory of the file is there.
bool HasDirectory(const std::string& path) {
  struct stat info {};
  return ::stat(DirectoryOf(path).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status MissingFile(const std::string& path) {
  if (!HasDirectory(path)) {
    return {Code::kUnavailable, "the database file '" + path + "' is missing: " +
                                    PathError(path, ENOENT) + ", and restore the file"};
  }
  return {Code::kUnavailable, "the database file '" + path +
                                  "' is missing; restore it, or make a new one on purpose: 'idctl "
                                  "store init'"};
}

std::optional<SqliteDb::FileId> FileAt(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return SqliteDb::FileId{.device = info.st_dev, .inode = info.st_ino};
}

// Whether the file itself is mounted at `path`, which has no links. False if /proc cannot be read.
bool IsMountPoint(const std::string& path) {
  std::string escaped;  // as the kernel writes it
  for (const char byte : path) {
    switch (byte) {
      case ' ':
        escaped += "\\040";
        break;
      case '\t':
        escaped += "\\011";
        break;
      case '\n':
        escaped += "\\012";
        break;
      case '\\':
        escaped += "\\134";
        break;
      default:
        escaped += byte;
    }
  }
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    std::istringstream fields(line);
    std::string field;
    constexpr int kMountPoint = 5;
    for (int i = 0; i < kMountPoint; ++i) fields >> field;
    if (field == escaped) return true;
  }
  return false;
}

// Whether this process has the file open; true if /proc cannot be read. Between the open and the
// stat, another file may have got the name; that file must not be taken for the opened one.
bool IsOpenHere(SqliteDb::FileId file) {
  std::error_code error;
  std::filesystem::directory_iterator fds("/proc/self/fd", error);
  if (error) return true;
  // Looks at the paths, not the numbers: other threads may close their descriptors meanwhile.
  for (; fds != std::filesystem::directory_iterator(); fds.increment(error)) {
    if (FileAt(fds->path()) == file) return true;
  }
  return static_cast<bool>(error);
}

}  // namespace

// --- SqliteQuery

SqliteQuery::SqliteQuery(SqliteDb& db, std::string_view sql) : db_(&db) {
  int code = SQLITE_OK;
  statement_ = db.TakeStatement(sql, code);
  CheckBound(code);
}

SqliteQuery::SqliteQuery(SqliteQuery&& other) noexcept
    : SqlQuery(std::move(other.status_)),
      db_(other.db_),
      statement_(std::exchange(other.statement_, nullptr)),
      done_(other.done_) {}

SqliteQuery::~SqliteQuery() {
  if (status_.ok()) {
    db_->GiveBack(statement_);
  } else {
    sqlite3_finalize(statement_);
  }
}

void SqliteQuery::CheckBound(int code) {
  if (code != SQLITE_OK && status_.ok()) Fail(code);
}

// The file is sound: a trigger cannot be compiled or has failed, or a number was too large.
void SqliteQuery::Fail(int code) {
  status_ = db_->ErrorStatus(code);
  if ((code & 0xff) != SQLITE_ERROR) return;
  status_ = {Code::kInvalid, status_.message() + "; look for triggers on the table"};
}

void SqliteQuery::Bind(int index, std::uint64_t value) {
  IDD_CHECK(value <= shm::kMaxLimit);
  if (!status_.ok()) return;
  CheckBound(sqlite3_bind_int64(statement_, index, static_cast<sqlite3_int64>(value)));
}

void SqliteQuery::Bind(int index, std::string_view value) {
  if (!status_.ok()) return;
  // An empty view may have no address, which SQLite would take for NULL.
  const char* data = value.empty() ? "" : value.data();
  const auto copy_it = SQLITE_TRANSIENT;
  CheckBound(sqlite3_bind_text64(statement_, index, data, value.size(), copy_it, SQLITE_UTF8));
}

void SqliteQuery::Bind(int index, const std::optional<std::string>& value) {
  if (value.has_value()) return Bind(index, std::string_view{*value});
  if (status_.ok()) CheckBound(sqlite3_bind_null(statement_, index));
}

bool SqliteQuery::Next() {
  if (!status_.ok() || done_) return false;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  done_ = true;
  if (code != SQLITE_DONE) Fail(code);
  return false;
}

bool SqliteQuery::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::optional<std::uint64_t> SqliteQuery::UintIf(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return std::nullopt;
  const sqlite3_int64 value = sqlite3_column_int64(statement_, column);
  if (value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

std::optional<std::string> SqliteQuery::TextIf(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return std::nullopt;
  const void* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return std::nullopt;  // out of memory
  const int bytes = sqlite3_column_bytes(statement_, column);
  return std::string(static_cast<const char*>(text), static_cast<std::size_t>(bytes));
}

std::string SqliteQuery::Describe(int column) const {
  switch (sqlite3_column_type(statement_, column)) {
    case SQLITE_INTEGER:
      return std::to_string(sqlite3_column_int64(statement_, column));
    case SQLITE_FLOAT:
      return "the real number " + std::to_string(sqlite3_column_double(statement_, column));
    case SQLITE_TEXT:
      return "a text";
    case SQLITE_BLOB:
      return "a blob";
    default:
      return "NULL";
  }
}

std::string SqliteQuery::Place(int column) const {
  return "column " + std::string(sqlite3_column_name(statement_, column)) + " in '" + db_->path() +
         "'";
}

int SqliteQuery::arguments() const noexcept {
  return statement_ == nullptr ? 0 : sqlite3_bind_parameter_count(statement_);
}

// --- SqliteDb

SqliteDb::SqliteDb(const std::string& path) : path_(AsPlainPath(path)) {}

// Closing must not copy the log of a replaced file over the file that is now in place, nor delete
// that file's log by its name. A damaged file stays as it is for the operator who repairs it.
SqliteDb::~SqliteDb() {
  if (handle_ != nullptr && (is_damaged_ || !CheckNotReplaced().ok())) {
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  }
  for (const auto& [sql, statement] : idle_statements_) sqlite3_finalize(statement);
  sqlite3_close_v2(handle_);
}

sqlite3_stmt* SqliteDb::TakeStatement(std::string_view sql, int& code) {
  if (const auto idle = idle_statements_.find(sql); idle != idle_statements_.end()) {
    return idle_statements_.extract(idle).mapped();
  }
  sqlite3_stmt* statement = nullptr;
  code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                            SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  return statement;
}

void SqliteDb::GiveBack(sqlite3_stmt* statement) noexcept {
  if (statement == nullptr) return;
  const std::string_view sql = sqlite3_sql(statement);
  // A PRAGMA may do its work while it is compiled.
  const bool may_be_kept = idle_statements_.size() < kMaxIdleStatements &&
                           !sql.starts_with("PRAGMA") && !idle_statements_.contains(sql);
  if (may_be_kept && sqlite3_reset(statement) == SQLITE_OK) {
    sqlite3_clear_bindings(statement);
    try {
      idle_statements_.emplace(sql, statement);
      return;
    } catch (const std::bad_alloc&) {  // compiled again next time
    }
  }
  sqlite3_finalize(statement);
}

Result<std::unique_ptr<SqliteDb>> SqliteDb::Open(const std::string& path,
                                                 const SqliteFormat& format) {
  std::unique_ptr<SqliteDb> db(new SqliteDb(path));
  if (Status status = db->OpenFile(format.may_create); !status.ok()) return status;
  // Checked before anything is written, so that another program's file stays as it is.
  Result<bool> is_new = db->Identify(format);
  if (!is_new.ok()) return is_new.status();
  if (format.check_pages) {
    if (Status status = db->CheckPages(); !status.ok()) return status;
  }
  if (Status status = db->MakeDurable(); !status.ok()) return status;
  if (is_new.value()) {
    if (Status status = db->CreateSchema(format); !status.ok()) return status;
    // So that the file is a database even if it loses its log.
    sqlite3_wal_checkpoint_v2(db->handle_, "main", SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  }
  if (format.is_shared) {
    if (Status status = db->RememberLog(); !status.ok()) return status;
  }
  // Only now is the file known to be ours, so closing it may copy the log into it.
  sqlite3_db_config(db->handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  return db;
}

Result<std::unique_ptr<SqliteDb>> SqliteDb::OpenToRead(const std::string& path,
                                                       SqliteFormat format) {
  format.may_create = false;
  std::unique_ptr<SqliteDb> db(new SqliteDb(path));
  if (Status status = db->OpenFile(format.may_create); !status.ok()) return status;
  if (Status status = db->Run("PRAGMA query_only = 1"); !status.ok()) return status;
  sqlite3_progress_handler(db->handle_, kSteps, PauseFromWork, db.get());
  if (Result<bool> is_new = db->Identify(format); !is_new.ok()) return is_new.status();
  return db;
}

Status SqliteDb::OpenFile(bool may_create) {
  // If SQLite found an empty file here, it would delete the log of the missing one.
  struct stat before {};
  const bool is_there = ::stat(path_.c_str(), &before) == 0;
  if (!may_create && (is_there ? before.st_size == 0 : errno == ENOENT)) return MissingFile(path_);
  const int create = may_create ? SQLITE_OPEN_CREATE : 0;
  const int flags = SQLITE_OPEN_READWRITE | create | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path_.c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) {
    if (HasDirectory(path_)) return ErrorStatus(code);
    return {Code::kUnavailable, "cannot open '" + path_ + "': " + PathError(path_, ENOENT)};
  }
  sqlite3_busy_handler(handle_, WaitWhileBusy, this);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  // Anyone may have written the file: its views and triggers may not call functions that write.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  if (sqlite3_db_readonly(handle_, "main") != 0) return ErrorStatus(SQLITE_READONLY);
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) return ErrorStatus(SQLITE_CANTOPEN);
  file_ = {.device = info.st_dev, .inode = info.st_ino};
  if (Status status = CheckNotMounted(); !status.ok()) return status;
  return CheckNotReplaced();
}

Result<bool> SqliteDb::Identify(const SqliteFormat& format) {
  SqliteQuery query = Query(
      "SELECT (SELECT application_id FROM pragma_application_id),"
      "       (SELECT user_version FROM pragma_user_version),"
      "       (SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name GLOB ?1)",
      std::string_view(format.own_tables));
  if (!query.Next()) return query.Finish();
  const std::string application_id = query.Describe(0);
  const std::string version = query.Describe(1);
  const bool has_own_tables = query.Uint(2) != 0;
  if (!query.Finish().ok()) return query.Finish();
  const std::string name = "'" + path_ + "'";
  if (application_id == "0" && version == "0" && !has_own_tables) {
    if (Status status = format.check_adoptable(*this); !status.ok()) return status;
    if (format.may_create) return true;
    return MissingFile(path_).WithContext(name + " is empty or without idd's tables");
  }
  if (application_id != std::to_string(format.application_id)) {
    return Status(Code::kIncompatible, name + " is not " + format.what +
                                           " but belongs to another program (application_id " +
                                           application_id + ", user_version " + version +
                                           "); idd leaves it alone; name another file");
  }
  if (version != std::to_string(format.version)) {
    return Status(Code::kIncompatible,
                  name + " has schema version " + version + ", this idd knows version " +
                      std::to_string(format.version) + "; use the idd that made it");
  }
  if (Status status = format.check_complete(*this); !status.ok()) return status;
  return false;
}

Status SqliteDb::CheckPages(BulkTable bulk) {
  SqliteQuery size =
      Query("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
  const std::uint64_t bytes = size.Next() ? size.Uint(0) : 0;
  if (!size.Finish().ok()) return size.Finish();
  if (bulk.name == nullptr || bytes <= bulk.of_files_above) return QuickCheck("1");
  SqliteQuery query =
      Query("SELECT quote(name) FROM sqlite_schema WHERE type = 'table' AND name <> ?1",
            std::string_view(bulk.name));
  std::vector<std::string> tables;
  while (query.Next()) tables.push_back(query.Text(0));
  if (!query.Finish().ok()) return query.Finish();
  for (const std::string& table : tables) {
    if (Status status = QuickCheck(table); !status.ok()) return status;
  }
  return Status::Ok();
}

// `what`: the number of findings to stop at, or a quoted table.
Status SqliteDb::QuickCheck(const std::string& what) {
  SqliteQuery query = Query("PRAGMA quick_check(" + what + ")");
  const std::string finding = query.Next() ? query.Text(0) : "";
  if (!query.Finish().ok()) return query.Finish();
  if (finding == "ok") return Status::Ok();
  return ErrorStatus(SQLITE_CORRUPT).WithContext(finding);
}

// WAL with synchronous=FULL: an answered commit is on the disk. NORMAL loses the last commits in a
// power cut, and a lost lease would be leased again.
Status SqliteDb::MakeDurable() {
  SqliteQuery mode = Query("PRAGMA journal_mode = WAL");
  const std::string journal_mode = mode.Next() ? mode.Text(0) : "";
  if (!mode.Finish().ok()) return mode.Finish();
  // A log that had grown becomes small again when it is begun again. A statement's own journal
  // would be a temporary file in another directory, which may be full.
  if (Status status = Execute(
          "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;"
          "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;"
          "PRAGMA journal_size_limit = 16777216;");
      !status.ok()) {
    return status;
  }
  SqliteQuery level = Query("PRAGMA synchronous");
  const std::uint64_t synchronous = level.Next() ? level.Uint(0) : 0;
  if (!level.Finish().ok()) return level.Finish();
  if (journal_mode == "wal" && synchronous == kSynchronousFull) return Status::Ok();
  return {Code::kUnavailable, "'" + path_ + "' cannot be used durably: journal_mode is '" +
                                  journal_mode + "' instead of 'wal' and synchronous " +
                                  std::to_string(synchronous) +
                                  " instead of 2; put it on a local file system"};
}

Status SqliteDb::CreateSchema(const SqliteFormat& format) {
  return InTransaction([&]() -> Status {
    // Another process may have created the schema first.
    Result<bool> is_new = Identify(format);
    if (!is_new.ok()) return is_new.status();
    if (!is_new.value()) return Status::Ok();
    const std::string identity =
        "PRAGMA application_id = " + std::to_string(format.application_id) +
        "; PRAGMA user_version = " + std::to_string(format.version) + ";";
    if (Status status = Execute(identity.c_str()); !status.ok()) return status;
    if (Status status = Execute(format.schema); !status.ok()) return status;
    return format.check_complete(*this);
  });
}

// SQLite compares the inode of its descriptor with that of the resolved path. The second check is
// of the path as it was given, which may be a link or lie below a mount point. Neither detects a
// file that was overwritten in place; the high-water marks do.
Status SqliteDb::CheckNotReplaced() const {
  int has_moved = 0;
  const int code = sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
  struct stat info {};
  if (code != SQLITE_OK || has_moved != 0 || ::stat(path_.c_str(), &info) != 0 ||
      FileId{.device = info.st_dev, .inode = info.st_ino} != file_) {
    return {
        Code::kUnavailable,
        "'" + path_ + "': the database file was replaced, moved or deleted while idd had it open"};
  }
  // Each name has a log of its own, so two names are two databases that do not know each other.
  if (info.st_nlink > 1) {
    return {Code::kUnavailable, "'" + path_ + "' has " + std::to_string(info.st_nlink) +
                                    " names (hard links), each with a log of its own, so ids "
                                    "could be leased twice; remove all names but one, which find "
                                    "-samefile lists"};
  }
  if (log_.inode == 0) return Status::Ok();
  // A VACUUM, or the restore of a smaller dump, is no damage. Nothing in the file tells it from
  // one, and to open the file again is right for both.
  if (info.st_size < size_) {
    return {Code::kUnavailable,
            "'" + path_ + "': the database file became smaller while idd had it open"};
  }
  size_ = info.st_size;
  if (FileAt(LogPath()) == log_ && FileAt(SharedMemoryPath()) == shared_memory_) {
    return Status::Ok();
  }
  return {Code::kUnavailable,
          "'" + path_ + "': its -wal or -shm was replaced or deleted while idd had it open"};
}

std::string SqliteDb::LogPath() const {
  return sqlite3_filename_wal(sqlite3_db_filename(handle_, "main"));
}

std::string SqliteDb::SharedMemoryPath() const {
  return std::string(sqlite3_db_filename(handle_, "main")) + "-shm";
}

std::uint64_t SqliteDb::LogBytes() const {
  struct stat info {};
  return ::stat(LogPath().c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

Status SqliteDb::RememberLog() {
  // The first read after a change of the journal mode opens the log and the shared memory.
  if (Status status = Run("SELECT count(*) FROM sqlite_schema"); !status.ok()) return status;
  const std::optional<FileId> log = FileAt(LogPath());
  const std::optional<FileId> shared_memory = FileAt(SharedMemoryPath());
  if (!log || !shared_memory || !IsOpenHere(*log) || !IsOpenHere(*shared_memory)) {
    return {Code::kUnavailable,
            "'" + path_ + "': its -wal or -shm was deleted while idd opened the database"};
  }
  log_ = *log;
  shared_memory_ = *shared_memory;
  return Status::Ok();
}

Status SqliteDb::CheckNotMounted() const {
  const std::string file = sqlite3_db_filename(handle_, "main");
  if (!IsMountPoint(file)) return Status::Ok();
  return {Code::kUnavailable,
          "'" + path_ +
              "' is a mount point, so the file has another name elsewhere, with "
              "a log of its own, and ids could be leased twice; mount its "
              "directory instead of the file"};
}

Result<SqliteDb::Place> SqliteDb::FindPlace() const {
  const std::filesystem::path path = sqlite3_db_filename(handle_, "main");
  struct statx file {};
  struct stat directory {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &file) != 0 ||
      ::stat(path.parent_path().c_str(), &directory) != 0) {
    return Status::FromErrno(errno, "looking at '" + path_ + "' and its directory");
  }
  // File systems use an inode's number again, but not within the same nanosecond.
  return Place{.file = std::to_string(file.stx_ino) + " " + std::to_string(file.stx_btime.tv_sec) +
                       "." + std::to_string(file.stx_btime.tv_nsec),
               .directory = std::to_string(directory.st_ino),
               .path = path.string()};
}

bool SqliteDb::HasNoLog(const Place& place) {
  struct stat directory {};
  const std::filesystem::path path = place.path;
  return ::stat(path.parent_path().c_str(), &directory) == 0 &&
         std::to_string(directory.st_ino) == place.directory &&
         !FileAt(place.path + "-wal").has_value();
}

void SqliteDb::CopyLog() noexcept {
  sqlite3_wal_checkpoint_v2(handle_, "main", SQLITE_CHECKPOINT_FULL, nullptr, nullptr);
}

void SqliteDb::RescueLog() {
  struct stat info {};
  if (FileAt(path_) != file_ || ::stat(path_.c_str(), &info) != 0 || info.st_size < size_) return;
  if (FileAt(LogPath()) == log_) return;
  if (::stat(LogPath().c_str(), &info) == 0 && info.st_size != 0) return;
  sqlite3_wal_checkpoint_v2(handle_, "main", SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
}

void SqliteDb::RemoveStaleSharedMemory(const std::string& path) noexcept {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::canonical(path, error);
  if (error) return;
  if (FileAt(resolved.string() + "-wal").has_value()) return;
  ::unlink((resolved.string() + "-shm").c_str());
}

// A thread that becomes ready while another one works on its processor may wait until that one's
// time slice is over, which is 3 ms with few processors. Leases must not wait that long for a
// report.
int SqliteDb::PauseFromWork(void* db) noexcept {
  SqliteDb& self = *static_cast<SqliteDb*>(db);
  if (MonotonicClock::now() - self.works_since_ < kWork) return 0;
  std::this_thread::sleep_for(kPause);
  self.works_since_ = MonotonicClock::now();
  return 0;
}

// SQLite's own handler soon retries only every 100 ms, so writers that retry at once would starve
// it.
int SqliteDb::WaitWhileBusy(void* db, int calls) noexcept {
  SqliteDb& self = *static_cast<SqliteDb*>(db);
  const MonotonicTime now = MonotonicClock::now();
  if (calls == 0) self.busy_until_ = now + kSqliteBusyTimeout;
  if (now >= self.busy_until_) return 0;
  constexpr int kMaxPauseMs = 5;
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(1 + calls / 8, kMaxPauseMs)));
  return 1;
}

Status SqliteDb::Execute(const char* script) {
  const int code = sqlite3_exec(handle_, script, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status::Ok() : ErrorStatus(code);
}

Status SqliteDb::Begin() {
  if (commit_outcome_unknown_ || sqlite3_get_autocommit(handle_) == 0) {
    return {Code::kUnavailable, "'" + path_ + "' must be opened again after a failed transaction"};
  }
  const Status begun = Execute("BEGIN IMMEDIATE");
  // Checked after BEGIN, so that nothing is written to a file that will never be read. To SQLite, a
  // file that was emptied is damaged.
  Status status = CheckNotReplaced();
  if (status.ok()) status = begun;
  if (!status.ok()) Rollback();
  return status;
}

Status SqliteDb::Commit() {
  const int code = sqlite3_exec(handle_, "COMMIT", nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) {
    // If the file was replaced since BEGIN, the commit is in a file that is gone.
    Status status = CheckNotReplaced();
    commit_outcome_unknown_ = !status.ok();
    return status;
  }
  Status status = ErrorStatus(code);
  if (sqlite3_get_autocommit(handle_) == 0) {
    Rollback();  // still open, hence certainly not committed
    return status;
  }
  // SQLite gave the transaction up, but its frames may already be in the log, and the next process
  // that recovers the log may find them valid.
  commit_outcome_unknown_ = true;
  return status;
}

// If this fails, the transaction stays open, which Begin() notices.
void SqliteDb::Rollback() noexcept {
  if (sqlite3_get_autocommit(handle_) != 0) return;
  sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

bool SqliteDb::has_transaction() const noexcept { return sqlite3_get_autocommit(handle_) == 0; }

std::int64_t SqliteDb::changes() const noexcept { return sqlite3_changes64(handle_); }

Status SqliteDb::ErrorStatus(int code) const {
  // Without a handle (out of memory), or for a code that is not SQLite's last one, errmsg does not
  // apply.
  const bool is_last = handle_ != nullptr && sqlite3_extended_errcode(handle_) == code;
  std::string message = "'" + path_ + "': ";
  message += is_last ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  message += " (SQLite code " + std::to_string(code) + ")";
  const int error = is_last ? sqlite3_system_errno(handle_) : 0;
  const int primary = code & 0xff;
  // Any file that SQLite opens may be the one too many, and then the file's rights are not why.
  if (error == EMFILE || error == ENFILE) return {CodeOf(code), message + ": " + ErrorText(error)};
  // After a refusal SQLite tries something else, whose error says nothing about the cause.
  if (error != 0 && primary == SQLITE_IOERR) message += ": " + ErrorText(error);
  if (CodeOf(code) == Code::kIncompatible) is_damaged_ = true;
  return {CodeOf(code), message + AdviceFor(code, path_)};
}

}  // namespace idd::daemon
