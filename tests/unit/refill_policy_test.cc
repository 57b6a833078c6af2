// SPDX-License-Identifier: Apache-2.0
#include "refill_policy.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "idd/shm/abi.h"

namespace idd::daemon {
namespace {

TEST(RefillPolicyTest, MarkIsATenthIntoTheSegment) {
  EXPECT_EQ(RefillPolicy::MarkOf({1000, 2000}), 1100U);
  EXPECT_EQ(RefillPolicy::MarkOf({1, 1001}), 101U);
}

TEST(RefillPolicyTest, MarkLiesInsideTheSegmentWhateverItsSize) {
  for (std::uint64_t size = 1; size <= 40; ++size) {
    const std::uint64_t mark = RefillPolicy::MarkOf({500, 500 + size});
    EXPECT_GE(mark, 500U) << size;
    EXPECT_LT(mark, 500 + size) << size;
  }
}

TEST(RefillPolicyTest, MarkOfTheWidestSegmentDoesNotOverflow) {
  EXPECT_EQ(RefillPolicy::MarkOf({0, shm::kMaxLimit}), shm::kMaxLimit / 10);
  EXPECT_LT(RefillPolicy::MarkOf({shm::kMaxLimit - 1000, shm::kMaxLimit}), shm::kMaxLimit);
}

TEST(RefillPolicyTest, DryRingWantsASegment) { EXPECT_TRUE(RefillPolicy::WantsSegment({})); }

TEST(RefillPolicyTest, FreshSegmentWantsNoSecondOne) {
  EXPECT_FALSE(
      RefillPolicy::WantsSegment({.open_segments = 1, .current_claimed = 0, .current_size = 1000}));
  EXPECT_FALSE(RefillPolicy::WantsSegment(
      {.open_segments = 1, .current_claimed = 100, .current_size = 1000}));
}

TEST(RefillPolicyTest, ClaimedMarkWantsASecondSegment) {
  EXPECT_TRUE(RefillPolicy::WantsSegment(
      {.open_segments = 1, .current_claimed = 101, .current_size = 1000}));
}

TEST(RefillPolicyTest, TheClaimOfTheMarkAndTheDecisionAgree) {
  // Whoever claims the mark wakes the daemon once: the decision must then be yes, and not before.
  for (std::uint64_t size = 1; size <= 200; ++size) {
    const std::uint64_t offset = RefillPolicy::MarkOf({7, 7 + size}) - 7;
    EXPECT_FALSE(RefillPolicy::WantsSegment(
        {.open_segments = 1, .current_claimed = offset, .current_size = size}))
        << size;
    EXPECT_TRUE(RefillPolicy::WantsSegment(
        {.open_segments = 1, .current_claimed = offset + 1, .current_size = size}))
        << size;
  }
}

TEST(RefillPolicyTest, NeverMoreThanOneSegmentAhead) {
  EXPECT_FALSE(RefillPolicy::WantsSegment(
      {.open_segments = 2, .current_claimed = 999, .current_size = 1000}));
  EXPECT_FALSE(RefillPolicy::WantsSegment(
      {.open_segments = 16, .current_claimed = 1000, .current_size = 1000}));
}

}  // namespace
}  // namespace idd::daemon
