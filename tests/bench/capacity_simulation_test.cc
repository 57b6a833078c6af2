// SPDX-License-Identifier: Apache-2.0
//
// Checks the statements of docs/capacity.md about clusters on a small one.
#include "capacity_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "capacity_slice.h"

namespace idd::capacity {
namespace {

constexpr double kSettleS = 60;

double LeasesASecond(const Outcome& outcome, const Cluster& cluster) {
  return static_cast<double>(outcome.load.leases) / (cluster.duration_s - cluster.settle_s);
}

// The highest rate in any second from `begin_s` on.
std::uint32_t Peak(const Outcome& outcome, std::ptrdiff_t begin_s) {
  return *std::max_element(outcome.leases.begin() + begin_s, outcome.leases.end());
}

Cluster Small() {
  return {.hosts = 100, .ids_per_s = 1e5, .duration_s = 1200, .settle_s = kSettleS};
}

Cluster WithOutage(double seconds) {
  return {.hosts = 25,
          .ids_per_s = 250'000,
          .duration_s = 600 + seconds,
          .outage = {.begin_s = 300, .end_s = 300 + seconds}};
}

TEST(Capacity, LeasesStayTheSameWhenTheLoadGrowsAThousandfold) {
  const Cluster cluster = Small();
  Cluster busy = cluster;
  busy.ids_per_s *= 1000;
  const Outcome before = Simulate(cluster);
  const Outcome after = Simulate(busy);
  EXPECT_GT(before.load.leases, 0U);
  EXPECT_LE(LeasesASecond(after, busy), LeasesASecond(before, cluster) * 1.5);
  EXPECT_NEAR(LeasesASecond(after, busy) / after.formula_leases_per_s, 1, 0.03);
  EXPECT_LE(after.load.Commits(), before.load.Commits() * 3 / 2);
  EXPECT_EQ(before.load.dry_claims, 0);
  EXPECT_EQ(after.load.dry_claims, 0);
}

// The same with leases of one size: their number grows with the load, as the simulation must show.
TEST(Capacity, LeasesOfOneSizeGrowWithTheLoad) {
  Cluster cluster{.hosts = 10,
                  .tags_per_host = 10,
                  .ids_per_s = 1e3,
                  .spread = 0,
                  .duration_s = 600,
                  .settle_s = 300,
                  .looks = Looks::kEverySecond};
  cluster.refill.rule = daemon::RefillRule::kLeaf;
  cluster.refill.max_step = cluster.refill.step;
  Cluster busy = cluster;
  busy.ids_per_s *= 1000;
  busy.duration_s = 320;
  EXPECT_GT(LeasesASecond(Simulate(busy), busy), LeasesASecond(Simulate(cluster), cluster) * 900);
}

// The policy counts whole ids in the busiest second, so slow tags lease slightly more at once.
TEST(Capacity, FormulaAgrees) {
  for (const double ids_per_s : {1e5, 1e6}) {
    Cluster cluster = Small();
    cluster.ids_per_s = ids_per_s;
    cluster.refill.outage_tolerance = std::chrono::hours(1);
    const Outcome outcome = Simulate(cluster);
    const double ratio = LeasesASecond(outcome, cluster) / outcome.formula_leases_per_s;
    EXPECT_LE(ratio, 1.02) << ids_per_s << " ids/s";
    EXPECT_GE(ratio, ids_per_s < 1e6 ? 0.85 : 0.97) << ids_per_s << " ids/s";
  }
}

TEST(Capacity, SecondsThatAreLeftOutChangeNothing) {
  for (const double ids_per_s : {1e2, 1e4, 1e5}) {
    Cluster cluster{.hosts = 10, .ids_per_s = ids_per_s, .duration_s = 1800, .settle_s = kSettleS};
    const auto leases = static_cast<double>(Simulate(cluster).load.leases);
    cluster.looks = Looks::kEverySecond;
    const auto every = static_cast<double>(Simulate(cluster).load.leases);
    EXPECT_NEAR(leases, every, std::max(every * 0.01, 2.0)) << ids_per_s << " ids/s";
  }
}

TEST(Capacity, OutageWithinTheToleranceLeavesNoHostDry) {
  const Outcome outcome = Simulate(WithOutage(600));
  EXPECT_EQ(outcome.load.dry_claims, 0);
  EXPECT_LT(outcome.covered_s, 5) << "a few hosts are soon covered again";
  EXPECT_GT(Simulate(WithOutage(1200)).load.dry_claims, 0) << "twice the tolerance is too long";
}

TEST(Capacity, LeasesAfterAnOutageKeepToTheBudget) {
  Cluster cluster = WithOutage(600);
  const std::ptrdiff_t end_s = 900;
  constexpr std::uint32_t kLimit = 10;
  const std::uint32_t most = cluster.hosts * (kLimit + 1);  // one from the saved budget
  EXPECT_GT(Peak(Simulate(cluster), end_s), most) << "the budget has nothing to limit";
  cluster.leases_per_s = kLimit;
  const Outcome outcome = Simulate(cluster);
  EXPECT_LE(Peak(outcome, end_s), most);
  EXPECT_EQ(outcome.load.dry_claims, 0);
}

TEST(Capacity, EveryTagHasIdsBeforeReady) {
  const Cluster cluster{.hosts = 20, .ids_per_s = 2e4, .start = Start::kFresh, .duration_s = 60};
  const Outcome outcome = Simulate(cluster);
  EXPECT_EQ(outcome.leases_before_ready, 2000);
  EXPECT_GT(outcome.ready_s, 0);
  EXPECT_EQ(outcome.load.dry_claims, 0);
}

TEST(Capacity, IdleClusterOnlyShowsItself) {
  Cluster cluster = Small();
  cluster.ids_per_s = 0;
  const Load load = Simulate(cluster).load;
  EXPECT_EQ(load.leases + load.reads, 0U);
  EXPECT_EQ(load.Commits(), load.beats);
  EXPECT_NEAR(static_cast<double>(load.beats), cluster.hosts * (cluster.duration_s - kSettleS) / 20,
              100);
}

// Three witnesses look every second and commit; any other host looks every two, without a COMMIT.
TEST(Capacity, LooksGrowWithTheHostsAndOnlyThoseOfWitnessesCommit) {
  Cluster cluster = Small();
  cluster.ids_per_s = 0;
  cluster.hosts_look = true;
  const double lasts_s = cluster.duration_s - kSettleS;
  const Load load = Simulate(cluster).load;
  EXPECT_NEAR(static_cast<double>(load.looks), (cluster.hosts - 3) * lasts_s / 2 + 3 * lasts_s,
              cluster.hosts);
  EXPECT_NEAR(static_cast<double>(load.notes), 3 * lasts_s, 6);
  EXPECT_EQ(load.Commits(), load.notes + load.beats);
}

// A disk that takes ten milliseconds for a write does a hundred in a second, but the COMMITs of
// twenty hosts that come meanwhile share one.
TEST(Capacity, CommitsShareWrites) {
  Cluster cluster{.hosts = 20,
                  .ids_per_s = 2e7,
                  .duration_s = 120,
                  .settle_s = kSettleS,
                  .keeps_requests = true};
  cluster.refill.outage_tolerance = std::chrono::seconds(2);
  cluster.store = {.transaction_s = 1e-5, .more_s = 1e-6, .sync_s = 0.01, .answer_s = 0};
  const Outcome outcome = Simulate(cluster);
  EXPECT_GT(static_cast<double>(outcome.load.Commits()),
            1.2 * 100 * (cluster.duration_s - kSettleS));
  EXPECT_LT(outcome.load.longest_answer_s, 0.021);
}

// What store_load_benchmark plays.
TEST(Capacity, RequestsAreKeptInTheOrderOfTime) {
  const Cluster slice = SliceOf(400);
  const Outcome outcome = Simulate(slice);
  EXPECT_TRUE(std::is_sorted(outcome.requests.begin(), outcome.requests.end(),
                             [](const Request& a, const Request& b) { return a.at < b.at; }));
  const auto ends = std::count_if(outcome.requests.begin(), outcome.requests.end(),
                                  [](const Request& request) { return request.is_end; });
  EXPECT_NEAR(static_cast<double>(outcome.requests.size()) - static_cast<double>(ends),
              400 * kSliceS, 400 * kSliceS * 0.15);
  EXPECT_NEAR(static_cast<double>(ends), 400 * kSliceS, 400 * kSliceS * 0.15);
  EXPECT_EQ(outcome.waits_s.size(), outcome.load.leases);
}

TEST(Capacity, SameClusterGivesTheSameOutcome) {
  const Cluster cluster{.hosts = 10, .ids_per_s = 1e5};
  EXPECT_EQ(Simulate(cluster).leases, Simulate(cluster).leases);
}

}  // namespace
}  // namespace idd::capacity
