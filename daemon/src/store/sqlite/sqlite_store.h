// SPDX-License-Identifier: Apache-2.0
//
// The allocator in a SQLite file: sqlite_store.cc leases and takes back, sqlite_journal.cc closes
// and lists leases, sqlite_tags.cc administers tags, sqlite_inspect.cc looks at the
// file, sqlite_schema.cc has the tables.
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
#include "store/sqlite/sqlite_witness.h"
#include "store/store.h"

namespace idd::daemon {

struct SqliteStoreOptions {
  std::string path;
  std::string host_id;
  // Tests only, where the process dies or the disk fails: called with the name of each point
  // between two persistent steps. "lease.begun", "lease.advanced" (or "lease.taken_back"),
  // "lease.journalled", "lease.committed"; "return.begun", "return.given_back",
  // "return.journalled", "return.committed"; "close.journalled", "close.committed";
  // "abandon.journalled", "abandon.committed"; "remind.reconciliation", "remind.committed";
  // "delete.entombed", "delete.committed". "change.committed" comes before each "....committed":
  // the transaction is in the file, and the witness does not know it yet.
  std::function<void(const char* point)> at_point;
};

// Thread safety: none (Store). Any number of processes and stores may use one file.
//
// Invariants: every change is one BEGIN IMMEDIATE transaction, so no other writer comes between its
// statements. A range whose COMMIT did not succeed is never answered, even if it turns out to be in
// the file: after a failed sync it is not known whether it would survive the next power cut.
// Every such transaction runs under the lock of the witness, and only where the database is what
// the witness says the last one left; no lease begins below the witness's next id of its tag, and
// none is answered before the witness has its end.
class SqliteStore final : public Store {
 public:
  explicit SqliteStore(SqliteStoreOptions options);
  ~SqliteStore() override;

  Status Open() override;
  // As a StoreReader alone: nothing is written, not to the witness either.
  [[nodiscard]] Status OpenToRead();
  void RequireExisting() override { may_create_ = false; }
  Status CheckCurrent() override;
  std::uint64_t generation() const override { return generation_; }
  // No time at all where the witness has said how far all hosts had leased.
  std::chrono::milliseconds reconcile_window() const override;
  // The witness was missing: hosts that run know it and bring it back, hosts that do not cannot.
  bool started_recently() const override { return is_witness_lost_; }
  Result<std::string> Incarnation() override;

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override;
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override;
  Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) override;
  Result<std::vector<LeaseRecord>> AbandonActive(
      const std::vector<std::string>& except_tokens) override;
  Result<Reconciliation> Reconcile(const HostMemory& memory) override;

  Result<std::vector<TagRecord>> ListTags() override;
  Result<TagResults> FindTags(const std::vector<std::string>& tags) override;
  Result<TagRecord> CreateTag(const NewTag& tag) override;
  Result<TagRecord> ChangeTag(const TagChange& change) override;
  Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) override;
  Result<std::uint64_t> UsedLimit(const std::string& tag) override;
  Status DeleteTag(const std::string& tag) override;

  Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter) override;
  Result<std::vector<ReturnedRange>> ListReturned(const std::optional<std::string>& tag) override;
  Result<std::vector<HostRecord>> ListHosts() override;
  Result<std::set<std::string>> LedgerTags() override;
  Result<Ledger> ReadLedger(const std::string& tag) override;
  Result<StoreFacts> Inspect() override;

  std::string DisplayUrl() const override;

 private:
  // Where a transaction that changes something runs: locked, compared with the witness, and what it
  // left in `next_` written into the witness. An error after its COMMIT loses what it granted.
  template <typename Body>
  [[nodiscard]] auto Change(Body body) -> decltype(body()) {
    if (!db_) return NotOpen();
    if (Status status = witness_.Lock(); !status.ok()) return status;
    const WitnessHold hold(witness_);
    BeginChange();
    auto outcome = db_->InTransaction([&]() -> decltype(body()) {
      if (Status status = CheckContinues(); !status.ok()) return status;
      auto done = body();
      if (!done.ok()) return done;
      if (Status status = Stamp(); !status.ok()) return status;
      return done;
    });
    if (!outcome.ok()) return outcome;
    AtPoint("change.committed");
    if (Status status = TellWitness(); !status.ok()) return status;
    return outcome;
  }
  void BeginChange();
  // kUnavailable unless the database is what the witness says, on the line that this object is on.
  [[nodiscard]] Status CheckContinues();
  // Of the hand-back that the witness has announced last: lowers the witness if it was committed.
  [[nodiscard]] Status ConfirmHandBack();
  [[nodiscard]] Status Stamp();
  [[nodiscard]] Status TellWitness();
  // The same look, without a change.
  [[nodiscard]] Status CheckWitness();

  // Of Open(), with the witness locked: joins the line of the witness, or begins another one.
  [[nodiscard]] Status OpenLine();
  [[nodiscard]] Result<std::string> JoinLine();
  [[nodiscard]] Status LiftToWitness();
  void Rescue();
  [[nodiscard]] Status OpenFile();
  struct Stamps {
    std::string last;
    std::string previous;
  };
  [[nodiscard]] Result<Stamps> ReadStamps();
  // leaf_alloc.max_id of every tag, where it is higher than the witness's.
  [[nodiscard]] Status AdoptAll();

  [[nodiscard]] Status NotOpen() const;
  void AtPoint(const char* point) const;

  // The bodies of transactions; they leave COMMIT to the caller.
  [[nodiscard]] Status JournalHost();
  [[nodiscard]] Status AbandonLostLeases();
  [[nodiscard]] Result<LeaseResults> LeaseInTransaction(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] Result<Lease> LeaseOne(const LeaseRequest& request);
  [[nodiscard]] Result<std::optional<Lease>> TakeBack(const LeaseRequest& request,
                                                      const TagRecord& tag);
  [[nodiscard]] Result<Lease> Advance(const LeaseRequest& request, const TagRecord& tag);
  // nullopt: the tag was deleted, and the tail is journalled as abandoned.
  [[nodiscard]] Result<std::optional<ReturnOutcome>> ReturnInTransaction(
      const LeaseClosure& closure);
  [[nodiscard]] Result<ReturnOutcome> GiveBack(const LeaseClosure& closure, shm::IdRange tail);
  [[nodiscard]] Status RemindOfMark(const TagMark& mark, Reconciliation& reconciliation);
  [[nodiscard]] Status RemindOfLease(const Lease& lease, Reconciliation& reconciliation);
  // `held`: the tokens that this host holds now, as JSON; theirs stay.
  [[nodiscard]] Status CloseWhatPreceded(const Lease& lease, const std::string& held);
  [[nodiscard]] Result<TagRecord> CreateInTransaction(const NewTag& tag);
  [[nodiscard]] Status WriteRefill(const std::string& tag, const RefillChange& refill);
  [[nodiscard]] Result<TagRecord> ChangeInTransaction(const TagChange& change);
  [[nodiscard]] Status DeleteInTransaction(const std::string& tag);

  // The ids of a lease that is active, this host's and of this tag; nullopt: there is none.
  [[nodiscard]] Result<std::optional<shm::IdRange>> FindActive(const LeaseClosure& closure);
  // Writes the end of an active lease; what is not claimed counts as its state says.
  [[nodiscard]] Status JournalEnd(const LeaseClosure& closure, shm::IdRange ids);
  // The row of leaf_alloc, checked. kNoSuchTag; kInvalid names the column that is wrong.
  [[nodiscard]] Result<TagRecord> ReadTag(const std::string& tag);

  const SqliteStoreOptions options_;
  std::unique_ptr<SqliteDb> db_;  // null while not open
  bool may_create_ = true;
  // The file opened last, whose pages were checked then: a reconnect must not read all of it.
  // nullopt before the first, and when another or none was found in its place.
  std::optional<SqliteDb::FileId> file_;
  std::uint64_t generation_ = 0;

  SqliteWitness witness_;
  std::string line_;  // of the witness, at the last Open(); "" before the first
  // What the present transaction leaves: the next id of the tags that it changes.
  NextIds next_;
  bool is_granting_ = false;  // it needs a stamp, and a witness that is durable before the answer
  std::string stamp_;         // of the database, behind it
  bool is_untold_ = false;    // it was committed, and the witness could not be told
  // The last Open() found the database set back and lifted it: what Reconcile() reports of that.
  std::optional<Reconciliation> set_back_;
  bool is_witness_lost_ = false;
  bool is_explained_ = false;  // the witness covers what every host leased before the last Open()
  MonotonicTime looked_{};     // at the witness, by CheckCurrent()
  // Leases that Reconcile() put into the journal: not handed back.
  std::set<std::string, std::less<>> restored_tokens_;
  // The tokens of leases whose COMMIT had no known outcome: never served, and journalled as
  // abandoned by the next Open() if they are in the file after all.
  std::vector<std::string> lost_tokens_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQLITE_SQLITE_STORE_H_
