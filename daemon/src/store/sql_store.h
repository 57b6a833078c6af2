// SPDX-License-Identifier: Apache-2.0
//
// What the stores of both dialects have in common: all SQL but that of leases, of the schema and of
// how the database is recognised.
#ifndef IDD_DAEMON_STORE_SQL_STORE_H_
#define IDD_DAEMON_STORE_SQL_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/clock.h"
#include "sql/sql_session.h"
#include "store/host_table.h"
#include "store/journal_upkeep.h"
#include "store/ledger_table.h"
#include "store/store.h"
#include "store/time_budget.h"
#include "store/worker_table.h"

namespace idd::daemon {

class SqlStore : public Store, protected SqlSession {
 public:
  HostStore* hosts() override { return &hosts_; }
  JournalStore* journal() override { return &upkeep_; }

  // sql_leases.cc
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override;
  Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) override;
  Result<std::vector<LeaseRecord>> AbandonActive(
      const std::vector<std::string>& except_tokens) override;

  // sql_reconcile.cc
  Result<Reconciliation> Reconcile(const HostMemory& memory) override;

  // sql_tags.cc
  Result<std::vector<TagRecord>> ListTags() override;
  Result<TagRecord> CreateTag(const NewTag& tag) override;
  Result<TagRecord> ChangeTag(const TagChange& change) override;
  Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) override;
  Result<std::uint64_t> UsedLimit(const std::string& tag) override;
  Status DeleteTag(const std::string& tag) override;

  Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    Result<Ledger> ledger = Ledger();
    Status status = Snapshot([&] {
      ledger = ReadLists(tag, most);
      return ledger.status();
    });
    return status.ok() ? std::move(ledger) : Result<Ledger>(std::move(status));
  }
  Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter) override {
    return ledger_.ListLeases(filter);
  }
  Result<std::vector<LeaseRecord>> ListByIds(const std::string& tag, std::uint64_t below,
                                             std::size_t most) override {
    return ledger_.ListByIds(tag, below, most);
  }
  Result<std::vector<ReturnedRange>> ListReturned(const std::optional<std::string>& tag) override {
    return ledger_.ListReturned(tag);
  }
  Result<std::set<std::string>> LedgerTags() override { return ledger_.Tags(); }
  Result<std::vector<LeaseSums>> SumLeases(const std::optional<std::string>& tag) override {
    return ledger_.SumLeases(tag);
  }
  Result<std::vector<FoldedOrigin>> FindFolded(const std::string& tag, std::uint64_t id) override {
    return ledger_.FindFolded(tag, id);
  }
  Result<std::vector<std::string>> CheckSums(const std::string& tag) override {
    return ledger_.CheckSums(tag);
  }
  Result<std::vector<HostRecord>> ListHosts() override { return hosts_.List(); }
  Result<std::vector<RecentLeases>> SumRecent(std::chrono::seconds window,
                                              const std::optional<std::string>& tag) override {
    return hosts_.SumRecent(window, tag);
  }
  Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) override {
    return workers_.List(tag);
  }
  Result<bool> TakeWorker(const WorkerChoice& choice) override { return workers_.Take(choice); }

 protected:
  // `host` is the id of this host; `own_row` is HostTable's.
  SqlStore(Dialect dialect, const std::string& host, const std::string& own_row)
      : SqlSession(dialect),
        host_(host),
        hosts_(*this, host, own_row),
        workers_(*this, *this, host),
        ledger_(*this),
        upkeep_(*this, host) {}

  // What a dialect knows of a tag beside the tables.
  //
  // The end of the ids that any host was granted; nothing: only the tables tell.
  [[nodiscard]] virtual std::optional<std::uint64_t> NextInWitness(
      const std::string& /*tag*/) const {
    return std::nullopt;
  }
  // Its rows have changed; from now on no id below `least` is granted.
  virtual void NoteChange(const std::string& tag, std::uint64_t least) = 0;
  // In the transaction that lowers max_id, because a lease's tail was handed back.
  [[nodiscard]] virtual Status NoteLowered(const LeaseClosure& /*closure*/,
                                           std::uint64_t /*next*/) {
    return Status::Ok();
  }
  // The tables lack ids that this host was granted.
  virtual void NoteForgotten(const TagMark& /*mark*/) {}
  // What leaf_alloc.max_id can store.
  [[nodiscard]] virtual std::uint64_t largest_max_id() const { return shm::kMaxLimit; }

  // A query for the tags' rows: ParseTag() reads its first kTagColumns columns, `more` follows. A
  // condition on leaf_alloc, `a`, may be appended.
  [[nodiscard]] std::string SelectTags(const std::string& more = "") const;
  [[nodiscard]] Result<TagRecord> ParseTag(const StoredRow& row) const;
  [[nodiscard]] Status NoSuchTag(const std::string& tag) const;
  [[nodiscard]] Status LiftToMarks(const std::vector<TagMark>& marks, Reconciliation& found);
  // Leases whose COMMIT got no answer. None of their ids is ever used. If the journal has them
  // after all, they are abandoned there. One that it does not have may still come, because the
  // packet on the old connection may not have ended; it is forgotten after two minutes.
  void NoteLost(const std::vector<std::string>& tokens);
  [[nodiscard]] Status AbandonLost();
  [[nodiscard]] WorkerTable& workers() { return workers_; }

  // What the last Open() found missing and lifted; Reconcile() then reports it.
  std::optional<Reconciliation> set_back_;
  // Of a file, where all lifts are one transaction: a row has ended it. Until one has succeeded,
  // tombstones take what the rows should have had.
  bool avoids_rows_ = false;

 private:
  using ActiveRanges = std::map<std::string, shm::IdRange, std::less<>>;  // by token

  // Of the leases those that are active and this host's.
  [[nodiscard]] Result<ActiveRanges> FindActive(const std::vector<LeaseClosure>& closures);
  [[nodiscard]] Result<std::vector<LeaseRecord>> ListActive(
      const std::vector<std::string>& except_tokens);
  [[nodiscard]] SqlStatement EndOf(const LeaseClosure& closure) const;
  [[nodiscard]] SqlStatement AbandonmentOf(const std::vector<std::string>& tokens) const;
  [[nodiscard]] Result<ReturnOutcome> ReturnOnce(const LeaseClosure& closure, bool may_lower);
  [[nodiscard]] Result<ReturnOutcome> ReturnActive(const LeaseClosure& closure, shm::IdRange ids,
                                                   bool may_lower);

  [[nodiscard]] Status LiftToMark(const TagMark& mark, const Result<TagRecord>& record,
                                  TimeBudget& waits, Reconciliation& found);
  // `used`: the end of the tag's ids that the tables know already.
  [[nodiscard]] Status LiftRow(const TagMark& mark, std::uint64_t used, TimeBudget& waits,
                               Reconciliation& found);
  [[nodiscard]] Result<std::set<std::string>> FindTokens(const std::vector<Lease>& leases);
  [[nodiscard]] Status RestoreLeases(const HostMemory& memory, Reconciliation& found);

  [[nodiscard]] Status CheckFits(const std::string& tag, std::optional<std::uint64_t> max_id) const;
  // Leaves a tombstone, or lifts the one that is there.
  [[nodiscard]] Status Entomb(const TagMark& mark);
  [[nodiscard]] Status MakeTag(const NewTag& tag);
  [[nodiscard]] Result<TagRecord> PreviewOf(const TagChange& change);
  [[nodiscard]] SqlStatement Assign(const std::string& tag, const std::string& table,
                                    const std::string& column, SqlValue value) const;

  const std::string host_;
  HostTable hosts_;
  WorkerTable workers_;
  LedgerTable ledger_;
  JournalUpkeep upkeep_;
  std::map<std::string, MonotonicTime> lost_;  // tokens, since when
  // Leases that Reconcile() put into the journal: not handed back.
  std::set<std::string, std::less<>> restored_tokens_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQL_STORE_H_
