// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_STEPPED_STORE_H_
#define IDD_TESTS_SIMULATION_STEPPED_STORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "servers.h"
#include "stepped_marks.h"
#include "store/snowflake_layout.h"
#include "store/store.h"
#include "worker_situation.h"
#include "world.h"

namespace idd::simulation {

// A real store on a file, on a disk that takes time and can be full. Time passes before and after
// each call, so that the process can be killed before the call, or between it and what follows.
class SteppedStore final : public daemon::Store {
 public:
  // `on_step`: called right before and right after each call.
  SteppedStore(std::unique_ptr<daemon::Store> store, std::string host, Disk& disk,
               std::function<void()> on_step, OnLeased on_leased)
      : store_(std::move(store)),
        host_(std::move(host)),
        disk_(disk),
        on_step_(std::move(on_step)),
        on_leased_(std::move(on_leased)) {}

  Status Open() override {
    return Step([&] { return store_->Open(); });
  }
  void RequireExisting() override { store_->RequireExisting(); }
  void AllowNew() override { store_->AllowNew(); }
  Status CheckCurrent() override { return store_->CheckCurrent(); }
  std::uint64_t generation() const override { return store_->generation(); }
  std::chrono::milliseconds reconcile_window() const override { return store_->reconcile_window(); }
  bool started_recently() const override { return store_->started_recently(); }
  Result<std::string> Incarnation() override { return store_->Incarnation(); }

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override {
    return Step([&]() -> Result<LeaseResults> {
      Result<LeaseResults> leases = store_->TakeLeases(requests);
      if (!leases.ok()) return leases;
      for (const Result<Lease>& lease : leases.value()) {
        if (lease.ok()) on_leased_(lease.value(), host_, OwnerOf(lease.value().tag));
      }
      return leases;
    });
  }
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override {
    return Step([&] { return store_->CloseLeases(closures); });
  }
  Result<daemon::ReturnOutcome> ReturnTail(const LeaseClosure& closure) override {
    return Step([&] { return store_->ReturnTail(closure); });
  }
  Result<std::vector<LeaseRecord>> AbandonActive(const std::vector<std::string>& except) override {
    return Step([&] { return store_->AbandonActive(except); });
  }
  Result<daemon::Reconciliation> Reconcile(const daemon::HostMemory& memory) override {
    return Step([&] { return store_->Reconcile(memory); });
  }

  Result<std::vector<daemon::WorkerRecord>> ListWorkers(const std::string& tag) override {
    return Step([&] { return store_->ListWorkers(tag); });
  }
  Result<bool> TakeWorker(const daemon::WorkerChoice& choice) override {
    return Step([&]() -> Result<bool> {
      const Result<std::vector<daemon::WorkerRecord>> before = store_->ListWorkers(choice.tag);
      Result<bool> taken = store_->TakeWorker(choice);
      if (before.ok() && taken.ok() && taken.value()) {
        World::Get().Met(SituationOf(before.value(), choice));
      }
      return taken;
    });
  }
  Result<std::optional<daemon::StoreFacts::Clock>> CompareClocks() override {
    return Step([&] { return store_->CompareClocks(); });
  }

  Result<std::vector<TagRecord>> ListTags() override {
    return Step([&] { return store_->ListTags(); });
  }
  Result<TagResults> FindTags(const std::vector<std::string>& tags) override {
    return Step([&] { return store_->FindTags(tags); });
  }
  Result<TagResults> FindTagsCached(const std::vector<std::string>& tags) override {
    return Step([&] { return store_->FindTagsCached(tags); });
  }
  Result<TagRecord> CreateTag(const daemon::NewTag& tag) override {
    return Step([&] { return store_->CreateTag(tag); });
  }
  Result<TagRecord> ChangeTag(const daemon::TagChange& change) override {
    return Step([&] { return store_->ChangeTag(change); });
  }
  Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) override {
    return Step([&] { return store_->LiftTag(tag, to); });
  }
  Result<std::uint64_t> UsedLimit(const std::string& tag) override {
    return Step([&] { return store_->UsedLimit(tag); });
  }
  Status DeleteTag(const std::string& tag) override {
    return Step([&] { return store_->DeleteTag(tag); });
  }
  Result<std::vector<LeaseRecord>> ListLeases(const daemon::LeaseFilter& filter) override {
    return Step([&] { return store_->ListLeases(filter); });
  }
  Result<std::vector<daemon::ReturnedRange>> ListReturned(
      const std::optional<std::string>& tag) override {
    return Step([&] { return store_->ListReturned(tag); });
  }
  Result<std::vector<daemon::HostRecord>> ListHosts() override {
    return Step([&] { return store_->ListHosts(); });
  }
  Result<std::set<std::string>> LedgerTags() override {
    return Step([&] { return store_->LedgerTags(); });
  }
  Result<daemon::Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    return Step([&] { return store_->ReadLedger(tag, most); });
  }
  Result<daemon::StoreFacts> Inspect() override {
    return Step([&] { return store_->Inspect(); });
  }
  std::string DisplayUrl() const override { return store_->DisplayUrl(); }

 private:
  // At this moment, which is that of the COMMIT.
  [[nodiscard]] std::optional<std::string> OwnerOf(const std::string& counter) const {
    const std::optional<daemon::CounterOf> parts = daemon::ParseCounterName(counter);
    if (!parts.has_value()) return std::nullopt;
    const Result<std::vector<daemon::WorkerRecord>> workers = store_->ListWorkers(parts->tag);
    if (!workers.ok()) return std::nullopt;
    for (const daemon::WorkerRecord& worker : workers.value()) {
      if (worker.worker == parts->worker) return worker.host;
    }
    return std::nullopt;
  }
  template <typename Call>
  auto Step(Call call) -> decltype(call()) {
    Pause();
    if (disk_.is_full) return Status(Code::kUnavailable, "the disk is full");
    on_step_();
    auto result = call();
    on_step_();
    Pause();
    return result;
  }
  void Pause() const { Thread::Current()->Sleep(World::Get().random().Between(1, disk_.sync)); }

  std::unique_ptr<daemon::Store> store_;
  const std::string host_;
  Disk& disk_;
  const std::function<void()> on_step_;
  const OnLeased on_leased_;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_STEPPED_STORE_H_
