// SPDX-License-Identifier: Apache-2.0
//
// SQLite as idd uses it: one durable file, short write transactions, values checked when read. The
// allocator (sqlite_store.h) and this host's high-water marks (high_water.h) share it; nothing else
// in idd calls sqlite3.
#ifndef IDD_DAEMON_SQL_SQLITE_DB_H_
#define IDD_DAEMON_SQL_SQLITE_DB_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "sql/sql_session.h"

struct sqlite3;
struct sqlite3_stmt;

namespace idd::daemon {

class SqliteDb;

// How long a transaction waits for another process's write lock.
inline constexpr std::chrono::milliseconds kSqliteBusyTimeout(2000);

// The format that a file must have before it is used, and how an empty file gets it.
struct SqliteFormat {
  const char* what;             // for messages: "idd's allocator database"
  std::int32_t application_id;  // not 0
  std::int32_t version;         // of the schema, in user_version
  // GLOB over the names of tables. A file without an application id is adopted unless it has a
  // table of such a name: with "idd_*" it may have other tables, with "*" it must be empty.
  const char* own_tables;
  const char* schema;  // SQL; run once, in one transaction with the identity
  // Both only read. The first checks a file without an identity before it is touched; the second
  // checks a file of this format on every opening.
  Status (*check_adoptable)(SqliteDb& db);
  Status (*check_complete)(SqliteDb& db);
  // Whether every page is read when the file is opened, so that damage shows before anything is
  // leased.
  bool check_pages = true;
  // Whether other processes use the file too. If so, each transaction checks that its log and its
  // shared memory are still those that the paths name: SQLite's locks do not exclude a process that
  // has a deleted log open from one that has the new log open, so both could write at once. A
  // process that is alone keeps a deleted log, because closing copies from it what the file lacks.
  bool is_shared = false;
  // Whether a missing, empty or adoptable file gets the schema. If not, it is kUnavailable, because
  // the expected file is missing.
  bool may_create = true;
};

// One statement with its arguments, read row by row.
//
//   SqliteQuery query = db.Query("SELECT host, base FROM ... WHERE tag = ?1", tag);
//   while (query.Next()) use(query.Text(0), query.Uint(1));
//   if (Status status = query.Finish(); !status.ok()) return status;
//
// Lives no longer than its SqliteDb. Thread safety: none.
class SqliteQuery final : public SqlQuery {
 public:
  SqliteQuery(SqliteDb& db, std::string_view sql);
  SqliteQuery(SqliteQuery&& other) noexcept;
  SqliteQuery& operator=(SqliteQuery&&) = delete;
  SqliteQuery(const SqliteQuery&) = delete;
  SqliteQuery& operator=(const SqliteQuery&) = delete;
  ~SqliteQuery() override;

  // Arguments are numbered from 1 and copied. Precondition for numbers: at most 2^63-1.
  void Bind(int index, std::uint64_t value);
  void Bind(int index, std::string_view value);
  void Bind(int index, const std::string& value) { Bind(index, std::string_view(value)); }
  void Bind(int index, const std::optional<std::string>& value);  // nullopt: NULL
  // The highest number of an argument that the statement has.
  [[nodiscard]] int arguments() const noexcept;

  [[nodiscard]] bool Next() override;
  [[nodiscard]] bool IsNull(int column) const override;
  [[nodiscard]] std::optional<std::uint64_t> UintIf(int column) const override;
  [[nodiscard]] std::optional<std::string> TextIf(int column) const override;
  [[nodiscard]] std::string Describe(int column) const override;

 private:
  [[nodiscard]] std::string Place(int column) const override;
  void CheckBound(int code);
  void Fail(int code);

  SqliteDb* db_;
  sqlite3_stmt* statement_ = nullptr;
  bool done_ = false;
};

// An open database file. Thread safety: none. Errors of all members: kUnavailable (locked, full,
// read-only, unreadable, replaced: worth opening again later), kIncompatible (not the format,
// newer, corrupt: an operator must act, and the file is unchanged), kInvalid (a constraint, a
// trigger or a number refuses this statement; the file is sound), kSystem.
class SqliteDb {
 public:
  // Opens the file; a missing or zero-length one gets the schema (if it may), any other is checked
  // first and not touched unless it has the format. It is in WAL mode with synchronous=FULL
  // afterwards.
  [[nodiscard]] static Result<std::unique_ptr<SqliteDb>> Open(const std::string& path,
                                                              const SqliteFormat& format);
  // Opens the file for reading only. No change is possible, and closing leaves the log as it is. A
  // missing or empty file is kUnavailable, whatever the format says. Long queries pause again and
  // again, so that threads that share a processor with this one wait for less than a millisecond.
  [[nodiscard]] static Result<std::unique_ptr<SqliteDb>> OpenToRead(const std::string& path,
                                                                    SqliteFormat format);
  SqliteDb(const SqliteDb&) = delete;
  SqliteDb& operator=(const SqliteDb&) = delete;
  ~SqliteDb();

  template <typename... Args>
  [[nodiscard]] SqliteQuery Query(std::string_view sql, const Args&... args) {
    SqliteQuery query(*this, sql);
    [[maybe_unused]] int index = 0;  // gcc 16 warns where there are no arguments
    (query.Bind(++index, args), ...);
    return query;
  }

  // One statement whose rows do not matter.
  template <typename... Args>
  [[nodiscard]] Status Run(std::string_view sql, const Args&... args) {
    SqliteQuery query = Query(sql, args...);
    while (query.Next()) {
    }
    return query.Finish();
  }

  // Rows changed by the last INSERT, UPDATE or DELETE.
  [[nodiscard]] std::int64_t changes() const noexcept;

  // BEGIN IMMEDIATE, body(), COMMIT. `body` returns a Status or a Result; its error rolls back and
  // is returned. A failed COMMIT is an error like any other unless commit_outcome_unknown().
  template <typename Body>
  [[nodiscard]] auto InTransaction(Body body) -> decltype(body()) {
    if (Status status = Begin(); !status.ok()) return status;
    auto outcome = body();
    if (!outcome.ok()) {
      Rollback();
      return outcome;
    }
    if (Status status = Commit(); !status.ok()) return status;
    return outcome;
  }

  // True inside InTransaction() until an error has ended the transaction: a constraint or a trigger
  // may roll back all of it, not only its own statement.
  [[nodiscard]] bool has_transaction() const noexcept;

  // True if the last COMMIT failed and the transaction is gone, so that it may or may not be in the
  // file. Nothing more can be done with this object; open another.
  [[nodiscard]] bool commit_outcome_unknown() const noexcept { return commit_outcome_unknown_; }

  // kUnavailable unless the path still names the file that is open, no other path does, and, if the
  // file is shared, the paths of its log and its shared memory name those that are open and the
  // file has not become shorter. Every transaction checks this at its beginning and after its
  // COMMIT.
  [[nodiscard]] Status CheckNotReplaced() const;

  // Copies into the file the contents of a log that was deleted while it was open here, because no
  // other copy exists. Does so only while the path names the file and no process has written into
  // another log. Precondition: this object sees the newest state that there is.
  void RescueLog();
  // Removes a -shm file that has no log beside it, which only a deleted log leaves and SQLite would
  // trust.
  static void RemoveStaleSharedMemory(const std::string& path) noexcept;
  // A table that is left out of the check of a larger file.
  struct BulkTable {
    const char* name = nullptr;
    std::uint64_t of_files_above = 0;  // bytes
  };
  // Reads every page and refuses a damaged file. Takes a tenth of a second for 100 MB from the
  // cache.
  [[nodiscard]] Status CheckPages(BulkTable bulk);
  [[nodiscard]] Status CheckPages() { return CheckPages({}); }

  // Distinguishes the open file from any other file that exists at the same time.
  struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const FileId&, const FileId&) = default;
  };
  [[nodiscard]] FileId file_id() const noexcept { return file_; }
  // Where the open file lies. A copy is another file; a file that was renamed is the same file in
  // another place; a directory that was renamed, or is mounted twice, is the same place.
  struct Place {
    std::string file;       // its inode and when it was made
    std::string directory;  // its inode
    std::string path;       // which may differ between processes, except for the last name
  };
  [[nodiscard]] Result<Place> FindPlace() const;
  // True if the place can be seen from here and has no log: the last process that used the file
  // there has copied all of it into the file.
  [[nodiscard]] static bool HasNoLog(const Place& place);
  // Copies the log into the file as far as other processes permit.
  void CopyLog() noexcept;
  // Some megabytes, unless another process keeps a transaction open: then the log grows with every
  // change, until that process ends.
  [[nodiscard]] std::uint64_t LogBytes() const;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // The Status for sqlite's result `code` (extended), with SQLite's message, the file and what to
  // do.
  [[nodiscard]] Status ErrorStatus(int code) const;

 private:
  friend class SqliteQuery;

  explicit SqliteDb(const std::string& path);
  // A compiled statement for one query: an idle one of the same text, or a new one. Null, with
  // SQLite's result in `code`, if it cannot be compiled.
  [[nodiscard]] sqlite3_stmt* TakeStatement(std::string_view sql, int& code);
  // Keeps a statement that has ended without an error for the next query of its text. Compiling one
  // takes longer than running most of them.
  void GiveBack(sqlite3_stmt* statement) noexcept;
  [[nodiscard]] Status OpenFile(bool may_create);
  // True: the file does not have this format and may get it.
  [[nodiscard]] Result<bool> Identify(const SqliteFormat& format);
  // Remembers which log and which shared memory are open.
  [[nodiscard]] Status RememberLog();
  // kUnavailable if the file alone is mounted at its path: it has another name elsewhere.
  [[nodiscard]] Status CheckNotMounted() const;
  [[nodiscard]] std::string LogPath() const;
  [[nodiscard]] std::string SharedMemoryPath() const;
  [[nodiscard]] Status MakeDurable();
  [[nodiscard]] Status CreateSchema(const SqliteFormat& format);
  [[nodiscard]] Status QuickCheck(const std::string& what);
  [[nodiscard]] Status Execute(const char* script);
  // SQLite's busy handler; `db` is this. 0: give up.
  [[nodiscard]] static int WaitWhileBusy(void* db, int calls) noexcept;
  // SQLite's progress handler of a connection that only reads; 0: go on.
  [[nodiscard]] static int PauseFromWork(void* db) noexcept;
  [[nodiscard]] Status Begin();
  [[nodiscard]] Status Commit();
  void Rollback() noexcept;

  std::string path_;
  sqlite3* handle_ = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> idle_statements_;  // by their text
  mutable bool is_damaged_ = false;  // a call found what no idd writes
  FileId file_;
  FileId log_;  // no inode: not checked
  FileId shared_memory_;
  mutable off_t size_ = 0;       // the largest seen
  MonotonicTime busy_until_{};   // of the present wait for a lock
  MonotonicTime works_since_{};  // the last pause of a connection that only reads
  bool commit_outcome_unknown_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SQL_SQLITE_DB_H_
