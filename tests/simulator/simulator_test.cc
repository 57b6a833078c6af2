// SPDX-License-Identifier: Apache-2.0
//
// The promises of idd's refill policy, on every scenario, and against the rules of other systems.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "contest.h"
#include "refill/promise_policy.h"
#include "support/test_environment.h"

namespace idd::simulator {
namespace {

// Ids are fractional here, but whole in the policy's view. So up to one held id is missing, and up
// to one claimed id too many is counted between two looks, which counts twice.
constexpr double kRounding = 3;

// The daemon's defaults.
std::vector<Contestant> OurPolicies() {
  std::vector<Contestant> all = AllContestants();
  all.resize(2);
  return all;
}

class Refill : public ::testing::TestWithParam<Scenario> {
 protected:
  const Scenario& scenario() const { return scenario_; }
  const Contestant idd_ = AllContestants().front();
  const daemon::RefillSettings settings_ = ContestSettings();
  const double tolerance_s_ = std::chrono::duration<double>(settings_.outage_tolerance).count();

 private:
  // A sanitizer build runs only the first of many tags, those with the most claims.
  static Scenario Scaled(Scenario scenario) {
    constexpr std::size_t kMany = 50;
    std::vector<Trace>& tags = scenario.tags;
    if (tags.size() > kMany) {
      tags.resize(std::max<std::size_t>(kMany, harness::ScaledLoad(tags.size())));
    }
    return scenario;
  }
  const Scenario scenario_ = Scaled(GetParam());
};

TEST_P(Refill, FewestClaimsFindTheRingDry) {
  const double ours = Play(scenario(), idd_).dry_claims;
  for (const Contestant& other : AllContestants()) {
    EXPECT_LE(ours, Play(scenario(), other).dry_claims) << other.name;
  }
}

// This must hold although the claims bound the held ids.
TEST_P(Refill, NoClaimFindsTheRingDry) {
  for (const Contestant& contestant : OurPolicies()) {
    EXPECT_EQ(Play(scenario(), contestant).dry_claims, 0) << contestant.name;
  }
}

TEST_P(Refill, NoLeaseBringsWhatIsHeldAboveTwiceWhatWasClaimedAtTheBusiest) {
  for (const Contestant& contestant : OurPolicies()) {
    EXPECT_LE(Play(scenario(), contestant).over_rule, kRounding) << contestant.name;
    for (const double begin : {30.0, 600.0}) {
      const Outage outage{begin, begin + tolerance_s_};
      EXPECT_LE(PlayOutage(scenario(), contestant, outage).over_rule, kRounding)
          << contestant.name << ", no store from " << begin << " s on";
    }
  }
}

TEST_P(Refill, HoldsNoMoreThanThePromise) {
  for (const Trace& trace : scenario().tags) {
    const Result result = Simulate(trace, settings_, idd_.make_policy, {});
    EXPECT_LE(result.held_max, static_cast<double>(settings_.max_prefetch) + 1);
    // The ids that the tolerance needs at the highest rate, plus half of that and a margin for
    // growth; but at least two steps, one in use and one ahead.
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
    // No tag has run dry, so none hurries: about one lease a tag.
    EXPECT_LE(static_cast<double>(result.leases_after_outage),
              static_cast<double>(scenario().tags.size()) * 1.5 + 1)
        << "outage at " << begin << " s";
  }
}

// A load younger than the tolerance outlasts an outage as long as it has lasted itself; for short
// loads two seconds less, as idd looks once a second.
TEST_P(Refill, OutageNoLongerThanTheLoadHasLastedIsNotNoticed) {
  for (const double seconds : {10.0, 30.0, 60.0, 150.0, 300.0, 450.0}) {
    const bool is_like_before = scenario().shown_s <= tolerance_s_ || 2 * seconds < 600;
    if (!is_like_before) continue;  // a new kind of burst begins in it
    const Result result =
        PlayOutage(scenario(), idd_, {seconds, 2 * seconds - (seconds < 60 ? 2 : 0)});
    EXPECT_EQ(result.outage_dry_claims, 0) << "outage after " << seconds << " s";
  }
}

// A lower max_prefetch limits the held ids as well.
TEST_P(Refill, CeilingIsKept) {
  daemon::RefillSettings small = settings_;
  small.max_prefetch = 50'000;
  for (const Trace& trace : scenario().tags) {
    const Result result = Simulate(trace, small, idd_.make_policy, {});
    EXPECT_LE(result.held_max, 50'001);  // ids are fractional here
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Refill, ::testing::ValuesIn(AllScenarios()),
                         [](const ::testing::TestParamInfo<Scenario>& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

// A claimer at full speed, a step of 1,000 and a store that takes 50 ms for a lease.
TEST(FullSpeed, RingIsAheadAfterTheFirstSecond) {
  for (const double ids_per_s : {1e6, 1e7, 1e8}) {
    const StoreModel slow{.lease_s = 0.05};
    const Trace first{.pieces = {{0, ids_per_s}}, .end_s = 1};
    const Trace long_run{.pieces = {{0, ids_per_s}}, .end_s = 60};
    const Contestant idd = AllContestants().front();
    const Result at_start = Simulate(first, ContestSettings(), idd.make_policy, slow);
    const Result all = Simulate(long_run, ContestSettings(), idd.make_policy, slow);
    EXPECT_GT(at_start.dry_claims, 0) << "the first segments must not cover the first leases";
    EXPECT_EQ(all.dry_claims, at_start.dry_claims) << ids_per_s;
  }
}

// The ids held for a load that has lasted cover a jump to a thousand times the rate until the next
// lease, which takes the jump into account, arrives.
TEST(FullSpeed, LoadThatJumpsIsCovered) {
  const StoreModel slow{.lease_s = 0.05};
  for (const double jump_s : {100.0, 1000.0}) {
    const Trace trace{.pieces = {{0, 100}, {jump_s, 100'000}}, .end_s = jump_s + 60};
    const Contestant idd = AllContestants().front();
    const Result result = Simulate(trace, ContestSettings(), idd.make_policy, slow);
    EXPECT_EQ(result.dry_claims, 0) << jump_s;
  }
}

// A load of ten seconds has earned two steps. At a thousand times the rate they last 20 ms, but a
// lease takes 50 ms, so claims wait whatever the policy does. The lease in progress may be of one
// step, and the next one at most twice the ids claimed before it was requested.
TEST(FullSpeed, LoadThatJumpsBeforeItHasLastedWaitsForThreeLeasesAtMost) {
  const StoreModel slow{.lease_s = 0.05};
  const Trace trace{.pieces = {{0, 100}, {10, 100'000}}, .end_s = 70};
  const Contestant idd = AllContestants().front();
  const Result result = Simulate(trace, ContestSettings(), idd.make_policy, slow);
  EXPECT_LE(result.dry_s, 0.15);
  EXPECT_LE(result.over_rule, kRounding);
}

TEST(IdleTag, LeasesNothing) {
  const Trace trace{.pieces = {{0, 500}, {10, 0}}, .end_s = 24 * 3600};
  const Contestant idd = AllContestants().front();
  const Result day = Simulate(trace, ContestSettings(), idd.make_policy, {});
  Trace minute = trace;
  minute.end_s = 60;
  EXPECT_EQ(day.leases, Simulate(minute, ContestSettings(), idd.make_policy, {}).leases);
}

// Random loads, settings and stores: each lease must keep the rule.
TEST(RandomLoads, NoLeaseBreaksTheRule) {
  std::mt19937_64 random(14);
  const auto draw = [&random](double low, double high) {  // uniform over the orders of magnitude
    return low * std::pow(high / low, static_cast<double>(random() >> 11U) * 0x1p-53);
  };
  const std::uint64_t rounds = harness::ScaledLoad(100);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Trace trace{.pieces = {{0, draw(0.1, 1e4)}}, .end_s = draw(100, 10'000)};
    for (double at = 0; (at += draw(0.01, 2000)) < trace.end_s;) {
      trace.pieces.push_back({at, random() % 3 == 0 ? 0 : draw(0.1, 1e5)});
    }
    daemon::RefillSettings settings;
    settings.step = static_cast<std::uint64_t>(draw(1, 1e5));
    settings.max_prefetch = std::max(2 * settings.step, static_cast<std::uint64_t>(draw(1e3, 1e9)));
    settings.outage_tolerance = std::chrono::seconds(static_cast<int>(draw(10, 5000)));
    StoreModel store{.lease_s = draw(0.001, 2)};
    store.outage.begin_s = draw(1, trace.end_s);
    store.outage.end_s = store.outage.begin_s + draw(1, 2000);
    for (const Contestant& contestant : OurPolicies()) {
      const Result result = Simulate(trace, settings, contestant.make_policy, store);
      EXPECT_LE(result.over_rule, kRounding) << contestant.name << ", round " << round;
      EXPECT_GT(result.claims, 0);
    }
  }
}

}  // namespace
}  // namespace idd::simulator
