// SPDX-License-Identifier: Apache-2.0
//
// Many hosts on one MariaDB.
//
// Method: every host is a real idd with its own socket, state dir and name; client processes claim
// from each. The oracle looks for ids that came twice, anywhere, and for ids outside a lease; the
// audit of every host has to add up.
#include "mysql_hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/mysql_proxy.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

// Leaf's own transaction, in a loop.
class LeafServer {
 public:
  LeafServer(const DbServer& server, std::string tag)
      : session_(server.Session()), tag_(std::move(tag)), thread_([this] { Loop(); }) {}
  ~LeafServer() { Stop(); }
  LeafServer(const LeafServer&) = delete;
  LeafServer& operator=(const LeafServer&) = delete;

  // Its segments, as claims.
  std::vector<ClaimRecord> Stop() {
    stopping_.store(true);
    if (thread_.joinable()) thread_.join();
    return segments_;
  }

 private:
  void Loop() {
    const std::string is_tag = " WHERE biz_tag = '" + tag_ + "'";
    while (!stopping_.load()) {
      session_.Execute("BEGIN");
      session_.Execute("UPDATE leaf_alloc SET max_id = max_id + step" + is_tag);
      const std::uint64_t max_id =
          std::stoull(session_.Query("SELECT max_id FROM leaf_alloc" + is_tag));
      const std::uint64_t step =
          std::stoull(session_.Query("SELECT step FROM leaf_alloc" + is_tag));
      session_.Execute("COMMIT");
      ClaimRecord& record = segments_.emplace_back();
      record.first = max_id - step;
      record.count = step;
      std::this_thread::sleep_for(1ms);
    }
  }

  DbSession session_;
  const std::string tag_;
  std::vector<ClaimRecord> segments_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST_F(MysqlHosts, SixHostsAndALeafServerNeverGiveAnIdTwice) {
  constexpr std::uint64_t kIds = 1'000'000;
  const std::uint64_t ids = ScaledLoad(kIds);
  StartHosts(6, {"--step", "1000", "--max-prefetch", "100000"});
  LeafServer leaf(server_, "orders");
  WorkerPlan plan;
  plan.ids = ids;
  plan.batch = 40;
  StartWorkers(4, plan);
  std::vector<Claimer> claimers = Finish(Patience(120s));
  const std::vector<ClaimRecord> segments = leaf.Stop();
  EXPECT_EQ(CountIds(claimers), 24 * ids);
  EXPECT_GT(segments.size(), 10U);
  const std::vector<JournalLease> leases = hosts_[0]->idctl.Leases("orders");
  EXPECT_EQ(Join(CheckRising(claimers)), "");
  EXPECT_EQ(Join(CheckLeased(claimers, leases)), "");
  claimers.push_back({.name = "leaf", .records = segments});
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  ExpectAccounted();
  std::printf("%llu ids by 24 processes on 6 hosts, %zu leases, %zu segments of Leaf's\n",
              static_cast<unsigned long long>(24 * ids), leases.size(), segments.size());
}

TEST_F(MysqlHosts, ServerKilledTenTimesMakesGapsThatTheJournalExplains) {
  StartHosts(3, {"--step", "1000", "--max-prefetch", "100000"});
  WorkerPlan plan;
  plan.batch = 8;
  plan.pace_us = 50;
  plan.retry = true;
  plan.log_capacity = 1 << 21;
  StartWorkers(4, plan);
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(300ms);
    server_.Kill();
    std::this_thread::sleep_for(200ms);
    server_.Start();
  }
  ExpectFreshLeases();
  for (const auto& worker : workers_) worker->Stop();
  const std::vector<Claimer> claimers = Finish(Patience(60s));
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  EXPECT_EQ(Join(CheckLeased(claimers, hosts_[0]->idctl.Leases("orders"))), "");
  ExpectAccounted();
}

TEST_F(MysqlHosts, AnswersOfCommitsThatNeverComeMakeGapsThatTheJournalExplains) {
  server_.Start();
  const std::string path = dir_.File("proxy");
  MysqlProxy proxy(path, server_.socket());
  StartHosts(2, {"--step", "500", "--max-step", "500"},
             "mysql://idd:secret@localhost/idd?unix_socket=" + path);
  WorkerPlan plan;
  plan.batch = 8;
  plan.pace_us = 20;
  plan.retry = true;
  plan.log_capacity = 1 << 21;
  StartWorkers(3, plan);
  // A lease whose answer the host never got.
  const auto is_lost = [](const JournalLease& lease) {
    return lease.state == "abandoned" && lease.claimed == 0;
  };
  proxy.DropCommits(5);
  EXPECT_TRUE(WaitUntil(Patience(60s), [&] {
    if (proxy.dropped() < 30) return false;
    try {
      const std::vector<JournalLease> leases = hosts_[0]->idctl.Leases("orders");
      return std::any_of(leases.begin(), leases.end(), is_lost);
    } catch (const HarnessError&) {  // the store is down for a moment
      return false;
    }
  }));
  proxy.DropCommits(0);
  ExpectFreshLeases();
  for (const auto& worker : workers_) worker->Stop();
  const std::vector<Claimer> claimers = Finish(Patience(60s));
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  const std::vector<JournalLease> leases = hosts_[0]->idctl.Leases("orders");
  EXPECT_EQ(Join(CheckLeased(claimers, leases)), "");
  ExpectAccounted();
  const auto lost = std::count_if(leases.begin(), leases.end(), is_lost);
  std::printf("%d answers dropped, %ld leases abandoned of %zu\n", proxy.dropped(),
              static_cast<long>(lost), leases.size());
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace idd::harness
