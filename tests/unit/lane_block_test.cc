// SPDX-License-Identifier: Apache-2.0
#include "refill/lane_block.h"

#include <gtest/gtest.h>

#include <limits>

#include "platform/possible_cpus.h"

namespace idd::daemon {
namespace {

TEST(LaneBlockTest, IsTheUsualOneUntilTheRateNeedsMore) {
  LaneBlockFacts facts{.lanes = 4, .max_prefetch = 1'000'000'000};
  for (const double rate : {0.0, 1e3, 1e6}) {
    facts.rate_per_s = rate;
    EXPECT_EQ(LaneBlockOf(facts), kUsualLaneBlock) << rate;
  }
  facts.rate_per_s = 4e6;  // 1,000 a millisecond and lane
  EXPECT_EQ(LaneBlockOf(facts), 1'024U);
  for (const double rate : {1e12, 1e300, std::numeric_limits<double>::infinity()}) {
    facts.rate_per_s = rate;
    EXPECT_EQ(LaneBlockOf(facts), shm::kMaxLaneBlock) << rate;
  }
}

TEST(LaneBlockTest, LanesHoldAtMostHalfOfWhatTheHostMayHold) {
  for (const std::uint64_t lanes : {1U, 2U, 3U, 64U, 1'024U, 8'192U}) {
    for (const std::uint64_t most : {2U, 100U, 1'000U, 100'000U}) {
      for (const std::uint64_t configured : {0U, 2U, 64U, 65'536U}) {
        const std::uint64_t block = LaneBlockOf(
            {.configured = configured, .lanes = lanes, .max_prefetch = most, .rate_per_s = 1e7});
        EXPECT_GE(block, 1U);
        EXPECT_LE(block, shm::kMaxLaneBlock);
        EXPECT_TRUE(block == 1 || block * lanes <= most / 2) << block;
        EXPECT_TRUE(configured == 0 || block <= configured) << block;
      }
    }
  }
}

TEST(LaneBlockTest, SettingIsUsedWhereItFits) {
  EXPECT_EQ(LaneBlockOf({.configured = 64, .lanes = 2, .max_prefetch = 1'000, .rate_per_s = 1e9}),
            64U);
}

TEST(PossibleCpusTest, ReadsTheKernelsLists) {
  EXPECT_EQ(ParsePossibleCpus("0\n"), 1U);
  EXPECT_EQ(ParsePossibleCpus("0-1\n"), 2U);
  EXPECT_EQ(ParsePossibleCpus("0-127\n"), 128U);
  EXPECT_EQ(ParsePossibleCpus("0-3,8\n"), 9U);
  EXPECT_EQ(ParsePossibleCpus("0,2-1023"), 1'024U);
  EXPECT_EQ(ParsePossibleCpus("0-99999\n"), shm::kMaxLanes);
  for (const char* text : {"", "\n", "x", "0-", "0,", "-1", "0 1", "0-99999999999999999999"}) {
    EXPECT_EQ(ParsePossibleCpus(text), std::nullopt) << text;
  }
}

TEST(PossibleCpusTest, AreAsManyAsThisMachineHasOrMore) {
  EXPECT_GE(PossibleCpus(), 1U);
  EXPECT_LE(PossibleCpus(), shm::kMaxLanes);
  SetPossibleCpusForTest(1'024);
  EXPECT_EQ(PossibleCpus(), 1'024U);
  SetPossibleCpusForTest(0);
}

}  // namespace
}  // namespace idd::daemon
