// SPDX-License-Identifier: Apache-2.0
//
// A file beside the SQLite database, which a restore of the database does not set back. It has what
// the hosts that share the database know of its grants. ADR 0019 has the argument.
#ifndef IDD_DAEMON_STORE_SQLITE_SQLITE_WITNESS_H_
#define IDD_DAEMON_STORE_SQLITE_SQLITE_WITNESS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"

namespace idd::daemon {

// The first id of each tag that no host was ever granted.
using NextIds = std::map<std::string, std::uint64_t, std::less<>>;

// `<database>.witness`: a lock that is held over each transaction, and a log of what the
// transactions left. The lock is the kernel's, on a file that only idd writes, so it works where
// SQLite's locks do not: between a program that has a deleted -shm open and one that has its
// successor.
//
// The file has a line `idd-witness 1 <id>` and records, each with a hash over itself and the
// previous hash. The room for records is filled with zeros beforehand, so that a record does not
// change the file's size and a torn record ends the log. When the room is used up, the state is
// written into a new file, and the last record of the old file names the new one's id.
//
// Thread safety: none. Any number of processes and objects may use one file.
//
// Invariants: state() is changed only while the lock is held. Once this object has read a state, it
// keeps it even if another file is put in the witness's place: the known state is merged into that
// file.
class SqliteWitness {
 public:
  // A hand-back that was about to be committed. After the commit, `next` is the next id of `tag`.
  struct HandBack {
    std::string token;  // of the lease
    std::string tag;
    std::uint64_t next = 0;
  };
  struct State {
    std::string line;   // of the data set: a new one after each time that it was set back; or ""
    std::string stamp;  // of the last transaction that granted ids; "": none to compare
    NextIds next;
    std::optional<HandBack> announced{};  // nothing was appended since
  };
  enum class Durability { kSynced, kWritten };

  SqliteWitness() = default;
  SqliteWitness(const SqliteWitness&) = delete;
  SqliteWitness& operator=(const SqliteWitness&) = delete;
  ~SqliteWitness() = default;

  // Uses the witness of the database `path`, as SQLite would resolve it. Precondition: not locked.
  void SetDatabase(const std::string& path);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Takes the lock and reads what was added. kUnavailable when another process holds it for longer
  // than kSqliteBusyTimeout, or the file cannot be read or made.
  [[nodiscard]] Status Lock();
  // The same, but does not make the first file: false, and not locked, when there is none. A file
  // that this object has read is made again if it was deleted.
  [[nodiscard]] Result<bool> LockIfThere();
  void Unlock() noexcept;
  [[nodiscard]] bool is_locked() const noexcept { return is_locked_; }

  // The members below, except CheckCurrent(), need the lock.
  [[nodiscard]] const State& state() const noexcept { return state_; }
  // 0 if the witness does not know the tag.
  [[nodiscard]] std::uint64_t NextOf(std::string_view tag) const;
  // Adds a record with the line, the stamp and the entries of `next`. Other tags stay as they are.
  [[nodiscard]] Status Append(const State& change, Durability durability);
  // To be called before the COMMIT of a hand-back that lowers `next`; its Append() follows the
  // COMMIT. If that Append() never comes, the announcement shows what to look up in the database.
  [[nodiscard]] Status Announce(const HandBack& hand_back);
  // Gives the file the database's permissions, if this process owns it.
  void ShareLike(const std::string& database) const noexcept;

  // kUnavailable unless the path names the file that is open, if one is. Cheap.
  [[nodiscard]] Status CheckCurrent() const;

 private:
  [[nodiscard]] Status LockFile(bool may_make);
  // Makes one try. false: another process was in the way.
  [[nodiscard]] Result<bool> TryLock(bool may_make);
  [[nodiscard]] bool IsInPlace() const;
  // Reads the records after end_. Stops at the end of the log.
  [[nodiscard]] Status ReadOn();
  [[nodiscard]] bool TakeRecord(std::string_view line);
  // Reads from the first line on. The state is empty if there is no header.
  [[nodiscard]] Status ReadAll();
  [[nodiscard]] Status ReadFromHeader();
  [[nodiscard]] Status CatchUp();
  [[nodiscard]] Status WriteRecord(const std::string& body, Durability durability);
  [[nodiscard]] bool HasRoomFor(const std::string& body) const;
  // Writes the state into a new file, durably, and locks it through `fd`.
  [[nodiscard]] Status WriteNewFile(const std::string& name, ScopedFd& fd, std::string& id) const;
  // Puts a new file in place of the open one, which must be locked, or where there is none.
  [[nodiscard]] Status Replace();
  [[nodiscard]] Result<bool> Make();
  [[nodiscard]] Status Error(int error, std::string_view what) const;
  void Forget();

  std::string path_;
  ScopedFd fd_;
  bool is_locked_ = false;
  bool must_rewrite_ = false;  // the bytes after the last record may not be durable
  State state_;

  // The state of the open file.
  std::string id_;
  std::string hash_;      // of the last record, or of the header
  off_t last_ = 0;        // where that record begins
  off_t end_ = 0;         // where the next record goes
  off_t room_ = 0;        // size of the file
  std::string moved_to_;  // the id that the last record names, if it names one
};

// Keeps the lock of a locked witness until the end of the scope.
class WitnessHold {
 public:
  explicit WitnessHold(SqliteWitness& witness) noexcept : witness_(witness) {}
  ~WitnessHold() { witness_.Unlock(); }
  WitnessHold(const WitnessHold&) = delete;
  WitnessHold& operator=(const WitnessHold&) = delete;

 private:
  SqliteWitness& witness_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQLITE_SQLITE_WITNESS_H_
