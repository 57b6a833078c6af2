// SPDX-License-Identifier: Apache-2.0
//
// Clients are killed with SIGKILL at random, fifty times, and others are stopped for seconds and
// continued.
//
// Method: eight workers claim mixed batches. The test keeps a killed worker's log and starts a new
// worker in its place. At any time one other worker is stopped, for two seconds each. A running
// claimer must never be without a new id for longer than the stall limit. In the end the oracle
// checks the logs of all 58 claimers. A killed claimer may die before it logs its last claim, so
// the audit may count more than the logs, but never less.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr std::size_t kWorkers = 8;
constexpr int kKills = 50;
constexpr std::uint64_t kBatch = 200;
// Longer than a busy machine delays a claim, shorter than the workers' own timeout.
constexpr std::chrono::milliseconds kStallLimit = 30s;
constexpr std::chrono::milliseconds kWorkersDeadline = 4 * kStallLimit;
constexpr std::chrono::milliseconds kStopTime = 2s;

// A place for a running worker, with the data to detect its stall.
struct Place {
  std::unique_ptr<ClaimWorkerProcess> worker;
  std::uint64_t ids = 0;
  MonotonicTime progress_at;
};

class KilledClients : public ::testing::Test {
 protected:
  KilledClients() : random_(TestSeed()) {}

  void SetUp() override {
    host_.StartWithTag("orders", 10'000);
    for (Place& place : places_) StartWorker(place);
  }

  void StartWorker(Place& place) {
    WorkerPlan plan{.socket = host_.daemon.socket(),
                    .tag = "orders",
                    .name = "worker" + std::to_string(started_++)};
    plan.batch = kBatch;
    plan.log_capacity = 1 << 21;
    plan.seed = started_;
    plan.timeout_ms = static_cast<std::uint64_t>(Patience(kWorkersDeadline).count());
    place.worker = std::make_unique<ClaimWorkerProcess>(dir_, plan);
    place.worker->Go();
    place.ids = 0;
    place.progress_at = MonotonicClock::now();
  }

  // Watches all workers for a while: none fails, and no running worker stalls.
  void WatchFor(std::chrono::milliseconds time) {
    const Deadline deadline = Deadline::After(time);
    while (!deadline.passed()) {
      for (std::size_t i = 0; i < places_.size(); ++i) Watch(i);
      MoveTheStop();
      std::this_thread::sleep_for(1ms);
    }
  }

  void Watch(std::size_t index) {
    Place& place = places_[index];
    const MonotonicTime now = MonotonicClock::now();
    Require(place.worker->process().Running(),
            place.worker->name() + " ended by itself: " + place.worker->Failure());
    const std::uint64_t ids = place.worker->ids();
    if (ids != place.ids || index == stopped_) {
      place.ids = ids;
      place.progress_at = now;
    }
    Require(now - place.progress_at < Patience(kStallLimit), place.worker->name() + " stalls");
  }

  // At any time one worker is stopped, for kStopTime each.
  void MoveTheStop() {
    if (stopped_ < places_.size() && !stop_ends_.passed()) return;
    Continue();
    stopped_ = random_() % places_.size();
    places_[stopped_].worker->process().Signal(SIGSTOP);
    stop_ends_ = Deadline::After(kStopTime);
    ++stops_;
  }

  void Continue() {
    if (stopped_ >= places_.size()) return;
    places_[stopped_].worker->process().Signal(SIGCONT);
    places_[stopped_].progress_at = MonotonicClock::now();
    stopped_ = places_.size();
  }

  void KillOne() {
    std::size_t index = random_() % places_.size();
    if (index == stopped_) index = (index + 1) % places_.size();
    places_[index].worker->process().Kill();
    dead_.push_back(std::move(places_[index].worker));
    StartWorker(places_[index]);
  }

  [[nodiscard]] std::vector<Claimer> FinishAll() {
    Continue();
    std::vector<Claimer> claimers;
    for (const auto& worker : dead_) worker->AddClaimers(claimers);
    for (Place& place : places_) {
      place.worker->Stop();
      EXPECT_EQ(place.worker->Finish(Patience(20s)), 0) << place.worker->Failure();
      EXPECT_EQ(place.worker->errors(), 0U) << place.worker->name();
      place.worker->AddClaimers(claimers);
    }
    return claimers;
  }

  const TempDir dir_;
  Host host_{dir_};
  std::mt19937_64 random_;
  std::array<Place, kWorkers> places_;
  std::vector<std::unique_ptr<ClaimWorkerProcess>> dead_;
  std::uint64_t started_ = 0;
  std::size_t stopped_ = kWorkers;
  Deadline stop_ends_{MonotonicTime{}};
  int stops_ = 0;
};

TEST_F(KilledClients, LeaveNoDuplicateAndNoStall) {
  const int kills = static_cast<int>(std::max<std::uint64_t>(10, ScaledLoad(kKills)));
  for (int i = 0; i < kills; ++i) {
    WatchFor(std::chrono::milliseconds(20 + random_() % 160));
    KillOne();
  }
  const std::uint64_t wanted = ScaledLoad(100'000);
  const auto claimed = [this] {
    std::uint64_t ids = 0;
    for (const Place& place : places_) ids += place.worker->ids();
    return ids;
  };
  while (stops_ < 3 || claimed() <= wanted) WatchFor(100ms);
  const std::vector<Claimer> claimers = FinishAll();
  const std::uint64_t ids = CountIds(claimers);
  std::printf("%d kills, %d stops, %llu ids\n", kills, stops_,
              static_cast<unsigned long long>(ids));
  EXPECT_GE(stops_, 2);
  EXPECT_GT(ids, wanted);
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  EXPECT_EQ(Join(CheckRising(claimers)), "");
  EXPECT_EQ(Join(CheckOrder(claimers)), "");
  EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
  // Each kill loses at most the batch that the victim was claiming. A claimer that was off its CPU
  // while its slot was recycled also burns a batch; the margin is for those.
  const std::uint64_t most_lost = kBatch * static_cast<std::uint64_t>(kills) + 100 * kBatch;
  EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit("orders"), ids, most_lost)), "");
  host_.daemon.Stop();
}

}  // namespace
}  // namespace idd::harness
