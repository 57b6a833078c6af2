// SPDX-License-Identifier: Apache-2.0
#include "refill/refill_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "idd/shm/abi.h"
#include "idd/shm/ring_stats.h"
#include "refill/claim_history.h"
#include "refill/leaf_policy.h"
#include "refill/promise_policy.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

// A ring with segments sized by the policy, claimed from by hand.
class Ring {
 public:
  Ring(RefillPolicy& policy, std::uint64_t first_segment,
       std::chrono::seconds outage_tolerance = kDefaultOutageTolerance)
      : policy_(policy) {
    history_.SetWindow(outage_tolerance);
    Publish(first_segment);
    Note();
    policy_.Observe(View());
  }

  void Wait(std::chrono::nanoseconds time) {
    now_ += std::chrono::duration_cast<MonotonicClock::duration>(time);
  }
  void Claim(std::uint64_t ids) {
    claimed_ += ids;
    available_ -= ids;
    segments_ = available_ == 0 ? 0 : segments_;
  }
  [[nodiscard]] std::uint64_t Look(std::uint64_t waiting = 0) {
    Note();
    policy_.Observe(View(waiting));
    return policy_.Wanted(View(waiting));
  }
  void Publish(std::uint64_t ids) {
    available_ += ids;
    newest_ = ids;
    ++segments_;
  }
  void Lease(std::uint64_t ids, std::chrono::nanoseconds took) {
    Wait(took);
    Note();
    policy_.OnLeased(View(), ids, took);
    Publish(ids);
  }
  [[nodiscard]] std::uint64_t available() const { return available_; }
  [[nodiscard]] RefillView View(std::uint64_t waiting = 0) const {
    return {.now = now_,
            .claimed = claimed_,
            .available = available_,
            .open_segments = segments_,
            .newest_size = newest_,
            .waiting = waiting,
            .earned = history_.Most(now_)};
  }
  // Claims at that rate for that time, and leases what the policy wants.
  void Run(std::chrono::seconds time, std::uint64_t per_s) {
    for (std::chrono::seconds passed(0); passed < time; passed += 1s) {
      Wait(1s);
      Claim(per_s);
      if (const std::uint64_t wanted = Look(); wanted != 0) Lease(wanted, 5ms);
    }
  }

 private:
  void Note() { history_.Observe(now_, now_, claimed_); }

  RefillPolicy& policy_;
  ClaimHistory history_;
  MonotonicTime now_ = MonotonicTime{} + 1h;
  std::uint64_t claimed_ = 0;
  std::uint64_t available_ = 0;
  std::uint64_t segments_ = 0;
  std::uint64_t newest_ = 0;
};

RefillSettings Settings(std::uint64_t step) {
  return {.step = step, .max_prefetch = DefaultMaxPrefetch(step)};
}

// Marks.

TEST(PromisePolicyTest, MarkOfAStepIsATenthIntoIt) {
  const PromisePolicy policy(Settings(1000));
  EXPECT_EQ(policy.MarkOf({1000, 2000}, {}), 1100U);
  EXPECT_EQ(policy.MarkOf({1, 1001}, {}), 101U);
}

TEST(PromisePolicyTest, MarkLiesInsideTheSegmentWhateverItsSize) {
  for (const std::uint64_t step : {1U, 7U, 1000U}) {
    const PromisePolicy policy(Settings(step));
    for (std::uint64_t size = 1; size <= 3000; ++size) {
      const std::uint64_t mark = policy.MarkOf({500, 500 + size}, {});
      EXPECT_GE(mark, 500 + size / 10) << size;
      EXPECT_LT(mark, 500 + size) << size;
    }
  }
}

TEST(PromisePolicyTest, MarkOfTheWidestSegmentDoesNotOverflow) {
  const PromisePolicy policy(Settings(kMaxStep));
  for (const std::uint64_t first : {std::uint64_t{0}, shm::kMaxLimit - 1000}) {
    const std::uint64_t mark = policy.MarkOf({first, shm::kMaxLimit}, {});
    EXPECT_GE(mark, first);
    EXPECT_LT(mark, shm::kMaxLimit);
  }
}

TEST(PromisePolicyTest, TheClaimOfTheMarkAndTheDecisionAgree) {
  // The claim of the mark wakes the daemon once: the decision must be yes then, and not before.
  for (std::uint64_t step = 1; step <= 200; ++step) {
    PromisePolicy policy({.step = step, .outage_tolerance = 0s});
    const std::uint64_t offset = policy.MarkOf({7, 7 + step}, {}) - 7;
    RefillView view{.available = step - offset, .open_segments = 1, .newest_size = step};
    EXPECT_EQ(policy.Wanted(view), 0U) << step;
    --view.available;
    EXPECT_EQ(policy.Wanted(view), step) << step;
  }
}

// Decisions.

TEST(PromisePolicyTest, DryRingWantsAStep) {
  const PromisePolicy policy(Settings(1000));
  EXPECT_EQ(policy.Wanted({}), 1000U);
}

TEST(PromisePolicyTest, HoldsWhatTheToleranceTakesOnceTheLoadHasLasted) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 1000);
  for (std::uint64_t second = 1; second <= 1200; ++second) {
    ring.Run(1s, 500);
    const std::uint64_t lasted = std::min<std::uint64_t>(second, 600);
    // 500 ids a second for 600 s, plus a tenth; filled up to one and a half times that.
    EXPECT_GE(ring.available(), 500 * lasted) << second;
    EXPECT_LE(ring.available(), 500U * 600 * 17 / 10) << second;
  }
  EXPECT_NEAR(policy.RatePerSecond(), 500, 10);
}

TEST(PromisePolicyTest, BusySecondIsNotExtrapolated) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 10'000);
  ring.Wait(1s);
  ring.Claim(9999);
  EXPECT_EQ(ring.Look(), 2 * 9999U - 1) << "twice what was claimed, with what is there";
}

TEST(PromisePolicyTest, RuleIsAsSimpleAsItSounds) {
  RefillSettings settings = Settings(1000);
  EXPECT_EQ(MostHeld(settings, 0), 2000U);
  EXPECT_EQ(MostHeld(settings, 1000), 2000U);
  EXPECT_EQ(MostHeld(settings, 1001), 2002U);
  EXPECT_EQ(MostHeld(settings, ~std::uint64_t{0}), settings.max_prefetch);
  settings.max_prefetch = ~std::uint64_t{0};
  EXPECT_EQ(MostHeld(settings, ~std::uint64_t{0}), ~std::uint64_t{0} - 1);
}

TEST(PromisePolicyTest, PromiseIsWhatWasEarnedUntilTheToleranceIsCovered) {
  const RefillSettings settings = Settings(1000);
  EXPECT_EQ(PromisedIds(settings, 0, 0), 0U);
  EXPECT_EQ(PromisedIds(settings, 0, 10), 0U);
  EXPECT_EQ(PromisedIds(settings, 800, 10), 900U);
  EXPECT_EQ(PromisedIds(settings, 1000, 10), 1000U) << "a lease is a step, so no more need be held";
  EXPECT_EQ(PromisedIds(settings, 4000, 10), 4500U);
  EXPECT_EQ(PromisedIds(settings, 40'000, 10), 6000U);
  EXPECT_EQ(shm::PromiseSeconds(4500, 600, 10), 450);
  EXPECT_EQ(shm::PromiseSeconds(6000, 600, 8), 600);
}

TEST(PromisePolicyTest, EveryLeaseMakesRoomForAStepAtLeast) {
  for (std::uint64_t step = 1; step <= 3000; step = step * 3 / 2 + 1) {
    for (std::uint64_t earned = 0; earned < 50'000; earned = earned * 9 / 8 + 1) {
      for (const std::uint64_t prefetch : {2 * step, 3 * step, 100 * step}) {
        const RefillSettings settings{.step = step, .max_prefetch = prefetch};
        const std::uint64_t before = MostHeldBeforeLease(settings, earned);
        EXPECT_GE(MostHeld(settings, earned) - before, step);
        EXPECT_GE(before, std::min(earned, prefetch / 2)) << step << " " << prefetch;
      }
    }
  }
}

// Inherited ids count as held, but the history starts with idd.
TEST(PromisePolicyTest, InheritedIdsAreUsedBeforeMoreAreLeased) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 1'000'000);
  for (int second = 0; ring.available() > 560'000; ++second) {
    ring.Wait(1s);
    ring.Claim(1000);
    EXPECT_EQ(ring.Look(), 0U) << second;
  }
  ring.Run(600s, 1000);
  EXPECT_GE(ring.available(), 600'000U);
}

// The held ids last for at least five fourths of the time that the load has lasted.
TEST(PromisePolicyTest, PromiseIsFullSoonerThanTheLoadHasLasted) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 1000);
  ring.Run(300s, 1000);
  EXPECT_GE(ring.available(), 1000U * 300 * 5 / 4 - 1000);
  ring.Run(180s, 1000);
  EXPECT_GE(ring.available(), 1000U * 600 - 2000) << "five fourths of 480 s";
}

TEST(PromisePolicyTest, TagWithoutTrafficWantsNothing) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 1000);
  for (int day = 0; day < 10; ++day) {
    ring.Wait(24h);
    EXPECT_EQ(ring.Look(), 0U);
  }
}

TEST(PromisePolicyTest, FallenLoadUsesUpWhatIsThere) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 100'000'000);
  ring.Run(600s, 100'000);
  EXPECT_GT(ring.available(), 60'000'000U);
  // An hour at a thousandth of the rate: six tolerances.
  for (int second = 0; second < 3600; ++second) {
    ring.Wait(1s);
    ring.Claim(100);
    if (second > 1800) {
      EXPECT_EQ(ring.Look(), 0U) << second;
    } else {
      static_cast<void>(ring.Look());
    }
  }
  EXPECT_LT(policy.RatePerSecond(), 500);
}

TEST(PromisePolicyTest, NeverMoreThanTheCeiling) {
  RefillSettings settings = Settings(1000);
  settings.max_prefetch = 10'000;
  PromisePolicy policy(settings);
  Ring ring(policy, 1000);
  for (int second = 0; second < 100; ++second) {
    ring.Wait(1s);
    ring.Claim(std::min<std::uint64_t>(ring.available(), 3000));
    const std::uint64_t wanted = ring.Look();
    if (wanted == 0) continue;
    EXPECT_GE(wanted, 1000U) << "no series of tiny leases";
    ring.Lease(wanted, 5ms);
    EXPECT_LE(ring.available(), 10'000U);
  }
}

TEST(PromisePolicyTest, LargestStepBoundsALease) {
  RefillSettings settings = Settings(1000);
  settings.max_step = 5000;
  PromisePolicy policy(settings);
  Ring ring(policy, 1'000'000);
  ring.Wait(1s);
  ring.Claim(900'000);
  EXPECT_EQ(ring.Look(), 5000U);
}

// A claim that waits for a million ids of a new tag may give up before they arrive.
TEST(PromisePolicyTest, WaitingBatchIsServedByLeasesThatTreble) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 0);
  std::uint64_t waiting = 1'000'000;
  std::uint64_t leased = 0;
  int leases = 0;
  for (; waiting != 0; ++leases) {
    const std::uint64_t wanted = ring.Look(waiting);
    ASSERT_GE(wanted, 2000U);
    ASSERT_LE(wanted, 2 * std::max<std::uint64_t>(leased, 1000)) << "all of which was claimed";
    leased += wanted;
    const std::uint64_t served = std::min(waiting, wanted);
    ring.Publish(wanted);
    ring.Claim(served);
    ring.Lease(0, 5ms);
    waiting -= served;
  }
  EXPECT_EQ(leases, 7);
  EXPECT_LE(ring.available(), 2'000'000U);
}

TEST(PromisePolicyTest, CountThatFellIsAnotherRings) {
  PromisePolicy policy(Settings(1000));
  RefillView view{.now = MonotonicTime{} + 1h,
                  .claimed = 1'000'000,
                  .available = 1000,
                  .open_segments = 1,
                  .newest_size = 1000};
  policy.Observe(view);
  view.now += 1s;
  view.claimed = 5;
  policy.Observe(view);
  EXPECT_EQ(policy.RatePerSecond(), 0);
}

// Claims after an hour without a look.
TEST(PromisePolicyTest, QuietTimeBeforeABurstDoesNotHideIt) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 100'000);
  ring.Wait(1h);
  ring.Claim(10'000);
  static_cast<void>(ring.Look());
  EXPECT_GE(policy.RatePerSecond(), 9'000);
}

// Leaf's rule.

TEST(LeafPolicyTest, DoublesAndHalvesByHowLongASegmentLasted) {
  LeafPolicy policy({.rule = RefillRule::kLeaf, .step = 1000});
  RefillView view{.now = MonotonicTime{} + 1h, .earned = 1'000'000};
  const auto lease = [&](std::chrono::minutes after) {
    view.now += after;
    const std::uint64_t wanted = policy.Wanted(view);
    policy.OnLeased(view, wanted, 5ms);
    return wanted;
  };
  EXPECT_EQ(lease(0min), 1000U);
  EXPECT_EQ(lease(1min), 2000U);
  EXPECT_EQ(lease(14min), 4000U);
  EXPECT_EQ(lease(20min), 4000U);
  EXPECT_EQ(lease(31min), 2000U);
  EXPECT_EQ(lease(60min), 1000U);
  EXPECT_EQ(lease(60min), 1000U) << "not below the table's step";
}

TEST(LeafPolicyTest, StopsDoublingAtTheLargestStep) {
  LeafPolicy policy({.rule = RefillRule::kLeaf, .step = 1000, .max_step = 1000});
  RefillView view{.now = MonotonicTime{} + 1h};
  for (int i = 0; i < 5; ++i) {
    view.now += 1s;
    EXPECT_EQ(policy.Wanted(view), 1000U);
    policy.OnLeased(view, 1000, 5ms);
  }
}

TEST(LeafPolicyTest, SecondBufferIsFilledWhenATenthIsUsed) {
  LeafPolicy policy({.rule = RefillRule::kLeaf, .step = 1000});
  RefillView view{
      .now = MonotonicTime{} + 1h, .available = 900, .open_segments = 1, .newest_size = 1000};
  EXPECT_EQ(policy.Wanted(view), 0U);
  view.available = 899;
  EXPECT_EQ(policy.Wanted(view), 1000U);
  view.open_segments = 2;
  EXPECT_EQ(policy.Wanted(view), 0U);
  EXPECT_EQ(policy.MarkOf({1000, 2000}, view), 1100U);
}

TEST(LeafPolicyTest, LoweredLargestStepBindsAtOnce) {
  RefillSettings settings{.rule = RefillRule::kLeaf, .step = 1000};
  LeafPolicy policy(settings);
  RefillView view{.now = MonotonicTime{} + 1h, .earned = 1'000'000};
  for (int i = 0; i < 8; ++i) policy.OnLeased(view, 1000, 5ms);
  EXPECT_EQ(policy.Wanted(view), 256'000U);
  settings.max_step = 2000;
  policy.Configure(settings);
  EXPECT_EQ(policy.Wanted(view), 2000U);
  view.now += 2h;
  EXPECT_EQ(policy.Wanted(view), 2000U);
}

TEST(LeafPolicyTest, StepIsCutToTwiceWhatWasClaimed) {
  LeafPolicy policy({.rule = RefillRule::kLeaf, .step = 1000});
  RefillView view{.now = MonotonicTime{} + 1h, .earned = 3000};
  for (int i = 0; i < 8; ++i) policy.OnLeased(view, 1000, 5ms);
  EXPECT_EQ(policy.Wanted(view), 6000U);
  view.open_segments = 1;
  view.newest_size = 6000;
  view.available = 3751;
  EXPECT_EQ(policy.Wanted(view), 0U) << "as small as the claim before it";
  view.available = 3750;
  EXPECT_EQ(policy.Wanted(view), 2250U);
  EXPECT_EQ(policy.MarkOf({0, 6000}, view), 6000U - 3751) << "its claim leaves 3,750";
}

// Both.

// Random loads on a ring that loses nothing: compares the ids held after each lease with the claims
// themselves.
class RandomLoads : public ::testing::TestWithParam<RefillRule> {};

TEST_P(RandomLoads, NoLeaseBringsWhatIsHeldAboveTwiceTheBusiestWindow) {
  std::mt19937_64 random(14);
  const auto up_to = [&random](std::uint64_t most) { return random() % (most + 1); };
  const std::uint64_t rounds = harness::ScaledLoad(40);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    RefillSettings settings{.rule = GetParam(), .step = 1 + up_to(up_to(5000))};
    settings.outage_tolerance = std::chrono::seconds(10 + up_to(2000));
    settings.max_step = settings.step + up_to(up_to(10'000'000));
    const std::unique_ptr<RefillPolicy> policy = MakeRefillPolicy(settings);
    Ring ring(*policy, settings.step, settings.outage_tolerance);
    std::vector<std::uint64_t> claimed(1, 0);  // running sum by second
    std::uint64_t per_s = 0;
    for (std::size_t second = 1; second <= 5000; ++second) {
      if (second % 50 == 1) per_s = random() % 3 == 0 ? 0 : up_to(up_to(up_to(1'000'000)));
      ring.Wait(1s);
      const std::uint64_t ids = std::min(ring.available(), up_to(2 * per_s));
      ring.Claim(ids);
      claimed.push_back(claimed.back() + ids);
      const std::uint64_t wanted = ring.Look(up_to(up_to(up_to(5'000'000))));
      if (wanted == 0) continue;
      ring.Lease(wanted, 0s);
      std::uint64_t busiest = 0;
      const auto window = static_cast<std::size_t>(settings.outage_tolerance.count());
      for (std::size_t end = 1; end <= second; ++end) {
        busiest = std::max(busiest, claimed[end] - claimed[end - std::min(end, window)]);
      }
      ASSERT_LE(ring.available(), 2 * std::max(settings.step, busiest))
          << "round " << round << ", second " << second;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RandomLoads,
                         ::testing::Values(RefillRule::kPromise, RefillRule::kLeaf),
                         [](const ::testing::TestParamInfo<RefillRule>& rule) {
                           return std::string(RefillRuleName(rule.param));
                         });

TEST(RefillRuleTest, NamesAreTheirOwnInverse) {
  for (const RefillRule rule : {RefillRule::kPromise, RefillRule::kLeaf}) {
    EXPECT_EQ(ParseRefillRule(RefillRuleName(rule)), rule);
  }
  EXPECT_FALSE(ParseRefillRule("Leaf").has_value());
  EXPECT_FALSE(ParseRefillRule("").has_value());
}

}  // namespace
}  // namespace idd::daemon
