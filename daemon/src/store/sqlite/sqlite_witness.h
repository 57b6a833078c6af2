// SPDX-License-Identifier: Apache-2.0
//
// What the hosts that share a SQLite file know of it outside of it: a file beside the database that
// a restore of the database does not set back. ADR 0019 has the argument.
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

// Where the ids of each tag that no host was ever granted begin.
using NextIds = std::map<std::string, std::uint64_t, std::less<>>;

// `<database>.witness`: a lock that is held over each transaction, and a log of what the
// transactions left. The lock is of the kernel, on a file that idd alone writes, so it holds where
// the locks of SQLite do not (a program that has a deleted -shm open, and one that has its
// successor).
//
// The file is a line `idd-witness 1 <id>` and records, each with a hash over itself and the hash
// before it, in room that was filled with zeros before, so that a record changes no size and a torn
// one ends the log. When the room is used up the state is written into a new file, whose id the
// last record of the old one names.
//
// Thread safety: none. Any number of processes and objects may use one file.
//
// Invariants: state() is changed only while the lock is held. Once this object has read a state, no
// file that is put in the witness's place makes it forget one: what was known is merged into it.
class SqliteWitness {
 public:
  // A hand-back that was to be committed: `tag` would then end at `next`.
  struct HandBack {
    std::string token;  // of the lease
    std::string tag;
    std::uint64_t next = 0;
  };
  struct State {
    std::string line;  // of the data set: another one after each time that it was set back; or ""
    std::string
        stamp;  // of the last transaction that granted ids; "" when there is none to compare
    NextIds next;
    std::optional<HandBack> announced{};  // nothing was appended since
  };
  enum class Durability { kSynced, kWritten };

  SqliteWitness() = default;
  SqliteWitness(const SqliteWitness&) = delete;
  SqliteWitness& operator=(const SqliteWitness&) = delete;
  ~SqliteWitness() = default;

  // Of the database `path`, as SQLite would resolve it. Precondition: not locked.
  void SetDatabase(const std::string& path);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Takes the lock and reads what was added. kUnavailable when another process holds it for longer
  // than kSqliteBusyTimeout, or the file cannot be read or made.
  [[nodiscard]] Status Lock();
  // The same, but makes no file: false, and not locked, when there is none.
  [[nodiscard]] Result<bool> LockIfThere();
  void Unlock() noexcept;
  [[nodiscard]] bool is_locked() const noexcept { return is_locked_; }

  // The members below need the lock, but for CheckCurrent().
  [[nodiscard]] const State& state() const noexcept { return state_; }
  // 0 when the witness knows nothing of the tag.
  [[nodiscard]] std::uint64_t NextOf(std::string_view tag) const;
  // Adds a record: the line, the stamp, and of `next` what is in it; the rest stays.
  [[nodiscard]] Status Append(const State& change, Durability durability);
  // To be called before the COMMIT of a hand-back that lowers `next`, whose Append() comes after
  // it. What is announced says only what to ask the database for, should that never come.
  [[nodiscard]] Status Announce(const HandBack& hand_back);
  // Makes the file as readable and writable as the database, where this process owns it.
  void ShareLike(const std::string& database) const noexcept;

  // kUnavailable unless the path names the file that is open, if one is. Cheap.
  [[nodiscard]] Status CheckCurrent() const;

 private:
  [[nodiscard]] Status LockFile(bool may_make);
  // One try. false: another process was in the way.
  [[nodiscard]] Result<bool> TryLock(bool may_make);
  [[nodiscard]] bool IsInPlace() const;
  // Reads the records behind end_. Stops at the end of the log.
  [[nodiscard]] Status ReadOn();
  [[nodiscard]] bool TakeRecord(std::string_view line);
  // From the first line on; an empty state where there is no header.
  [[nodiscard]] Status ReadAll();
  [[nodiscard]] Status ReadFromHeader();
  [[nodiscard]] Status CatchUp();
  [[nodiscard]] Status WriteRecord(const std::string& body, Durability durability);
  [[nodiscard]] bool HasRoomFor(const std::string& body) const;
  // The state in a file of its own, durable, and locked by `fd`.
  [[nodiscard]] Status WriteNewFile(const std::string& name, ScopedFd& fd, std::string& id) const;
  // Puts a new file in place of the open one, which must be locked; or where there is none.
  [[nodiscard]] Status Replace();
  [[nodiscard]] Result<bool> Make();
  [[nodiscard]] Status Error(int error, std::string_view what) const;
  void Forget();

  std::string path_;
  ScopedFd fd_;
  bool is_locked_ = false;
  bool must_rewrite_ = false;  // what follows the last record may not be durable
  State state_;

  // Of the file that is open.
  std::string id_;
  std::string hash_;      // of the last record, or of the header
  off_t last_ = 0;        // where that begins
  off_t end_ = 0;         // where the next record goes
  off_t room_ = 0;        // size of the file
  std::string moved_to_;  // the id that the last record names, if it names one
};

// Holds the lock of a witness that is locked, until the end of the scope.
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
