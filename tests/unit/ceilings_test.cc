// SPDX-License-Identifier: Apache-2.0
#include "agreement/ceilings.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace idd::daemon {
namespace {

constexpr std::int64_t kStartMs = 1000;

CeilingNeed NeedOf(std::uint64_t base, std::uint64_t wanted) {
  return {.tag = "orders", .base = base, .count = 1000, .last = 1'000'000'000, .wanted = wanted};
}

TEST(CeilingNeedTest, WaitsWithoutRoomUnlessTheTagIsUsedUp) {
  CeilingNeed need = NeedOf(1001, 0);
  EXPECT_TRUE(need.Waits());
  need.ceiling = 1001;
  EXPECT_TRUE(need.Waits());
  need.ceiling = 1002;
  EXPECT_FALSE(need.Waits()) << "a shorter lease has room";
  need.ceiling = 0;
  need.last = 1000;
  EXPECT_FALSE(need.Waits());
}

class CeilingsTest : public ::testing::Test {
 protected:
  // The ceiling that is asked for; 0: none.
  std::uint64_t Ask(const CeilingNeed& need, std::int64_t after_ms = 0) {
    const std::optional<CeilingRaise> raise = ceilings_.RaiseFor(need, kStartMs + after_ms);
    return raise.has_value() ? raise->wanted : 0;
  }

  Ceilings ceilings_;
};

TEST_F(CeilingsTest, NewTagGetsRoomForSixteenLeases) {
  const std::optional<CeilingRaise> raise = ceilings_.RaiseFor(NeedOf(1, 0), kStartMs);
  ASSERT_TRUE(raise.has_value());
  EXPECT_EQ(raise->tag, "orders");
  EXPECT_EQ(raise->wanted, 1001U + 16 * 1000);
  EXPECT_EQ(raise->least, 1001U + 16 * 1000 / 3);
}

// All hosts that start at the same time need the same tags.
TEST_F(CeilingsTest, EnoughThatAnotherHostWantsIsNotRaised) {
  const std::uint64_t least = 1001 + 16 * 1000 / 3;
  EXPECT_EQ(Ask(NeedOf(1, least)), 0U);
  EXPECT_EQ(Ask(NeedOf(1, least - 1)), 17'001U);
}

TEST_F(CeilingsTest, NextRaiseComesWhenAThirdOfTheLastOneIsLeft) {
  ASSERT_EQ(Ask(NeedOf(1, 0)), 17'001U);
  const std::uint64_t last_with_room = 17'001 - 16'000 / 3 - 1000;
  EXPECT_EQ(Ask(NeedOf(last_with_room, 17'001)), 0U);
  EXPECT_NE(Ask(NeedOf(last_with_room + 1, 17'001)), 0U);
}

TEST_F(CeilingsTest, RaiseLastsForAnHourAtTheRateSinceTheLastOne) {
  ASSERT_EQ(Ask(NeedOf(1, 0)), 17'001U);
  EXPECT_EQ(Ask(NeedOf(15'001, 17'001), 1'500'000), 16'001U + 36'000) << "10 ids/s";
  EXPECT_EQ(Ask(NeedOf(47'001, 52'001), 3'500'000), 48'001U + 57'600) << "16 ids/s";
  EXPECT_EQ(Ask(NeedOf(97'001, 105'601), 1'000'000'000), 98'001U + 57'600 / 3)
      << "only what has been missing";
  EXPECT_EQ(Ask(NeedOf(115'001, 117'201), 2'000'000'000), 116'001U + 16'000)
      << "at least for 16 leases";
}

// What looks like a rate may be a lift, or a burst.
TEST_F(CeilingsTest, RaiseIsAtMostEightTimesTheLastOne) {
  ASSERT_EQ(Ask(NeedOf(1, 0)), 17'001U);
  EXPECT_EQ(Ask(NeedOf(100'001, 17'001), 1000), 101'001U + 8 * 16'000);
  EXPECT_EQ(Ask(NeedOf(300'001, 229'001), 2000), 301'001U + 64 * 16'000);
}

TEST_F(CeilingsTest, RaiseTakesAtMostOneIdIn64OfTheRest) {
  CeilingNeed need = NeedOf(1, 0);
  need.last = 640'000;
  EXPECT_EQ(Ask(need), 1001U + 10'000);
  need.base = 1'000'001;
  need.wanted = 11'001;
  need.last = 1'640'000;
  EXPECT_EQ(Ask(need, 1000), 1'001'001U + 10'000);
}

TEST_F(CeilingsTest, LeaseFitsHoweverFewIdsAreLeft) {
  CeilingNeed need = NeedOf(1, 0);
  need.last = 6000;
  EXPECT_EQ(Ask(need), 2001U) << "the lease and as much again";
}

TEST_F(CeilingsTest, ReachTheEndOfTheTagAndNoFurther) {
  const std::optional<CeilingRaise> raise = ceilings_.RaiseFor(NeedOf(999'999'900, 0), kStartMs);
  ASSERT_TRUE(raise.has_value());
  EXPECT_EQ(raise->wanted, 1'000'000'001U);
  EXPECT_EQ(raise->least, 1'000'000'001U);
  EXPECT_EQ(Ask(NeedOf(999'999'900, 1'000'000'001)), 0U);
  EXPECT_EQ(Ask(NeedOf(1'000'000'001, 0)), 0U) << "the tag is used up";
}

// The time moves on by itself, and what a ceiling is too high is time without the worker id.
TEST_F(CeilingsTest, WindowsGetRoomForFourWhateverTheRate) {
  CeilingNeed need = NeedOf(1, 0);
  need.is_window = true;
  EXPECT_EQ(Ask(need), 1001U + 4000);
  need.base = 500'001;
  need.wanted = 5001;
  EXPECT_EQ(Ask(need, 1000), 501'001U + 4000);
}

// The lift to the ceilings at the beginning of a term is no rate.
TEST_F(CeilingsTest, AnotherTermForgetsTheRate) {
  ASSERT_EQ(Ask(NeedOf(1, 0)), 17'001U);
  ASSERT_EQ(Ask(NeedOf(100'001, 17'001), 1000), 229'001U);
  ceilings_.Forget();
  EXPECT_EQ(Ask(NeedOf(229'001, 229'001), 2000), 230'001U + 16'000);
}

}  // namespace
}  // namespace idd::daemon
