// SPDX-License-Identifier: Apache-2.0
//
// A process opens a tag, claims and forks; then parent and children continue to claim with the
// handle they share.
//
// Method: the claims of the parent and of every child are logged; to the oracle they are claimers
// like any other. Small segments make all of them use the socket, which a forked child must not
// share with its parent. In the second test other threads of the parent are in the middle of claims
// during the fork, so a child may inherit a lock that no thread will ever release.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

class ForkedClients : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", 500); }

  void RunAndCheck(std::uint64_t threads, std::uint64_t children) {
    WorkerPlan plan{.socket = host_.daemon.socket(), .tag = "orders", .name = "family"};
    plan.ids = ScaledLoad(50'000);
    plan.batch = 60;
    plan.threads = threads;
    plan.children = children;
    plan.log_capacity = plan.ids;
    ClaimWorkerProcess worker(dir_, plan);
    worker.WaitReady(Patience(10s));
    worker.Go();
    EXPECT_EQ(worker.Finish(Patience(60s)), 0) << worker.Failure();
    std::vector<Claimer> claimers;
    worker.AddClaimers(claimers);
    for (const ClaimLog& log : worker.logs()) {
      EXPECT_EQ(log.header().ids.load(), plan.ids) << log.message();
    }
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckOrder(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
    // One id was claimed before the fork and not logged; recycled slots burn a batch now and then.
    const std::uint64_t most_lost = 1 + 100 * plan.batch;
    EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit("orders"), CountIds(claimers), most_lost)), "");
    host_.daemon.Stop();
  }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(ForkedClients, ClaimDistinctIdsBesideTheirParent) { RunAndCheck(1, 5); }

TEST_F(ForkedClients, ClaimDistinctIdsWhenForkedBesideClaimingThreads) {
  if (const std::string why = WhyNoForkBesideThreads(); !why.empty()) GTEST_SKIP() << why;
  RunAndCheck(4, 4);
}

}  // namespace
}  // namespace idd::harness
