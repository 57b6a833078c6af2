// SPDX-License-Identifier: Apache-2.0
//
// What idd's refill policy promises, on every scenario, against the rules of the others.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "contest.h"
#include "promise_policy.h"

namespace idd::simulator {
namespace {

class Refill : public ::testing::TestWithParam<Scenario> {
 protected:
  const Scenario& scenario() const { return GetParam(); }
  const Contestant idd_ = AllContestants().front();
  const daemon::RefillSettings settings_ = ContestSettings();
  const double tolerance_s_ = std::chrono::duration<double>(settings_.outage_tolerance).count();
};

TEST_P(Refill, FewestClaimsFindTheRingDry) {
  const double ours = Play(scenario(), idd_).dry_claims;
  for (const Contestant& other : AllContestants()) {
    EXPECT_LE(ours, Play(scenario(), other).dry_claims) << other.name;
  }
}

TEST_P(Refill, HoldsNoMoreThanThePromise) {
  for (const Trace& trace : scenario().tags) {
    const Result result = Simulate(trace, settings_, idd_.make_policy, {});
    EXPECT_LE(result.held_max, static_cast<double>(settings_.max_prefetch) + 1);
    // What the tolerance takes at the highest rate, half as much again and something for growth;
    // or a step ahead of a step.
    double highest = 0;
    for (const TracePiece& piece : trace.pieces) highest = std::max(highest, piece.ids_per_s);
    const double needed = highest * tolerance_s_ * 1.1 * 1.5;
    EXPECT_LE(result.held_max, std::max(needed * 1.05, 2.0 * static_cast<double>(settings_.step)));
  }
}

TEST_P(Refill, OutageWithinTheToleranceIsNotNoticed) {
  const int outages = scenario().tags.size() > 1 ? 4 : 20;
  const double room = scenario().tags.front().end_s - scenario().shown_s - tolerance_s_;
  for (int i = 0; i < outages; ++i) {
    const double begin = scenario().shown_s + room * i / outages;
    const Result result = PlayOutage(scenario(), idd_, {begin, begin + tolerance_s_});
    EXPECT_EQ(result.outage_dry_claims, 0) << "outage at " << begin << " s";
    // Nobody has run dry, so nobody hurries: no more than one lease a tag, and then some.
    EXPECT_LE(static_cast<double>(result.leases_after_outage),
              static_cast<double>(scenario().tags.size()) * 1.5 + 1)
        << "outage at " << begin << " s";
  }
}

// Smaller ceilings bind.
TEST_P(Refill, CeilingIsKept) {
  daemon::RefillSettings small = settings_;
  small.max_prefetch = 50'000;
  for (const Trace& trace : scenario().tags) {
    const Result result = Simulate(trace, small, idd_.make_policy, {});
    EXPECT_LE(result.held_max, 50'001);  // ids are not whole here
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Refill, ::testing::ValuesIn(AllScenarios()),
                         [](const ::testing::TestParamInfo<Scenario>& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

// A claimer at full speed, a step of 1,000 and a store that takes 50 ms a lease.
TEST(FullSpeed, RingIsAheadAfterTheFirstSecond) {
  for (const double ids_per_s : {1e6, 1e7, 1e8}) {
    const StoreModel slow{.lease_s = 0.05};
    const Trace first{.pieces = {{0, ids_per_s}}, .end_s = 1};
    const Trace long_run{.pieces = {{0, ids_per_s}}, .end_s = 60};
    const Contestant idd = AllContestants().front();
    const Result at_start = Simulate(first, ContestSettings(), idd.make_policy, slow);
    const Result all = Simulate(long_run, ContestSettings(), idd.make_policy, slow);
    EXPECT_GT(at_start.dry_claims, 0) << "the first segments cannot cover the first leases";
    EXPECT_EQ(all.dry_claims, at_start.dry_claims) << ids_per_s;
  }
}

// The second lease covers a load that jumps a thousandfold: the next lease after it comes in time.
TEST(FullSpeed, LoadThatJumpsIsCoveredByTheSecondLease) {
  const StoreModel slow{.lease_s = 0.05};
  for (const double jump_s : {10.0, 100.0, 1000.0}) {
    const Trace trace{.pieces = {{0, 100}, {jump_s, 100'000}}, .end_s = jump_s + 60};
    const Contestant idd = AllContestants().front();
    const Result result = Simulate(trace, ContestSettings(), idd.make_policy, slow);
    EXPECT_LE(result.longest_dry_s, 0.06) << jump_s << ": more than one lease was waited for";
    EXPECT_LE(result.dry_s, 0.06) << jump_s;
  }
}

TEST(IdleTag, LeasesNothing) {
  const Trace trace{.pieces = {{0, 500}, {10, 0}}, .end_s = 24 * 3600};
  const Contestant idd = AllContestants().front();
  const Result day = Simulate(trace, ContestSettings(), idd.make_policy, {});
  Trace minute = trace;
  minute.end_s = 60;
  EXPECT_EQ(day.leases, Simulate(minute, ContestSettings(), idd.make_policy, {}).leases);
}

}  // namespace
}  // namespace idd::simulator
