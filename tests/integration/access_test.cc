// SPDX-License-Identifier: Apache-2.0
//
// Tags whose ids are claimed over the socket only: no client gets any part of their rings. The
// policy can be changed while clients claim.
//
// Method: processes claim mixed batches, each from several threads, while the test switches the
// policy back and forth. /proc/<pid>/maps shows which rings a process has mapped, as their memfds
// have names. In the end the oracle (claim_oracle.h) checks all logs. A claimer that was between
// its add and its second look while its ring was closed gives up what it added: at most one batch
// for each thread and each closed ring.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/test_environment.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr std::uint64_t kStep = 1000;
constexpr std::size_t kProcesses = 4;
constexpr std::uint64_t kWorkerThreads = 2;
constexpr std::uint64_t kBatch = 50;

class Access : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--step", std::to_string(kStep), "--max-step",
                    std::to_string(kStep), "--refill", "leaf", "--access", "socket"});
  }

  void Switch(const std::string& access) {
    host_.idctl.Do({"tag", "set", "orders", "--access", access});
  }
  [[nodiscard]] idclient::Client Connect() const {
    return idclient::Client(
        {.socket_path = host_.daemon.socket(),
         .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(Patience(5s))});
  }
  void StartWorker(bool retry = false) {
    WorkerPlan plan{.socket = host_.daemon.socket(),
                    .tag = "orders",
                    .name = "worker" + std::to_string(workers_.size())};
    plan.threads = kWorkerThreads;
    plan.batch = kBatch;
    plan.pace_us = 100;
    plan.retry = retry;
    plan.seed = workers_.size();
    workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    workers_.back()->WaitReady(Patience(10s));
    workers_.back()->Go();
  }
  // Every process claims some more.
  void ExpectProgress() {
    for (const auto& worker : workers_) {
      const std::uint64_t before = worker->ids();
      EXPECT_TRUE(WaitUntil(Patience(10s), [&] { return worker->ids() > before + 10 * kBatch; }))
          << worker->name() << " " << worker->Failure();
    }
  }
  [[nodiscard]] static std::set<std::string> MappedBy(ClaimWorkerProcess& worker) {
    return RingsMappedBy(std::to_string(worker.process().pid()));
  }
  // The claims of all workers.
  [[nodiscard]] std::vector<Claimer> FinishWorkers() {
    std::vector<Claimer> claimers;
    for (const auto& worker : workers_) worker->Stop();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->Finish(Patience(30s)), 0) << worker->Failure();
      worker->AddClaimers(claimers);
    }
    return claimers;
  }
  void ExpectAllIsWell(std::uint64_t most_lost_ids) {
    const std::vector<Claimer> claimers = FinishWorkers();
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckOrder(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
    EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit("orders"), CountIds(claimers), most_lost_ids)), "");
  }

  const TempDir dir_;
  CleanHost host_{dir_};
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
};

TEST_F(Access, BySocketServesEveryKindOfClaim) {
  idclient::Client client = Connect();
  idclient::Tag tag = client.tag("orders");
  EXPECT_NE(idclient_tag_view(tag.get(), shm::kClaimViewVersion), nullptr);
  std::uint64_t next = 1;
  for (; next <= 20; ++next) ASSERT_EQ(tag.claim(), next) << "inlined: calls the library";
  ASSERT_EQ(tag.try_claim().value(), next++);
  std::vector<std::uint64_t> ids(5 * kStep);
  tag.claim_many(ids);  // more than a segment: several requests
  for (const std::uint64_t id : ids) ASSERT_EQ(id, next++);
  const idclient::Range range = tag.claim_range(kStep * 2);
  EXPECT_EQ(range.first, next);
  EXPECT_GE(range.count, 1U);
  EXPECT_LE(range.count, kStep);
  next += range.count;
  EXPECT_EQ(client.tag("orders", {.block_size = 8}).claim(), next);
  EXPECT_EQ(tag.claim(), next + 8) << "after the block";
  EXPECT_EQ(MappedRings("self"), 0);
  const auto status = host_.idctl.Json({"status", "orders"}).at("tags").at(0);
  EXPECT_EQ(status.at("claimed"), next + 8);
  EXPECT_LE(status.at("fallbacks"), 10) << "claims that found the ring dry";
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), next + 9);
}

TEST_F(Access, IsSwitchedToAndFroWhileProcessesClaim) {
  for (std::size_t i = 0; i < kProcesses; ++i) StartWorker();
  constexpr int kRounds = 3;
  for (int round = 0; round <= kRounds; ++round) {
    // The last closed ring stays mapped, unused, in the processes that had it; they get no other.
    ExpectProgress();
    std::vector<std::set<std::string>> closed;
    for (const auto& worker : workers_) {
      closed.push_back(MappedBy(*worker));
      EXPECT_EQ(closed.back().size(), round == 0 ? 0U : 1U) << worker->name();
    }
    {
      idclient::Client late = Connect();
      idclient::Tag tag = late.tag("orders");
      for (int i = 0; i < 100; ++i) static_cast<void>(tag.claim());
      EXPECT_EQ(MappedRings("self"), 0);
    }
    if (round == kRounds) break;
    Switch("ring");
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      EXPECT_TRUE(WaitUntil(Patience(10s), [&] {
        const std::set<std::string> rings = MappedBy(*workers_[i]);
        return rings.size() == 1 && rings != closed[i];
      })) << workers_[i]->name();
    }
    ExpectProgress();
    const std::size_t mark = host_.daemon.LogMark();
    Switch("socket");
    EXPECT_TRUE(host_.daemon.WaitForLogLine("ring.retired.*orders", mark, Patience(5s)));
  }
  const std::uint64_t late_ids = 100 * (kRounds + 1);
  ExpectAllIsWell(late_ids + kRounds * kProcesses * kWorkerThreads * kBatch);
  EXPECT_EQ(host_.daemon.Log().find("quarantined"), std::string::npos);
}

TEST_F(Access, SurvivesTheDeathOfTheDaemonRightAfterASwitch) {
  for (std::size_t i = 0; i < 2; ++i) StartWorker(true);
  for (const char* access : {"ring", "socket", "ring", "socket"}) {
    ExpectProgress();
    Switch(access);
    host_.daemon.Kill();
    host_.daemon.Start();
    EXPECT_EQ(host_.idctl.Json({"tag", "show", "orders"}).at("tag").at("access"), access);
  }
  ExpectProgress();
  const std::vector<Claimer> claimers = FinishWorkers();
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

}  // namespace
}  // namespace idd::harness
