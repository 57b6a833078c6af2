// SPDX-License-Identifier: Apache-2.0
//
// The allocator in a SQLite file: sqlite_store.cc opens it and reconciles it, sqlite_lease.cc
// leases, sqlite_inspect.cc looks at the file, sqlite_schema.cc has the tables,
// sqlite_continuity.cc compares the file with its witness, sqlite_session.cc runs the SQL of
// store/.
#ifndef IDD_DAEMON_STORE_SQLITE_SQLITE_STORE_H_
#define IDD_DAEMON_STORE_SQLITE_SQLITE_STORE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "sql/sqlite_db.h"
#include "store/sql_store.h"
#include "store/sqlite/sqlite_continuity.h"

namespace idd::daemon {

struct SqliteStoreOptions {
  std::string path;
  std::string host_id;
  // For tests only: called with the name of each point between two persistent steps, where the test
  // lets the process die or the disk fail. "lease.begun", "lease.advanced" (or "lease.taken_back"),
  // "lease.journalled", "lease.committed"; "return.given_back", "return.journalled",
  // "return.announced", "return.committed"; "close.journalled", "close.committed";
  // "abandon.journalled", "abandon.committed"; "remind.reconciliation", "remind.committed";
  // "delete.entombed", "delete.committed"; "forget.journalled", "forget.committed"; "worker.taken",
  // "worker.committed"; "journal.settled", "journal.folded", "journal.committed".
  // "change.committed" comes before each of the "....committed": the transaction is in the file,
  // and the witness does not have it yet.
  std::function<void(const char* point)> at_point;
};

// It has more methods than a class should: those of Store, and the body of each transaction.
//
// Thread safety: none (Store). Any number of processes and stores may use one file.
//
// Invariants: every change is one BEGIN IMMEDIATE transaction, so no other writer comes between its
// statements. A range whose COMMIT did not succeed is never answered, even if it turns out to be in
// the file: after a failed sync it is not known whether it would survive the next power cut. Every
// transaction that concerns ids runs under the lock of the witness, and only if the database is as
// the last one left it according to the witness. No lease begins below the witness's next id of its
// tag, and none is answered before the witness has its end.
class SqliteStore final : public SqlStore {
 public:
  explicit SqliteStore(SqliteStoreOptions options);
  ~SqliteStore() override;

  Status Open() override;
  // Opens it as a StoreReader only: nothing is written, not even to the witness.
  [[nodiscard]] Status OpenToRead();
  void RequireExisting() override { may_create_ = false; }
  void AllowNew() override { may_create_ = is_new_allowed_ = true; }
  Status CheckCurrent() override;
  std::uint64_t generation() const override { return generation_; }
  // Zero if the witness shows how far all hosts had leased.
  std::chrono::milliseconds reconcile_window() const override;
  // True if the witness was missing: hosts that are running know its contents and restore it, hosts
  // that are not cannot.
  bool started_recently() const override { return continuity_.is_witness_lost(); }
  Result<std::string> Incarnation() override;

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override;

  Result<TagResults> FindTags(const std::vector<std::string>& tags) override;
  Result<StoreFacts> Inspect() override;

  std::string DisplayUrl() const override;

 private:
  std::unique_ptr<SqlQuery> Query(const std::string& text, const SqlValues& values) override;
  Result<std::vector<std::uint64_t>> Transact(const std::vector<SqlStatement>& statements) override;
  [[nodiscard]] Result<std::vector<std::uint64_t>> Run(const std::vector<SqlStatement>& statements);
  Status ChangeIds(const std::function<Status()>& body, const char* point) override;
  Status Snapshot(const std::function<Status()>& body) override;
  Status CheckNotSetBack() override { return Status::Ok(); }  // each Change() compares the witness
  // 0 if the witness does not know the tag.
  std::optional<std::uint64_t> NextInWitness(const std::string& tag) const override {
    return continuity_.witness().NextOf(tag);
  }
  void NoteChange(const std::string& tag, std::uint64_t least) override;
  void NoteForgotten(const TagMark& mark) override;
  Status NoteLowered(const LeaseClosure& closure, std::uint64_t next) override;

  // Runs a transaction that changes something: with the witness locked and compared before it, and
  // written after its COMMIT. An error after the COMMIT loses what the transaction granted.
  // Within another Change(), only the body runs.
  template <typename Body>
  [[nodiscard]] auto Change(Body body) -> decltype(body()) {
    if (!db_) return NotOpen();
    if (is_changing_) return body();
    if (Status status = continuity_.witness().Lock(); !status.ok()) return status;
    const WitnessHold hold(continuity_.witness());
    continuity_.Begin();
    auto outcome = db_->InTransaction([&]() -> decltype(body()) {
      if (Status status = continuity_.Check(*db_); !status.ok()) return status;
      is_changing_ = true;
      auto done = body();
      is_changing_ = false;
      if (!done.ok()) return done;
      if (!db_->has_transaction()) return TransactionIsGone();
      if (Status status = continuity_.Stamp(*db_); !status.ok()) return status;
      return done;
    });
    if (!outcome.ok()) return outcome;
    AtPoint("change.committed");
    if (Status status = continuity_.Record(); !status.ok()) return status;
    return outcome;
  }
  // Whether the database continues what the witness knows, without a change.
  [[nodiscard]] Status CheckWitness();

  // Parts of Open().
  void Rescue();
  [[nodiscard]] Status OpenFile();
  [[nodiscard]] Status JoinWitness();
  [[nodiscard]] Status LiftToWitness();

  [[nodiscard]] Status NotOpen() const;
  // A constraint or a trigger has rolled back all of it.
  [[nodiscard]] Status TransactionIsGone() const;
  void AtPoint(const char* point) const;

  // The bodies of transactions; they leave COMMIT to the caller.
  [[nodiscard]] Status JournalHost();
  [[nodiscard]] Result<LeaseResults> TakeTogether(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] Result<LeaseResults> LeaseInTransaction(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] Result<Lease> LeaseOne(const LeaseRequest& request);
  [[nodiscard]] Result<std::optional<Lease>> TakeBack(const LeaseRequest& request,
                                                      const TagRecord& tag);
  [[nodiscard]] Result<Lease> Advance(const LeaseRequest& request, const TagRecord& tag);
  // The row of leaf_alloc, checked. kNoSuchTag; kInvalid names the column that is wrong.
  [[nodiscard]] Result<TagRecord> ReadTag(const std::string& tag);

  const SqliteStoreOptions options_;
  std::unique_ptr<SqliteDb> db_;  // null while not open
  bool may_create_ = true;
  bool is_new_allowed_ = false;  // although the witness knows of granted ids, which it keeps
  // The file that was opened last. Its pages were checked then, so that a reconnect need not read
  // them all. nullopt before the first open, and after another file or none was found in its place.
  std::optional<SqliteDb::FileId> file_;
  std::uint64_t generation_ = 0;
  bool is_changing_ = false;  // the body of a Change() runs

  SqliteContinuity continuity_;
  bool is_explained_ = false;  // the witness covers what every host leased before the last Open()
  MonotonicTime looked_{};     // CheckCurrent()'s last look at the witness
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQLITE_SQLITE_STORE_H_
