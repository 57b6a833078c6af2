// SPDX-License-Identifier: Apache-2.0
//
// The allocator in a SQLite file: sqlite_store.cc leases and takes back, sqlite_journal.cc closes
// and lists leases, sqlite_tags.cc administers tags, sqlite_inspect.cc looks at the
// file, sqlite_schema.cc has the tables.
#ifndef IDD_DAEMON_STORE_SQLITE_STORE_H_
#define IDD_DAEMON_STORE_SQLITE_STORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "store/sqlite_db.h"
#include "store/store.h"

namespace idd::daemon {

struct SqliteStoreOptions {
  std::string path;
  std::string host_id;
  // Tests only, where the process dies or the disk fails: called with the name of each point
  // between two persistent steps. "lease.begun", "lease.advanced" (or "lease.taken_back"),
  // "lease.journalled", "lease.committed"; "return.begun", "return.given_back",
  // "return.journalled", "return.committed"; "close.journalled", "close.committed";
  // "abandon.journalled", "abandon.committed"; "remind.reminded", "remind.committed";
  // "delete.entombed", "delete.committed".
  std::function<void(const char* point)> at_point;
};

// Thread safety: none (Store). Any number of processes and stores may use one file.
//
// Invariants: every change is one BEGIN IMMEDIATE transaction, so no other writer comes between its
// statements. A range whose COMMIT did not succeed is never answered, even if it turns out to be in
// the file: after a failed sync nobody knows whether it would survive the next power cut.
class SqliteStore final : public Store {
 public:
  explicit SqliteStore(SqliteStoreOptions options);
  ~SqliteStore() override;

  Status Open() override;
  void NeverCreate() override { may_create_ = false; }
  Status CheckCurrent() override;
  std::uint64_t generation() const override { return generation_; }
  Result<std::string> Incarnation() override;

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override;
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override;
  Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) override;
  Result<std::vector<LeaseRecord>> AbandonActive(
      const std::vector<std::string>& except_tokens) override;
  Result<Reminded> Remind(const HostMemory& memory) override;

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
  [[nodiscard]] Status RemindOfMark(const TagMark& mark, Reminded& reminded);
  [[nodiscard]] Status RemindOfLease(const Lease& lease, Reminded& reminded);
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
  // Leases that Remind() put into the journal: not handed back.
  std::set<std::string, std::less<>> restored_tokens_;
  // The tokens of leases whose COMMIT had no known outcome: never served, and journalled as
  // abandoned by the next Open() if they are in the file after all.
  std::vector<std::string> lost_tokens_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQLITE_STORE_H_
