// SPDX-License-Identifier: Apache-2.0
//
// idd is killed with SIGKILL under load, fifty times, and restarted.
//
// Method: three kinds of workers claim all the while.
//  - `hot` workers use a tag with small segments as fast as they can, so their ring runs dry. Their
//    deadline exceeds every absence of idd, so they must see no error. In the end they must claim
//    from a lease of the last idd, which shows that they attached again by themselves.
//  - `hasty` workers use the same tag with a deadline shorter than some absences. They retry on
//    TIMEOUT and UNAVAILABLE only. Each UNAVAILABLE call must have been in flight while idd was
//    absent, and there must be some.
//  - `calm` workers use a tag whose ring lasts for the whole test. They must see no error.
// The oracle looks for duplicates, falling ids and ids outside a lease. Claims of different
// processes are not compared in time, because clients use up a ring that lost its daemon while the
// next daemon serves a new one. Ids left in the old rings count as abandoned, claimed or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr int kDaemonKills = 50;
constexpr std::uint64_t kHastyMs = 30;

// From before the SIGKILL until the next idd answers.
struct Absence {
  std::uint64_t from_ns;
  std::uint64_t until_ns;
};

class KilledDaemon : public ::testing::Test {
 protected:
  KilledDaemon() : random_(TestSeed()) {}

  void SetUp() override {
    host_.StartWithTag("hot", 1000);
    host_.idctl.CreateTag("calm", 10'000'000);
    // The ring has its lease before the first claimer without a timeout looks.
    for (int i = 0; i < 2; ++i) static_cast<void>(host_.idctl.Claim("calm"));
    WorkerPlan hot;
    hot.tag = "hot";
    hot.batch = 40;
    hot.timeout_ms = static_cast<std::uint64_t>(Patience(10s).count());
    for (int i = 0; i < 3; ++i) StartWorker("hot" + std::to_string(i), hot);
    WorkerPlan hasty = hot;
    hasty.timeout_ms = kHastyMs;
    hasty.retry = true;
    for (int i = 0; i < 2; ++i) StartWorker("hasty" + std::to_string(i), hasty);
    WorkerPlan calm;
    calm.tag = "calm";
    calm.pace_us = 200;
    calm.timeout_ms = kHastyMs;
    for (int i = 0; i < 2; ++i) StartWorker("calm" + std::to_string(i), calm);
    for (const auto& worker : workers_) worker->WaitReady(Patience(10s));
    for (const auto& worker : workers_) worker->Go();
  }

  void StartWorker(const std::string& name, WorkerPlan plan) {
    plan.socket = host_.daemon.socket();
    plan.name = name;
    plan.log_capacity = 1 << 21;
    plan.seed = workers_.size();
    workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
  }

  void ExpectWorkersLive() {
    for (const auto& worker : workers_) {
      Require(worker->process().Running(), worker->name() + ": " + worker->Failure());
    }
  }

  void KillAndStart(bool leave_alone) {
    const std::uint64_t killed_ns = MonotonicNs();
    host_.daemon.Kill();
    // Longer than the ring and the hasty workers' timeout last.
    if (leave_alone) std::this_thread::sleep_for(std::chrono::milliseconds(80 + random_() % 80));
    host_.daemon.Start();
    absences_.push_back({killed_ns, MonotonicNs()});
  }

  // Every claimer of the hot tag has an id from a lease of the current idd.
  [[nodiscard]] bool AttachedAgain() {
    std::uint64_t lowest_base = UINT64_MAX;
    for (const JournalLease& lease : host_.idctl.Leases("hot")) {
      if (lease.state == "active") lowest_base = std::min(lowest_base, lease.base);
    }
    for (const auto& worker : workers_) {
      if (worker->name().starts_with("calm")) continue;
      const auto last_id = worker->logs()[0].header().last_id.load(std::memory_order_relaxed);
      if (last_id < lowest_base) return false;
    }
    return true;
  }

  [[nodiscard]] std::vector<Claimer> Finish(const std::string& kind) {
    std::vector<Claimer> claimers;
    for (const auto& worker : workers_) {
      if (!worker->name().starts_with(kind)) continue;
      worker->Stop();
      EXPECT_EQ(worker->Finish(Patience(20s)), 0) << worker->Failure();
      worker->AddClaimers(claimers);
    }
    return claimers;
  }

  static void ExpectNoErrors(const std::vector<Claimer>& claimers) {
    for (const Claimer& claimer : claimers) {
      for (const ClaimRecord& record : claimer.records) ASSERT_NE(record.count, 0U) << claimer.name;
    }
  }

  // The UNAVAILABLE calls overlapped an absence of idd, or waited for their whole timeout: on a
  // busy machine idd may accept later than a hasty client waits.
  void ExpectUnavailableInAbsencesOnly(const std::vector<Claimer>& claimers) {
    int unavailable = 0;
    std::string unexcused;
    int unexcused_count = 0;
    for (const Claimer& claimer : claimers) {
      for (const ClaimRecord& record : claimer.records) {
        if (record.count != 0 || record.first != IDCLIENT_UNAVAILABLE) continue;
        ++unavailable;
        const bool has_waited = record.after_ns - record.before_ns >= kHastyMs * 1'000'000;
        const bool excused =
            has_waited ||
            std::any_of(absences_.begin(), absences_.end(), [&record](const Absence& absence) {
              return record.before_ns <= absence.until_ns && record.after_ns >= absence.from_ns;
            });
        if (excused) continue;
        ++unexcused_count;
        unexcused += claimer.name + ": UNAVAILABLE at " + std::to_string(record.before_ns) + ".." +
                     std::to_string(record.after_ns) + " ns while idd was there\n";
      }
    }
    std::printf("%d calls found no idd\n", unavailable);
    EXPECT_LE(unexcused_count, 2 + unavailable / 20) << unexcused;
    EXPECT_GT(unavailable, 0) << "the hot ring did not run dry while idd was absent";
  }

  void ExpectOracleIsContent(const std::string& tag, const std::vector<Claimer>& claimers) {
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases(tag))), "");
    AuditRow audit = host_.idctl.Audit(tag);
    EXPECT_GT(audit.abandoned, 0U);
    audit.claimed += audit.abandoned;
    audit.abandoned = 0;
    EXPECT_EQ(Join(CheckAudit(audit, CountIds(claimers), UINT64_MAX)), "");
  }

  const TempDir dir_;
  Host host_{dir_};
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
  std::vector<Absence> absences_;
};

TEST_F(KilledDaemon, CausesNoDuplicateAndNoErrorWhileTheRingHasIds) {
  const int kills = static_cast<int>(std::max<std::uint64_t>(8, ScaledLoad(kDaemonKills)));
  for (int i = 0; i < kills; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + random_() % 140));
    ExpectWorkersLive();
    KillAndStart(i % 3 == 0);
  }
  EXPECT_TRUE(WaitUntil(Patience(10s), [this] { return AttachedAgain(); }));
  ExpectWorkersLive();
  std::vector<Claimer> hot = Finish("hot");
  const std::vector<Claimer> hasty = Finish("hasty");
  const std::vector<Claimer> calm = Finish("calm");
  ExpectNoErrors(hot);
  ExpectNoErrors(calm);
  ExpectUnavailableInAbsencesOnly(hasty);
  hot.insert(hot.end(), hasty.begin(), hasty.end());
  std::printf("%d kills, %llu + %llu ids\n", kills, static_cast<unsigned long long>(CountIds(hot)),
              static_cast<unsigned long long>(CountIds(calm)));
  ExpectOracleIsContent("hot", hot);
  ExpectOracleIsContent("calm", calm);
  host_.daemon.Stop();
}

}  // namespace
}  // namespace idd::harness
