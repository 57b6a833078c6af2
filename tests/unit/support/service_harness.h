// SPDX-License-Identifier: Apache-2.0
//
// A lease worker over the fakes, with an event loop that the test runs step by step.
#ifndef IDD_TESTS_UNIT_SUPPORT_SERVICE_HARNESS_H_
#define IDD_TESTS_UNIT_SUPPORT_SERVICE_HARNESS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_marks.h"
#include "fake_store.h"
#include "idd/base/clock.h"
#include "leasing/lease_worker.h"
#include "platform/event_loop.h"
#include "platform/service_manager.h"
#include "restart/held_leases.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// A service manager's descriptor store that keeps only the names.
class FakeDescriptorStore : public DescriptorStore {
 public:
  void Keep(const std::string& name, int /*fd*/) override { names.insert(name); }
  void Drop(const std::string& name) override { names.erase(name); }
  void WhenHandled(std::function<void()> done) override {
    if (is_busy) {
      waiting_.push_back(std::move(done));
    } else {
      done();
    }
  }
  [[nodiscard]] bool IsAwaited() const { return !waiting_.empty(); }
  // What waits for it; empty if nothing does.
  [[nodiscard]] std::function<void()> TakeWaiting() {
    if (waiting_.empty()) return {};
    return [all = std::exchange(waiting_, {})] {
      for (const std::function<void()>& one : all) one();
    };
  }
  [[nodiscard]] bool keeps() const noexcept override { return is_there; }

  std::set<std::string> names;
  bool is_there = false;
  bool is_busy = false;  // it handles nothing for now

 private:
  std::vector<std::function<void()>> waiting_;
};

// Thread safety: none; completions run in the thread that runs the loop.
class WorkerHarness {
 public:
  WorkerHarness() : WorkerHarness(std::make_unique<FakeStore>(), std::make_unique<FakeMarks>()) {}

  void Start(
      LeaseWorker::HealthChange on_health = [](const StoreHealth&) {},
      LeaseWorker::Recovery recovery = [](Store&, HighWaterMarks&,
                                          StoreSession&) { return Status::Ok(); }) {
    worker.Start(std::move(recovery), std::move(on_health));
  }

  // For an Admin.
  [[nodiscard]] std::function<Result<std::unique_ptr<StoreReader>>(const std::string&)> reader() {
    return [this](const std::string&) {
      return std::unique_ptr<StoreReader>(std::make_unique<FakeReader>(store));
    };
  }

  [[nodiscard]] Handover handover() { return {.leases = *held, .descriptors = descriptors}; }

  // Runs the loop until the condition holds; false if it does not within a minute, which only a
  // defect takes.
  [[nodiscard]] bool RunUntil(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::After(std::chrono::minutes(1));
    while (!condition()) {
      if (deadline.passed()) return false;
      loop.RunOne(std::chrono::milliseconds(5));
    }
    return true;
  }

  // Runs the loop until every submitted job, and every job submitted by their completions, has
  // completed. Does not wait for timers that are not due.
  void Settle() {
    std::size_t before = 0;
    std::size_t after = store.script.calls().size();
    do {
      before = after;
      for (int i = 0; i < 2; ++i) {
        bool done = false;
        worker.Submit<bool>([](Store&, HighWaterMarks&) -> Result<bool> { return true; },
                            [&done](const Result<bool>&) { done = true; });
        if (!RunUntil([&done] { return done; })) return;
      }
      after = store.script.calls().size();
    } while (before != after);
  }

 private:
  WorkerHarness(std::unique_ptr<FakeStore> owned_store, std::unique_ptr<FakeMarks> owned_marks)
      : store(*owned_store),
        marks(*owned_marks),
        worker(std::move(owned_store), std::move(owned_marks),
               [this](std::function<void()> done) { loop.Post(std::move(done)); }) {}

 public:
  EventLoop loop;
  FakeStore& store;
  FakeMarks& marks;
  LeaseWorker worker;
  std::unique_ptr<HeldLeases> held = HeldLeases::Create("host-a").value();
  FakeDescriptorStore descriptors;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SUPPORT_SERVICE_HARNESS_H_
