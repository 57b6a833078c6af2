// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_STRESS_FORWARDING_STORE_H_
#define IDD_TESTS_STRESS_FORWARDING_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/store.h"

namespace idd::daemon {

// Forwards every call to another store; a test overrides those that it watches.
class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  Status Open() override { return store_->Open(); }
  void RequireExisting() override { store_->RequireExisting(); }
  void AllowNew() override { store_->AllowNew(); }
  Status CheckCurrent() override { return store_->CheckCurrent(); }
  std::uint64_t generation() const override { return store_->generation(); }
  std::chrono::milliseconds reconcile_window() const override { return store_->reconcile_window(); }
  bool started_recently() const override { return store_->started_recently(); }
  TermStore* terms() override { return store_->terms(); }
  Result<std::string> Incarnation() override { return store_->Incarnation(); }

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override {
    return store_->TakeLeases(requests);
  }
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override {
    return store_->CloseLeases(closures);
  }
  Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) override {
    return store_->ReturnTail(closure);
  }
  Result<std::vector<LeaseRecord>> AbandonActive(const std::vector<std::string>& except) override {
    return store_->AbandonActive(except);
  }
  Result<Reconciliation> Reconcile(const HostMemory& memory) override {
    return store_->Reconcile(memory);
  }
  Result<bool> TakeWorker(const WorkerChoice& choice) override {
    return store_->TakeWorker(choice);
  }
  Result<std::optional<StoreFacts::Clock>> CompareClocks() override {
    return store_->CompareClocks();
  }

  Result<std::vector<TagRecord>> ListTags() override { return store_->ListTags(); }
  Result<TagResults> FindTags(const std::vector<std::string>& tags) override {
    return store_->FindTags(tags);
  }
  Result<TagResults> FindTagsCached(const std::vector<std::string>& tags) override {
    return store_->FindTagsCached(tags);
  }
  Result<TagRecord> CreateTag(const NewTag& tag) override { return store_->CreateTag(tag); }
  Result<TagRecord> ChangeTag(const TagChange& change) override {
    return store_->ChangeTag(change);
  }
  Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) override {
    return store_->LiftTag(tag, to);
  }
  Result<std::uint64_t> UsedLimit(const std::string& tag) override {
    return store_->UsedLimit(tag);
  }
  Status DeleteTag(const std::string& tag) override { return store_->DeleteTag(tag); }

  Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter) override {
    return store_->ListLeases(filter);
  }
  Result<std::vector<ReturnedRange>> ListReturned(const std::optional<std::string>& tag) override {
    return store_->ListReturned(tag);
  }
  Result<std::vector<HostRecord>> ListHosts() override { return store_->ListHosts(); }
  Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) override {
    return store_->ListWorkers(tag);
  }
  Result<std::set<std::string>> LedgerTags() override { return store_->LedgerTags(); }
  Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    return store_->ReadLedger(tag, most);
  }
  Result<std::vector<LeaseSums>> SumLeases(const std::optional<std::string>& tag) override {
    return store_->SumLeases(tag);
  }
  JournalStore* journal() override { return store_->journal(); }
  Result<StoreFacts> Inspect() override { return store_->Inspect(); }
  std::string DisplayUrl() const override { return store_->DisplayUrl(); }

 private:
  std::unique_ptr<Store> store_;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_STRESS_FORWARDING_STORE_H_
