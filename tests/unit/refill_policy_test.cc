// SPDX-License-Identifier: Apache-2.0
#include "refill_policy.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "idd/shm/abi.h"
#include "leaf_policy.h"
#include "promise_policy.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

// A ring of the policy's own segments, claimed from by hand.
class Ring {
 public:
  Ring(RefillPolicy& policy, std::uint64_t first_segment) : policy_(policy) {
    Publish(first_segment);
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
            .waiting = waiting};
  }

 private:
  RefillPolicy& policy_;
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
  // Whoever claims the mark wakes the daemon once: the decision must then be yes, and not before.
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

TEST(PromisePolicyTest, HoldsWhatTheToleranceTakesAtTheMeasuredRate) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 100'000);
  for (int second = 0; second < 5; ++second) {
    ring.Wait(1s);
    ring.Claim(500);
    if (const std::uint64_t wanted = ring.Look(); wanted != 0) ring.Lease(wanted, 5ms);
  }
  // 500 ids a second for 600 s, a tenth more; filled up to one and a half times.
  EXPECT_GE(ring.available(), 500U * 600);
  EXPECT_LE(ring.available(), 500U * 600 * 17 / 10);
  EXPECT_NEAR(policy.RatePerSecond(), 500, 10);
}

TEST(PromisePolicyTest, SecondLeaseIsSizedByWhatWasSeenSinceTheFirst) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 1000);
  ring.Lease(1000, 50ms);
  // A claimer at full speed: all is gone when the daemon wakes.
  ring.Wait(200us);
  ring.Claim(2000);
  const std::uint64_t wanted = ring.Look(1);
  EXPECT_GE(wanted, std::uint64_t{2000} * 5000 * 50 / 1000) << "what the next lease's time takes";
  EXPECT_LE(wanted, DefaultMaxPrefetch(1000));
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
  Ring ring(policy, 1'000'000);
  ring.Wait(1s);
  ring.Claim(100'000);
  ring.Lease(ring.Look(), 5ms);
  const std::uint64_t held = ring.available();
  EXPECT_GT(held, 60'000'000U);
  // An hour at a thousandth of it: six tolerances.
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
    EXPECT_GE(wanted, 1000U) << "no dribble";
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

TEST(PromisePolicyTest, WaitingBatchIsLeasedAtOnce) {
  PromisePolicy policy(Settings(1000));
  Ring ring(policy, 1000);
  EXPECT_GE(ring.Look(250'000), 250'000U);
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

// Claims after an hour that nobody looked at.
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
  RefillView view{.now = MonotonicTime{} + 1h};
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
  RefillView view{.now = MonotonicTime{} + 1h};
  for (int i = 0; i < 8; ++i) policy.OnLeased(view, 1000, 5ms);
  EXPECT_EQ(policy.Wanted(view), 256'000U);
  settings.max_step = 2000;
  policy.Configure(settings);
  EXPECT_EQ(policy.Wanted(view), 2000U);
  view.now += 2h;
  EXPECT_EQ(policy.Wanted(view), 2000U);
}

// Both.

TEST(RefillRuleTest, NamesAreTheirOwnInverse) {
  for (const RefillRule rule : {RefillRule::kPromise, RefillRule::kLeaf}) {
    EXPECT_EQ(ParseRefillRule(RefillRuleName(rule)), rule);
  }
  EXPECT_FALSE(ParseRefillRule("Leaf").has_value());
  EXPECT_FALSE(ParseRefillRule("").has_value());
}

}  // namespace
}  // namespace idd::daemon
