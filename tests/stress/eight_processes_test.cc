// SPDX-License-Identifier: Apache-2.0
//
// Eight processes claim 2,000,000 ids each at once from one tag with step 10,000.
//
// Method: every process claims one id at a time and logs it with the clock before and after. The
// oracle (claim_oracle.h) then checks all 16,000,000 records: distinct, rising, ordered, leased,
// and `idctl audit` against the number of ids.
//
// The audit may count more ids than the logs: a claimer that is off its CPU before its add for so
// long that the slot is recycled burns the id that it added (docs/shm-abi.md). With 16 slots that
// takes 160,000 ids within one time slice. The test allows a few such ids, but not a segment.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

constexpr std::uint64_t kProcesses = 8;
constexpr std::uint64_t kStep = 10'000;
constexpr std::uint64_t kMaxBurntIds = 1000;

class EightProcesses : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", kStep); }

  // Runs eight workers to their end; each claims `ids` ids, at most `batch` at a time.
  void Run(std::uint64_t ids, std::uint64_t batch) {
    for (std::uint64_t i = 0; i < kProcesses; ++i) {
      WorkerPlan plan{
          .socket = host_.daemon.socket(), .tag = "orders", .name = "worker" + std::to_string(i)};
      plan.ids = ids;
      plan.batch = batch;
      plan.log_capacity = ids;
      plan.seed = i;
      workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    }
    for (const auto& worker : workers_) worker->WaitReady(Patience(10s));
    const std::uint64_t begin_ns = MonotonicNs();
    for (const auto& worker : workers_) worker->Go();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->Finish(Patience(200s)), 0) << worker->Failure();
      EXPECT_EQ(worker->ids(), ids) << worker->name();
      worker->AddClaimers(claimers_);
    }
    const double seconds = static_cast<double>(MonotonicNs() - begin_ns) * 1e-9;
    std::printf("%llu ids in %.2f s\n", static_cast<unsigned long long>(kProcesses * ids), seconds);
  }

  void ExpectAllIsWell(std::uint64_t ids) {
    EXPECT_EQ(Join(CheckUnique(claimers_)), "");
    EXPECT_EQ(Join(CheckRising(claimers_)), "");
    EXPECT_EQ(Join(CheckOrder(claimers_)), "");
    EXPECT_EQ(Join(CheckLeased(claimers_, host_.idctl.Leases("orders"))), "");
    EXPECT_EQ(CountIds(claimers_), kProcesses * ids);
    EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit("orders"), kProcesses * ids, kMaxBurntIds)), "");
  }

  // The oracle over the same logs with one record changed: it must find the change, or its silence
  // above means nothing.
  void ExpectOracleSeesEveryChange() {
    const std::vector<JournalLease> leases = host_.idctl.Leases("orders");
    Claimer& claimer = claimers_[3];
    std::vector<ClaimRecord> records(claimer.records.begin(), claimer.records.end());
    claimer.records = records;
    ClaimRecord& record = records[records.size() / 2];
    const ClaimRecord good = record;
    record.first = claimers_[5].records[100].first;
    EXPECT_NE(Join(CheckUnique(claimers_)), "");
    EXPECT_NE(Join(CheckRising(claimers_)), "");
    EXPECT_NE(Join(CheckOrder(claimers_)), "");
    record.first = 0;
    EXPECT_NE(Join(CheckLeased(claimers_, leases)), "");
    record = good;
    EXPECT_EQ(Join(CheckUnique(claimers_)) + Join(CheckLeased(claimers_, leases)), "");
  }

  const TempDir dir_;
  Host host_{dir_};
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
  std::vector<Claimer> claimers_;
};

TEST_F(EightProcesses, ClaimDistinctOrderedLeasedIdsOneAtATime) {
  const std::uint64_t ids = ScaledLoad(2'000'000);
  Run(ids, 1);
  ExpectAllIsWell(ids);
  host_.daemon.Stop();
}

TEST_F(EightProcesses, ClaimDistinctOrderedLeasedIdsInMixedBatches) {
  const std::uint64_t ids = ScaledLoad(500'000);
  Run(ids, 300);
  ExpectAllIsWell(ids);
  ExpectOracleSeesEveryChange();
  // The handed-back range must fit the claims: the next lease begins right after them.
  const AuditRow audit = host_.idctl.Audit("orders");
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), 1 + audit.claimed);
}

}  // namespace
}  // namespace idd::harness
