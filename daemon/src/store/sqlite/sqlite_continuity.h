// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_SQLITE_SQLITE_CONTINUITY_H_
#define IDD_DAEMON_STORE_SQLITE_SQLITE_CONTINUITY_H_

#include <cstdint>
#include <string>

#include "idd/base/status.h"
#include "sql/sqlite_db.h"
#include "store/sqlite/sqlite_witness.h"

namespace idd::daemon {

// Checks that a SQLite database continues what its witness knows, and collects what the present
// transaction adds to that. Every transaction that grants ids writes a new random stamp into the
// database and then into the witness, so a database with the witness's stamp knows all grants. It
// may be one stamp ahead: then a host died between the COMMIT and its record in the witness, and
// never answered the grant. ADR 0019 has the argument.
//
// A transaction runs with the witness locked, from Begin() to Record():
//   Begin(); BEGIN IMMEDIATE; Check() or JoinWitness(); changes, with Raise() and Lower(); Stamp();
//   COMMIT; Record().
//
// Thread safety: none.
//
// Invariant: nothing is granted on a line (SqliteWitness::State::line) other than the witness's.
class SqliteContinuity {
 public:
  // The relation of an opened database to the witness.
  enum class Join {
    kContinues,  // it has every grant that the witness knows
    kBegins,     // there was no witness, or it knows no grant
    kWasSetBack  // it lacks grants that the witness knows: the caller lifts it to the witness
  };

  SqliteContinuity() = default;
  SqliteContinuity(const SqliteContinuity&) = delete;
  SqliteContinuity& operator=(const SqliteContinuity&) = delete;
  ~SqliteContinuity() = default;

  [[nodiscard]] SqliteWitness& witness() noexcept { return witness_; }
  [[nodiscard]] const SqliteWitness& witness() const noexcept { return witness_; }
  // The witness's line when the database was last joined; "" before.
  [[nodiscard]] const std::string& line() const noexcept { return line_; }

  void Begin();
  // kUnavailable unless the database continues what the witness knows, on line().
  [[nodiscard]] Status Check(SqliteDb& db);
  // To be called when the database is opened. kUnavailable if the file was renamed and its
  // last place may have a log with grants that are missing here.
  [[nodiscard]] Result<Join> JoinWitness(SqliteDb& db);
  // Takes over leaf_alloc.max_id of every tag where it is above what the witness knows.
  [[nodiscard]] Status AdoptTags(SqliteDb& db);

  // Raises the tag's next id to `next`, or to the witness's if that is higher, because ids below
  // are granted or spoilt. The record must be durable before the answer.
  void Raise(const std::string& tag, std::uint64_t next);
  // Lowers the tag's next id after a hand-back. The record need not be durable: a witness that is
  // too high only makes a gap.
  void Lower(const std::string& tag, std::uint64_t next) { next_[tag] = next; }
  [[nodiscard]] Status Stamp(SqliteDb& db);
  // To be called after the COMMIT.
  [[nodiscard]] Status Record();
  // True if the transaction was committed but Record() has failed.
  [[nodiscard]] bool is_unrecorded() const noexcept { return is_unrecorded_; }

  // Ends a transaction in which the database was joined: like Record(), on the witness's line if
  // the database continues it, and otherwise on a new line.
  [[nodiscard]] Status RecordJoin(Join join);
  // True if, at the last JoinWitness(), the database had grants but there was no witness.
  [[nodiscard]] bool is_witness_lost() const noexcept { return is_witness_lost_; }
  // True if the last JoinWitness() noted a new place of the file in the database.
  [[nodiscard]] bool is_new_place() const noexcept { return is_new_place_; }

 private:
  struct Stamps {
    std::string last;
    std::string previous;
  };
  [[nodiscard]] static Result<Stamps> ReadStamps(SqliteDb& db);
  // Reads the stamp. If the database has the witness's, or is one ahead, brings both to the same
  // state; otherwise false.
  [[nodiscard]] Result<bool> Continue(SqliteDb& db);
  // Notes where the file lies, or refuses it there (JoinWitness()).
  [[nodiscard]] Status JoinPlace(SqliteDb& db, bool continues);
  // Lowers the witness if the last hand-back that was announced in it was committed.
  [[nodiscard]] Status ConfirmHandBack(SqliteDb& db);

  SqliteWitness witness_;
  std::string line_;
  bool is_witness_lost_ = false;
  bool is_new_place_ = false;

  // The present transaction:
  NextIds next_;              // of the tags that it changes
  bool is_granting_ = false;  // it needs a stamp, and a record that is durable before the answer
  bool is_unrecorded_ = false;
  std::string stamp_;  // of the database
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQLITE_SQLITE_CONTINUITY_H_
