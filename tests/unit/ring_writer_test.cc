// SPDX-License-Identifier: Apache-2.0
//
// The daemon's side of the ring, on memory without other users.
#include "idd/shm/ring_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "idd/shm/abi.h"
#include "support/own_view_claimer.h"
#include "support/test_ring.h"

namespace idd::shm {
namespace {

class RingWriterTest : public ::testing::Test {
 protected:
  TestRing ring_;
};

TEST_F(RingWriterTest, PublishNumbersSegmentsFromOneUpwards) {
  EXPECT_EQ(ring_.Publish(1, 11), 1U);
  EXPECT_EQ(ring_.Publish(11, 21), 2U);
  EXPECT_EQ(ring_.Publish(100, 101), 3U);
  EXPECT_EQ(ring_.table.live.tail_segment, 3U);
}

TEST_F(RingWriterTest, PublishFillsTheSlotOfTheSegmentsNumber) {
  const std::uint32_t before = ring_.table.live.publications;
  ring_.writer.Publish({1000, 2000}, 3, 1100);
  const SlotDescriptor& slot = ring_.table.slots[1];
  EXPECT_EQ(slot.segment, 1U);
  EXPECT_EQ(slot.base, 1000U);
  EXPECT_EQ(slot.limit, 2000U);
  EXPECT_EQ(slot.refill_mark, 1100U);
  EXPECT_EQ(ring_.cursors.slots[1].next, 1003U);
  EXPECT_NE(ring_.table.live.publications, before) << "waiters on the word must be woken";
  EXPECT_EQ(ring_.table.slots[0].segment, 0U) << "no other slot is touched";
}

TEST_F(RingWriterTest, TakenIdsAreNeverClaimedAgain) {
  ring_.Publish(10, 20, 4);
  EXPECT_EQ(ring_.writer.Available(), 6U);
  EXPECT_EQ(ring_.writer.Claim(100).ids, (IdRange{14, 20}));
}

TEST_F(RingWriterTest, SegmentTakenWholeIsExhaustedFromTheStart) {
  ring_.Publish(10, 20, 10);
  EXPECT_TRUE(ring_.writer.Claim(1).ids.empty());
  const auto retired = ring_.writer.RetireExhausted();
  ASSERT_EQ(retired.size(), 1U);
  EXPECT_EQ(retired[0].claimed(), 10U);
}

TEST_F(RingWriterTest, ClaimGoesThroughSegmentsInOrder) {
  ring_.Publish(1, 4);
  ring_.Publish(10, 12);
  EXPECT_EQ(ring_.writer.Claim(2).ids, (IdRange{1, 3}));
  EXPECT_EQ(ring_.writer.Claim(2).ids, (IdRange{3, 4})) << "a segment's end shortens a claim";
  EXPECT_EQ(ring_.writer.Claim(2).ids, (IdRange{10, 12}));
  EXPECT_TRUE(ring_.writer.Claim(1).ids.empty());
}

TEST_F(RingWriterTest, ClaimLeavesAnExhaustedCursorAlone) {
  ring_.Publish(1, 4);
  ASSERT_EQ(ring_.writer.Claim(3).ids.size(), 3U);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(ring_.writer.Claim(kMaxClaim).ids.empty());
  EXPECT_EQ(ring_.cursor(1), 4U);
}

TEST_F(RingWriterTest, SixteenSegmentsFitAndNoMore) {
  for (std::uint64_t i = 1; i <= kSlotCount; ++i) {
    ASSERT_TRUE(ring_.writer.CanPublish()) << i;
    ring_.Publish(i * 10, i * 10 + 10);
  }
  EXPECT_FALSE(ring_.writer.CanPublish());
  EXPECT_EQ(ring_.writer.Snapshot().size(), kSlotCount);
  EXPECT_EQ(ring_.writer.Available(), kSlotCount * 10);
}

TEST_F(RingWriterTest, AnExhaustedSegmentMakesRoomOnceItIsRetired) {
  for (std::uint64_t i = 1; i <= kSlotCount; ++i) ring_.Publish(i * 10, i * 10 + 10);
  ASSERT_EQ(ring_.writer.Claim(10).ids.size(), 10U);
  EXPECT_FALSE(ring_.writer.CanPublish());
  ASSERT_EQ(ring_.writer.RetireExhausted().size(), 1U);
  ASSERT_TRUE(ring_.writer.CanPublish());
  EXPECT_EQ(ring_.Publish(1000, 1010), kSlotCount + 1);
  EXPECT_EQ(ring_.slot(1).segment, kSlotCount + 1) << "the oldest slot was recycled";
}

TEST_F(RingWriterTest, RetireStopsAtTheFirstSegmentThatHasIds) {
  ring_.Publish(1, 3);
  ring_.Publish(3, 5);
  ring_.Publish(5, 7, 2);
  ASSERT_EQ(ring_.writer.Claim(2).ids.size(), 2U);
  const auto retired = ring_.writer.RetireExhausted();
  ASSERT_EQ(retired.size(), 1U);
  EXPECT_EQ(retired[0].number, 1U);
  EXPECT_EQ(retired[0].ids, (IdRange{1, 3}));
  EXPECT_EQ(ring_.table.live.head_segment, 2U);
  EXPECT_TRUE(ring_.writer.RetireExhausted().empty()) << "each is reported once";
  ASSERT_EQ(ring_.writer.Claim(2).ids.size(), 2U);
  EXPECT_EQ(ring_.writer.RetireExhausted().size(), 2U);
  EXPECT_EQ(ring_.table.live.head_segment, 4U);
}

TEST_F(RingWriterTest, OvershotCursorCountsAsExhaustedNotMore) {
  ring_.Publish(1, 11);
  ring_.cursor(1) = 5000;
  EXPECT_EQ(ring_.writer.Available(), 0U);
  const auto retired = ring_.writer.RetireExhausted();
  ASSERT_EQ(retired.size(), 1U);
  EXPECT_EQ(retired[0].claimed(), 10U);
}

TEST_F(RingWriterTest, DrainReturnsUnclaimedIdsOldestFirst) {
  ring_.Publish(1, 11);
  ring_.Publish(11, 21);
  ASSERT_EQ(ring_.writer.Claim(4).ids.size(), 4U);
  const auto drained = ring_.writer.DrainAll();
  ASSERT_EQ(drained.size(), 2U);
  EXPECT_EQ(drained[0].next, 5U);
  EXPECT_EQ(drained[0].available(), 6U);
  EXPECT_EQ(drained[1].ids, (IdRange{11, 21}));
  EXPECT_EQ(drained[1].available(), 10U);
}

TEST_F(RingWriterTest, DrainClosesEveryCursorForGood) {
  ring_.Publish(1, 11);
  ring_.Publish(11, 21);
  static_cast<void>(ring_.writer.DrainAll());
  EXPECT_EQ(ring_.cursor(1), 1 + kClosingStep) << "its last position must stay readable";
  EXPECT_EQ(ring_.cursor(2), 11 + kClosingStep);
  EXPECT_TRUE(ring_.writer.Claim(1).ids.empty());
  EXPECT_EQ(ring_.writer.Available(), 0U);
  EXPECT_TRUE(ring_.writer.Snapshot().empty());
  EXPECT_TRUE(ring_.writer.DrainAll().empty()) << "a tail must be returned only once";
  EXPECT_EQ(ring_.table.live.head_segment, 3U);
}

TEST_F(RingWriterTest, DrainOfAnOvershotSegmentReturnsNothingOfIt) {
  ring_.Publish(1, 11);
  ring_.cursor(1) = 5000;
  const auto drained = ring_.writer.DrainAll();
  ASSERT_EQ(drained.size(), 1U);
  EXPECT_EQ(drained[0].available(), 0U);
}

TEST_F(RingWriterTest, DrainFindsACursorForgedBelowBase) {
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{999}}) {
    TestRing ring;
    ring.Publish(1000, 2000);
    ring.cursor(1) = forged;
    const auto drained = ring.writer.DrainAll();
    ASSERT_EQ(drained.size(), 1U);
    EXPECT_GE(drained[0].next, 1000U) << "it must still be in bounds";
    EXPECT_LE(drained[0].next, 2000U);
    EXPECT_TRUE(ring.writer.forged()) << "no id is known to be unclaimed: " << forged;
  }
}

TEST_F(RingWriterTest, LookStaysInBoundsWhateverTheCursorHolds) {
  ring_.Publish(1000, 2000);
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{999}, std::uint64_t{1500},
                                     std::uint64_t{2000}, kMaxLimit, kClosingStep, kMaxWord}) {
    ring_.cursor(1) = forged;
    const auto segments = ring_.writer.Snapshot();
    ASSERT_EQ(segments.size(), 1U);
    EXPECT_GE(segments[0].next, 1000U);
    EXPECT_LE(segments[0].next, 2000U);
    EXPECT_LE(segments[0].claimed(), 1000U);
    EXPECT_LE(segments[0].available(), 1000U);
  }
}

TEST_F(RingWriterTest, LookFindsACursorThatWasMovedBack) {
  ring_.Publish(1000, 2000);
  ASSERT_EQ(ring_.writer.Claim(500).ids.size(), 500U);
  EXPECT_EQ(ring_.writer.Snapshot()[0].claimed(), 500U);
  EXPECT_FALSE(ring_.writer.forged());
  ring_.cursor(1) = 1499;
  EXPECT_EQ(ring_.writer.Snapshot()[0].claimed(), 500U) << "what was claimed stays claimed";
  EXPECT_TRUE(ring_.writer.forged());
}

TEST_F(RingWriterTest, LookFindsACursorThatAnotherClosed) {
  ring_.Publish(1000, 2000);
  ring_.cursor(1) += kClosingStep;
  static_cast<void>(ring_.writer.Snapshot());
  EXPECT_TRUE(ring_.writer.forged());
}

TEST_F(RingWriterTest, DrainFindsACursorThatWasMovedBack) {
  ring_.Publish(1000, 2000);
  ASSERT_EQ(ring_.writer.Claim(500).ids.size(), 500U);
  static_cast<void>(ring_.writer.Snapshot());
  ring_.cursor(1) = 1000;
  static_cast<void>(ring_.writer.DrainAll());
  EXPECT_TRUE(ring_.writer.forged());
}

// Regression: the daemon looked, saw that the cursor had been set back, and claimed from it.
TEST_F(RingWriterTest, ClaimTakesNothingFromACursorThatWasSetBack) {
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{50}}) {
    TestRing ring;
    ring.Publish(1, 101);
    ring.cursor(1) = 51;
    ASSERT_EQ(ring.writer.Available(), 50U);
    ring.cursor(1) = forged;
    const IdRange ids = ring.writer.Claim(100).ids;
    EXPECT_TRUE(ids.empty()) << forged << ": was given " << ids.first;
    EXPECT_TRUE(ring.writer.forged());
  }
}

// Regression: ids that the daemon itself had claimed were not counted as seen.
TEST_F(RingWriterTest, OwnClaimIsAsGoodAsALook) {
  ring_.Publish(1, 101);
  ASSERT_EQ(ring_.writer.Claim(50).ids, (IdRange{1, 51}));
  ring_.cursor(1) = 50;
  const IdRange again = ring_.writer.Claim(1).ids;
  EXPECT_TRUE(again.empty()) << "was given " << again.first << " a second time";
  EXPECT_TRUE(ring_.writer.forged());
}

TEST_F(RingWriterTest, OwnClaimCountsForTheDrain) {
  ring_.Publish(1, 101);
  ASSERT_EQ(ring_.writer.Claim(50).ids.size(), 50U);
  ring_.cursor(1) = 10;
  const auto drained = ring_.writer.DrainAll();
  ASSERT_EQ(drained.size(), 1U);
  EXPECT_EQ(drained[0].next, 51U);
  EXPECT_TRUE(ring_.writer.forged());
}

TEST_F(RingWriterTest, ForgedRingGivesNothingOfItsOtherSegmentsEither) {
  ring_.Publish(1, 11);
  ring_.Publish(11, 21);
  ring_.cursor(2) = 3;
  ASSERT_EQ(ring_.writer.Snapshot().size(), 2U);
  ASSERT_TRUE(ring_.writer.forged());
  EXPECT_TRUE(ring_.writer.Claim(1).ids.empty());
}

TEST_F(RingWriterTest, ClaimOfACursorThatWasSetForwardStaysInBounds) {
  ring_.Publish(1, 11);
  ring_.Publish(11, 21);
  ring_.cursor(1) = 8;
  EXPECT_EQ(ring_.writer.Claim(10).ids, (IdRange{8, 11})) << "the others are a gap";
  ring_.cursor(2) = 5000;
  EXPECT_TRUE(ring_.writer.Claim(1).ids.empty());
  EXPECT_FALSE(ring_.writer.forged()) << "no id may come twice";
  ring_.cursor(2) = 15;
  EXPECT_TRUE(ring_.writer.Claim(1).ids.empty());
  EXPECT_TRUE(ring_.writer.forged());
}

TEST_F(RingWriterTest, ClaimDoesNotRunACursorRound) {
  ring_.Publish(1, 101);
  ASSERT_EQ(ring_.writer.Claim(50).ids.size(), 50U);
  ring_.cursor(1) = kMaxWord;
  EXPECT_TRUE(ring_.writer.Claim(10).ids.empty());
  EXPECT_TRUE(ring_.writer.forged());
  EXPECT_EQ(ring_.cursor(1), kMaxWord) << "a look has shown it, so nothing is added";
}

TEST_F(RingWriterTest, WitnessIsRaisedByLooksAndClaimsUntilTheSegmentIsOver) {
  std::atomic<std::uint64_t> first{1};
  std::atomic<std::uint64_t> second{11};
  ring_.writer.Publish({1, 11}, 0, kNoMark, &first);
  ring_.writer.Publish({11, 21}, 2, kNoMark, &second);
  ASSERT_EQ(ring_.writer.Claim(3).ids.size(), 3U);
  EXPECT_EQ(first.load(), 4U);
  ring_.cursor(1) = 5000;
  static_cast<void>(ring_.writer.Snapshot());
  EXPECT_EQ(first.load(), 11U) << "no more than its limit";
  ASSERT_EQ(ring_.writer.RetireExhausted().size(), 1U);
  first = 0;  // another claim's now
  ring_.cursor(2) = 15;
  ASSERT_EQ(ring_.writer.DrainAll().size(), 1U);
  EXPECT_EQ(second.load(), 15U);
  second = 0;
  ring_.Publish(21, 31);
  ASSERT_EQ(ring_.writer.Claim(10).ids.size(), 10U);
  EXPECT_EQ(first.load() + second.load(), 0U);
}

// A hostile client also writes between the daemon's look and its add.
TEST_F(RingWriterTest, NoClaimRepeatsAnIdWhileTheCursorIsSetBack) {
  for (int round = 0; round < 100; ++round) {
    TestRing ring;
    ring.Publish(1, 1'000'001);
    std::atomic<bool> stop{false};
    std::thread client([&] {
      while (!stop.load(std::memory_order_relaxed)) {        // no data depends on it
        ring.cursor(1).store(1, std::memory_order_relaxed);  // a client's word
      }
    });
    std::uint64_t last = 0;
    bool rises = true;
    while (rises && !ring.writer.forged()) {  // the client runs some time
      const IdRange ids = ring.writer.Claim(1).ids;
      if (ids.empty()) continue;
      rises = ids.first > last;
      last = ids.first;
    }
    stop.store(true, std::memory_order_relaxed);  // set for the loop above alone
    client.join();
    ASSERT_TRUE(rises) << "round " << round << ": id " << last << " was given again";
  }
}

TEST_F(RingWriterTest, NoHonestClaimLooksForged) {
  OwnViewClaimer claimers[] = {{ring_.table, ring_.cursors}, {ring_.table, ring_.cursors}};
  std::uint64_t next = 1;
  for (int round = 0; round < 200; ++round) {
    ring_.Publish(next, next + 10);
    next += 10;
    for (OwnViewClaimer& claimer : claimers) static_cast<void>(claimer.Claim(kMaxClaim));
    static_cast<void>(ring_.writer.Snapshot());
    if (round % 3 == 0) static_cast<void>(ring_.writer.RetireExhausted());
    if (round % 7 == 0) static_cast<void>(ring_.writer.DrainAll());
    if (!ring_.writer.CanPublish()) static_cast<void>(ring_.writer.RetireExhausted());
  }
  EXPECT_FALSE(ring_.writer.forged());
}

// Regression: a batch that overflows the end of the id space ends above every limit and was treated
// as a forgery.
TEST_F(RingWriterTest, OvershootAtTheEndOfAllIdsIsNotForged) {
  OwnViewClaimer claimer(ring_.table, ring_.cursors);
  ring_.Publish(kMaxLimit - 5, kMaxLimit);
  ASSERT_EQ(claimer.Claim(10).ids.size(), 5U);
  EXPECT_EQ(ring_.writer.RetireExhausted().size(), 1U);
  EXPECT_FALSE(ring_.writer.forged());
}

// The claimer has added, and is about to check the segment's number.
TEST_F(RingWriterTest, DrainRecordsTheEndForOvertakenClaimers) {
  ring_.Publish(1, 11);
  ASSERT_EQ(ring_.writer.Claim(4).ids.size(), 4U);
  static_cast<void>(ring_.writer.DrainAll());
  const SlotDescriptor& slot = ring_.table.slots[1];
  EXPECT_EQ(KeepOvertaken(slot, 1, {4, 5}), (IdRange{4, 5}));
  EXPECT_EQ(KeepOvertaken(slot, 1, {3, 9}), (IdRange{3, 5})) << "the rest is the daemon's";
  EXPECT_TRUE(KeepOvertaken(slot, 1, {5, 6}).empty());
}

TEST_F(RingWriterTest, OvertakenClaimersOfAnExhaustedSegmentKeepTheirIds) {
  ring_.Publish(1, 3);
  ASSERT_EQ(ring_.writer.Claim(2).ids.size(), 2U);
  ASSERT_EQ(ring_.writer.RetireExhausted().size(), 1U);
  EXPECT_EQ(KeepOvertaken(ring_.table.slots[1], 1, {2, 3}), (IdRange{2, 3}));
}

TEST_F(RingWriterTest, EndsAreForgottenByTheSecondCallAndByRecycling) {
  ring_.Publish(1, 3);
  ASSERT_EQ(ring_.writer.Claim(2).ids.size(), 2U);
  ASSERT_EQ(ring_.writer.RetireExhausted().size(), 1U);
  ring_.writer.ClearOldEnds();
  EXPECT_EQ(ring_.table.slots[1].ended_segment, 1U);
  ring_.writer.ClearOldEnds();
  EXPECT_EQ(ring_.table.slots[1].ended_segment, 0U);
  EXPECT_TRUE(KeepOvertaken(ring_.table.slots[1], 1, {2, 3}).empty());

  for (std::uint64_t base = 3; base < 3 + kSlotCount; ++base) {
    ring_.Publish(base, base + 1, 1);
    ASSERT_EQ(ring_.writer.RetireExhausted().size(), 1U);
  }
  EXPECT_EQ(ring_.table.slots[1].ended_segment, 1U + kSlotCount) << "not an older segment's";
}

// Regression: segments were closed oldest first. A claimer that found the first one withdrawn got
// an id from the last, while one that began after it kept a smaller id from the first.
TEST_F(RingWriterTest, NothingIsOpenAfterASegmentThatIsWithdrawn) {
  for (int round = 0; round < 100; ++round) {
    TestRing ring;
    for (std::uint64_t base = 1; base < kSlotCount; ++base) ring.Publish(base, base + 1);
    std::atomic<bool> watched{false};
    std::uint64_t last = 0;
    std::thread watcher([&] {
      watched.store(true, std::memory_order_relaxed);  // starts the drain: no data depends on it
      while (ring.table.slots[1].segment.load(std::memory_order_acquire) != 0) {  // C0, with D1
      }
      last = ring.cursor(kSlotCount - 1).load(std::memory_order_relaxed);  // L1: a look, after C0
    });
    while (!watched.load(std::memory_order_relaxed)) {  // set above; no other data depends on it
    }
    static_cast<void>(ring.writer.DrainAll());
    watcher.join();
    ASSERT_GE(last, kClosingStep) << "round " << round;
  }
}

TEST_F(RingWriterTest, ForgedRingRecordsNoEnd) {
  ring_.Publish(1000, 2000);
  ring_.cursor(1) = 5;
  static_cast<void>(ring_.writer.DrainAll());
  EXPECT_EQ(ring_.table.slots[1].ended_segment, 0U);
}

TEST_F(RingWriterTest, PublishAfterDrainGoesOnAboveTheFloor) {
  ring_.Publish(1, 11);
  static_cast<void>(ring_.writer.DrainAll());
  EXPECT_EQ(ring_.writer.floor(), 11U);
  EXPECT_EQ(ring_.Publish(11, 21), 2U);
  EXPECT_EQ(ring_.writer.Claim(1).ids, (IdRange{11, 12}));
}

TEST_F(RingWriterTest, FloorIsTheHighestLimitEverPublished) {
  EXPECT_EQ(ring_.writer.floor(), 0U);
  ring_.Publish(5, 10);
  EXPECT_EQ(ring_.writer.floor(), 10U);
  ring_.Publish(1000, 1001);
  EXPECT_EQ(ring_.writer.floor(), 1001U);
}

TEST_F(RingWriterTest, LastIdsBelowTheLimitOfAllAreClaimable) {
  ring_.Publish(kMaxLimit - 3, kMaxLimit);
  EXPECT_EQ(ring_.writer.Claim(kMaxClaim).ids, (IdRange{kMaxLimit - 3, kMaxLimit}));
  EXPECT_TRUE(ring_.writer.Claim(1).ids.empty());
  EXPECT_EQ(ring_.writer.RetireExhausted().size(), 1U);
}

TEST_F(RingWriterTest, ClaimOfMoreThanOneAddMayTakeIsCut) {
  ring_.Publish(1, 1 + 3 * kMaxClaim);
  EXPECT_EQ(ring_.writer.Claim(kMaxWord).ids, (IdRange{1, 1 + kMaxClaim}));
}

TEST_F(RingWriterTest, StateIsPublishedAndWakesWaiters) {
  const std::uint32_t before = ring_.table.live.publications;
  ring_.writer.SetState(RingState::kRetired);
  EXPECT_EQ(ring_.table.live.state, static_cast<std::uint32_t>(RingState::kRetired));
  EXPECT_EQ(ring_.writer.state(), RingState::kRetired);
  EXPECT_NE(ring_.table.live.publications, before);
}

using RingWriterDeathTest = ::testing::Test;

TEST(RingWriterDeathTest, PublishBelowTheFloorEndsTheProcess) {
  TestRing ring;
  ring.Publish(1, 11);
  EXPECT_DEATH(ring.Publish(10, 20), "check failed");
}

TEST(RingWriterDeathTest, PublishOfAnEmptyOrTooHighSegmentEndsTheProcess) {
  TestRing ring;
  EXPECT_DEATH(ring.Publish(5, 5), "check failed");
  EXPECT_DEATH(ring.Publish(6, 5), "check failed");
  EXPECT_DEATH(ring.Publish(kMaxLimit - 4, kMaxLimit + 1), "check failed");
  EXPECT_DEATH(ring.Publish(1, kClosingStep / 2 + 2), "check failed") << "it would stay open";
  EXPECT_DEATH(ring.Publish(1, 11, 11), "check failed") << "more taken than there is";
}

TEST(RingWriterDeathTest, PublishOverAnOpenSegmentEndsTheProcess) {
  TestRing ring;
  for (std::uint64_t i = 1; i <= kSlotCount; ++i) ring.Publish(i * 10, i * 10 + 10);
  EXPECT_DEATH(ring.Publish(1000, 1010), "check failed");
}

}  // namespace
}  // namespace idd::shm
