// SPDX-License-Identifier: Apache-2.0
//
// Order cpu: eight processes with two threads each claim as fast as they can, by call, inlined and
// in ranges, while
//  - the threads are moved between CPUs every millisecond,
//  - processes are stopped, continued and killed at random, and others take their place,
//  - an operator drains and resumes the tag,
//  - idd is killed, stopped and restarted every three seconds.
// Every fourth process has no restartable sequences, so it claims from the slots of the same rings.
//
// Oracle: each claimed id is marked in a bitmap that all share, so a duplicate is found at once. In
// the end all marked ids are in leases, and the audit counts them and at most
//   lanes x block for each ring, the ids that claimers say they dropped, and the block and the
//   batch of each thread that was killed.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/id_bitmap.h"
#include "support/service_manager_stand_in.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr std::size_t kLaneWorkers = 8;
constexpr std::uint64_t kThreads = 2;
constexpr std::uint64_t kBlock = 64;
constexpr std::uint64_t kLaneBatch = 100;
constexpr std::uint64_t kSeconds = 60;
constexpr std::chrono::milliseconds kBetweenRestarts = 3s;  // 200 in ten minutes

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  const std::string path = "/proc/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  while (directory != nullptr) {
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') threads.push_back(static_cast<pid_t>(std::stol(entry->d_name)));
  }
  return threads;
}

class Lanes : public ::testing::Test {
 protected:
  Lanes() : random_(TestSeed()) { host_.daemon.options().manager = &manager_; }

  void SetUp() override {
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--order", "cpu", "--step", "50000", "--lane-block",
                    std::to_string(kBlock)});
    for (std::size_t i = 0; i < kLaneWorkers; ++i) StartWorker(i);
  }

  void StartWorker(std::size_t place) {
    WorkerPlan plan{.socket = host_.daemon.socket(),
                    .tag = "orders",
                    .name = "worker" + std::to_string(started_++)};
    plan.batch = kLaneBatch;
    plan.threads = kThreads;
    plan.retry = true;  // a drained tag refuses
    plan.bitmap = dir_.File("bitmap");
    plan.log_capacity = 1 << 16;
    plan.seed = started_;
    plan.timeout_ms = 1'000;
    if (place % 4 == 3) plan.environment = {"GLIBC_TUNABLES=glibc.pthread.rseq=0"};
    workers_[place] = std::make_unique<ClaimWorkerProcess>(dir_, plan);
    workers_[place]->Go();
  }

  void MoveThreads() {
    for (const auto& worker : workers_) {
      for (const pid_t thread : ThreadsOf(worker->process().pid())) {
        if (random_() % 2 == 0) continue;
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        for (std::size_t cpu = 0; cpu < cpus_; ++cpu) {
          if (random_() % 2 == 0) CPU_SET(cpu, &cpus);
        }
        if (CPU_COUNT(&cpus) == 0) CPU_SET(random_() % cpus_, &cpus);
        if (::sched_setaffinity(thread, sizeof(cpus), &cpus) == 0) ++moves_;
      }
    }
  }

  void StopOrKillOne() {
    const std::size_t place = random_() % kLaneWorkers;
    ChildProcess& process = workers_[place]->process();
    if (random_() % 2 == 0) {
      process.Signal(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 10));
      process.Signal(SIGCONT);
      ++stops_;
      return;
    }
    process.Kill();
    ++kills_;
    StartWorker(place);
  }

  // The ring is about to end.
  void NoteDropped() {
    const nlohmann::json status = host_.idctl.Json({"status", "orders"});
    const nlohmann::json& lanes = status.at("tags").at(0).at("lanes");
    if (!lanes.is_null()) dropped_ += lanes.at("dropped").get<std::uint64_t>();
  }

  void DrainAndResume() {
    NoteDropped();
    host_.idctl.Do({"drain", "orders"});
    std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 5));
    host_.idctl.Do({"resume", "orders"});
    ++drains_;
  }

  void RestartDaemon() {
    NoteDropped();
    switch (random_() % 3) {
      case 0:
        host_.daemon.Kill();
        break;
      case 1:
        host_.daemon.Stop();
        break;
      default:
        host_.daemon.Leave();
    }
    host_.daemon.Start();
    ++restarts_;
  }

  void ExpectWorkersLive() {
    for (const auto& worker : workers_) {
      Require(worker->process().Running(), worker->name() + ": " + worker->Failure());
    }
  }

  void Shake(std::chrono::seconds time) {
    const Deadline end = Deadline::After(time);
    MonotonicTime next_restart = MonotonicClock::now() + kBetweenRestarts / 2;
    while (!end.passed()) {
      MoveThreads();
      if (random_() % 8 == 0) StopOrKillOne();
      if (random_() % 100 == 0) DrainAndResume();
      if (MonotonicClock::now() >= next_restart) {
        RestartDaemon();
        next_restart = MonotonicClock::now() + kBetweenRestarts;
      }
      ExpectWorkersLive();
      std::this_thread::sleep_for(1ms);
    }
  }

  void FinishWorkers() {
    for (const auto& worker : workers_) worker->Stop();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->Finish(Patience(60s)), 0) << worker->Failure();
    }
  }

  // All marked ids are leased; returns how many there are.
  [[nodiscard]] std::uint64_t ExpectAllLeased() {
    std::uint64_t limit = 0;
    std::uint64_t leased = 0;
    std::vector<shm::IdRange> ranges;
    for (const JournalLease& lease : host_.idctl.Leases("orders")) {
      limit = std::max(limit, lease.limit);
      // What was handed back is in a later lease, if it was claimed.
      const bool is_open = lease.state == "active";
      const std::uint64_t end = is_open ? lease.limit : lease.base + lease.claimed;
      ranges.push_back({lease.base, end});
    }
    for (const shm::IdRange& range : ranges) leased += bitmap_.CountIn(range);
    EXPECT_LT(limit, IdBitmap::kIds);
    const std::uint64_t marked = bitmap_.CountAll();
    EXPECT_EQ(leased, marked) << "ids outside all leases";
    return marked;
  }

  const TempDir dir_;
  ServiceManagerStandIn manager_{dir_};
  Host host_{dir_};
  IdBitmap bitmap_ = IdBitmap::Create(dir_.File("bitmap"));
  std::mt19937_64 random_;
  std::array<std::unique_ptr<ClaimWorkerProcess>, kLaneWorkers> workers_;
  const std::size_t cpus_ = std::max(1U, std::thread::hardware_concurrency());
  std::uint64_t started_ = 0;
  std::uint64_t moves_ = 0;
  std::uint64_t stops_ = 0;
  std::uint64_t kills_ = 0;
  std::uint64_t drains_ = 0;
  std::uint64_t restarts_ = 0;
  std::uint64_t dropped_ = 0;
};

TEST_F(Lanes, GiveNoIdTwiceBesideMovesStopsKillsDrainsAndRestarts) {
  Shake(std::chrono::seconds(std::max<std::uint64_t>(5, ScaledLoad(kSeconds))));
  FinishWorkers();
  NoteDropped();
  host_.daemon.Stop();  // all leases are closed then
  host_.daemon.Start();
  const std::uint64_t ids = ExpectAllLeased();
  const std::uint64_t rings = 2 + drains_ + restarts_;
  const std::uint64_t lost = rings * cpus_ * kBlock + dropped_ +
                             kills_ * kThreads * (kBlock + kLaneBatch) +
                             // A claimer that is off its CPU while its slot is recycled burns what
                             // it adds; so does one that a withdrawal overtakes for long.
                             rings * kLaneWorkers * kThreads * (kBlock + kLaneBatch);
  const AuditRow audit = host_.idctl.Audit("orders");
  std::printf(
      "%llu ids, %llu moves, %llu stops, %llu kills, %llu drains, %llu restarts; lost %llu of at "
      "most %llu, %llu of them dropped\n",
      static_cast<unsigned long long>(ids), static_cast<unsigned long long>(moves_),
      static_cast<unsigned long long>(stops_), static_cast<unsigned long long>(kills_),
      static_cast<unsigned long long>(drains_), static_cast<unsigned long long>(restarts_),
      static_cast<unsigned long long>(audit.claimed - ids), static_cast<unsigned long long>(lost),
      static_cast<unsigned long long>(dropped_));
  EXPECT_EQ(Join(CheckAudit(audit, ids, lost)), "");
  EXPECT_GT(ids, 1'000'000U);
  host_.daemon.Stop();
}

}  // namespace
}  // namespace idd::harness
