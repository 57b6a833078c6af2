// SPDX-License-Identifier: Apache-2.0
#include "refill/usage_meter.h"

#include <gtest/gtest.h>

#include <chrono>

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;

TEST(UsageMeterTest, RateApproachesWhatIsClaimedAndFades) {
  UsageMeter meter;
  MonotonicTime now = MonotonicTime{} + 1h;
  std::uint64_t claimed = 5000;  // claims before the first look have no rate
  meter.Observe(now, claimed);
  EXPECT_EQ(meter.rate_per_s(), 0);
  for (int i = 0; i < 30; ++i) meter.Observe(now += 2s, claimed += 2000);
  EXPECT_NEAR(meter.rate_per_s(), 1000, 1);
  EXPECT_FALSE(meter.IsIdleAt(claimed)) << "the rate must still fade";
  for (int i = 0; i < 60; ++i) meter.Observe(now += 1s, claimed);
  EXPECT_TRUE(meter.IsIdleAt(claimed));
  EXPECT_FALSE(meter.IsIdleAt(claimed + 1));
}

TEST(UsageMeterTest, FallingCountIsNoRate) {
  UsageMeter meter;
  MonotonicTime now = MonotonicTime{} + 1h;
  meter.Observe(now, 1000);
  meter.Observe(now += 1s, 10);
  EXPECT_EQ(meter.rate_per_s(), 0);
}

TEST(UsageMeterTest, SkippedSecondsAreNotCountedAsClaiming) {
  UsageMeter meter;
  const MonotonicTime start = MonotonicTime{} + 1h;
  meter.Observe(start, 0);
  meter.SkipTo(start + 100s);
  meter.Observe(start + 101s, 100);
  EXPECT_NEAR(meter.rate_per_s(), 30, 1e-9) << "100 in the last second, at its weight";
}

TEST(UsageMeterTest, DaysAreReportedAtARateOnly) {
  UsageMeter meter;
  EXPECT_FALSE(meter.DaysFor(1000).has_value());
  MonotonicTime now = MonotonicTime{} + 1h;
  std::uint64_t claimed = 0;
  for (int i = 0; i < 60; ++i) meter.Observe(now += 1s, claimed += 100);
  EXPECT_NEAR(meter.DaysFor(100.0 * 86'400 * 12).value(), 12, 0.01);
}

}  // namespace
}  // namespace idd::daemon
