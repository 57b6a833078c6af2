// SPDX-License-Identifier: Apache-2.0
//
// Tags of mode `ticket`: ids rise in real time over all hosts, and claims that wait together share
// a transaction.
//
// Method: four real idds on one MariaDB or one SQLite file, each with processes of many threads
// that claim one id at a time. All processes have one clock (CLOCK_MONOTONIC of the machine), so
// the oracle's order holds over the hosts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mysql_hosts.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr int kTicketHosts = 4;
constexpr int kProcessesOfAHost = 4;
// A twentieth of them under a sanitizer.
constexpr std::uint64_t kThreadsOfAProcess = 250;

// Ids a second, from the first claim's begin to the last one's end.
double RateOf(const std::vector<Claimer>& claimers) {
  std::uint64_t begin = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t end = 0;
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) {
      begin = std::min<std::uint64_t>(begin, record.before_ns);
      end = std::max<std::uint64_t>(end, record.after_ns);
    }
  }
  return static_cast<double>(CountIds(claimers)) * 1e9 / static_cast<double>(end - begin);
}

class Tickets : public MysqlHosts {
 protected:
  void ExpectRisingOverAllHosts(const std::vector<Claimer>& claimers) {
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckOrder(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, hosts_[0]->idctl.Leases("orders"))), "");
    ExpectAccounted();
  }
};

TEST_F(Tickets, FourThousandClaimersOnFourHostsShareTransactions) {
  StartHosts(kTicketHosts, {"--mode", "ticket"});
  // First, one claimer: each of its claims has a transaction of its own.
  WorkerPlan plan;
  plan.ids = ScaledLoad(1000);
  AddWorker(*hosts_[0], plan).WaitReady(Patience(20s));
  workers_.front()->Go();
  const std::vector<Claimer> alone = Finish(Patience(100s));
  EXPECT_EQ(CountIds(alone), plan.ids);
  const double single = RateOf(alone);
  const std::uint64_t transactions = hosts_[0]->idctl.Leases("orders").size();
  EXPECT_GE(transactions, plan.ids);
  const auto kept = std::exchange(workers_, {});  // with its logs

  plan.ids = ScaledLoad(100);
  plan.threads = ScaledLoad(kThreadsOfAProcess);
  plan.log_capacity = 1 << 10;
  StartWorkers(kProcessesOfAHost, plan);
  std::vector<Claimer> claimers = Finish(Patience(200s));
  const std::uint64_t tickets = CountIds(claimers);
  const double together = RateOf(claimers);
  EXPECT_EQ(tickets, kTicketHosts * kProcessesOfAHost * plan.threads * plan.ids);
  claimers.insert(claimers.end(), alone.begin(), alone.end());
  ExpectRisingOverAllHosts(claimers);
  const double shared =
      static_cast<double>(tickets) /
      static_cast<double>(hosts_[0]->idctl.Leases("orders").size() - transactions);
  // Under a sanitizer there are fewer claimers to share one.
  const double waiting = static_cast<double>(kProcessesOfAHost * plan.threads);
  EXPECT_GT(shared, std::min(20.0, waiting / 4)) << "tickets for a transaction";
  std::printf("%.0f tickets/s, %.0f for a transaction; one claimer: %.0f/s; ratio %.1f\n", together,
              shared, single, together / single);
}

TEST_F(Tickets, RiseOverAllHostsWhileHostsAndTheServerAreKilled) {
  StartHosts(kTicketHosts, {"--mode", "ticket"});
  WorkerPlan plan;
  plan.threads = 8;
  plan.batch = 4;
  plan.retry = true;
  plan.pace_us = 500;
  StartWorkers(2, plan);
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(500ms);
    if (i % 3 == 2) {
      server_.Kill();
      server_.Start();
    } else {
      DaemonProcess& daemon = hosts_[static_cast<std::size_t>(i) % hosts_.size()]->daemon;
      daemon.Kill();
      daemon.Start();
    }
  }
  const std::uint64_t before = workers_.front()->ids();
  EXPECT_TRUE(WaitUntil(Patience(40s), [&] { return workers_.front()->ids() > before; }));
  // An id that came before the kill may be logged after it.
  for (const auto& host : hosts_) {
    EXPECT_TRUE(WaitUntil(Patience(40s), [&] {
      return host->idctl.Json({"status"}).at("database").at("state") == "up";
    })) << host->daemon.Log();
  }
  for (const auto& worker : workers_) worker->Stop();
  ExpectRisingOverAllHosts(Finish(Patience(60s)));
}

}  // namespace
}  // namespace idd::harness
