// SPDX-License-Identifier: Apache-2.0
//
// A claimer against a publisher, single-threaded interleavings first, threads on one mapping last.
#include "idd/shm/ring_claimer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "idd/base/clock.h"
#include "idd/shm/abi.h"
#include "idd/shm/left_ring.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_protocol.h"
#include "idd/shm/ring_writer.h"
#include "support/own_view_claimer.h"
#include "support/test_ring.h"

namespace idd::shm {
namespace {

// Claims until the ring is dry; returns the number of ids.
std::uint64_t Exhaust(OwnViewClaimer& claimer, std::uint64_t batch = 1000) {
  std::uint64_t claimed = 0;
  for (IdRange ids = claimer.Claim(batch).ids; !ids.empty(); ids = claimer.Claim(batch).ids) {
    claimed += ids.size();
  }
  return claimed;
}

class RingClaimerTest : public ::testing::Test {
 protected:
  TestRing ring_;
  OwnViewClaimer claimer_{ring_.table, ring_.cursors};
};

TEST_F(RingClaimerTest, ClaimReportsDryBeforeTheFirstSegment) {
  EXPECT_TRUE(claimer_.Claim(1).ids.empty());
  EXPECT_FALSE(claimer_.HasIds());
  for (const Cursor& cursor : ring_.cursors.slots) EXPECT_EQ(cursor.next, 0U);
}

TEST_F(RingClaimerTest, ClaimsRiseFromBaseToLimit) {
  ring_.Publish(100, 103);
  for (std::uint64_t id = 100; id < 103; ++id) {
    EXPECT_EQ(claimer_.Claim(1).ids, (IdRange{id, id + 1}));
  }
  EXPECT_TRUE(claimer_.Claim(1).ids.empty());
}

TEST_F(RingClaimerTest, BatchTakesWhatIsLeftAndGoesOnInTheNextSegment) {
  ring_.Publish(1, 6);
  ring_.Publish(6, 11);
  ring_.Publish(500, 505);
  EXPECT_EQ(claimer_.Claim(3).ids, (IdRange{1, 4}));
  EXPECT_EQ(claimer_.Claim(3).ids, (IdRange{4, 6}));
  EXPECT_EQ(claimer_.Claim(100).ids, (IdRange{6, 11}));
  EXPECT_EQ(claimer_.Claim(3).ids, (IdRange{500, 503}));
  EXPECT_EQ(claimer_.Claim(3).ids, (IdRange{503, 505}));
}

TEST_F(RingClaimerTest, ClaimReportsDryWhenEverySlotIsExhausted) {
  for (std::uint64_t i = 1; i <= kSlotCount; ++i) ring_.Publish(i * 10, i * 10 + 10);
  EXPECT_EQ(Exhaust(claimer_, 3), kSlotCount * 10);
  EXPECT_TRUE(claimer_.Claim(1).ids.empty());
  EXPECT_FALSE(claimer_.HasIds());
}

TEST_F(RingClaimerTest, DryClaimerAddsToNoCursor) {
  ring_.Publish(1, 11);
  ASSERT_EQ(Exhaust(claimer_), 10U);
  const std::uint64_t cursor = ring_.cursor(1);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(claimer_.Claim(kMaxClaim).ids.empty());
  EXPECT_EQ(ring_.cursor(1), cursor) << "look before you add";
}

TEST_F(RingClaimerTest, LateClaimerAddsToNoExhaustedCursor) {
  TestRing ring;
  OwnViewClaimer first(ring.table, ring.cursors);
  ring.Publish(1, 11);
  ring.Publish(11, 21);
  ASSERT_EQ(first.Claim(10).ids.size(), 10U);
  const std::uint64_t cursor = ring.cursor(1);
  OwnViewClaimer late(ring.table, ring.cursors);
  EXPECT_EQ(late.Claim(1).ids, (IdRange{11, 12}));
  EXPECT_EQ(ring.cursor(1), cursor);
}

TEST_F(RingClaimerTest, DryClaimerFindsTheNextSegment) {
  std::uint64_t next = 1;
  for (int round = 0; round < 100; ++round) {
    ring_.Publish(next, next + 7);
    EXPECT_TRUE(claimer_.HasIds());
    EXPECT_EQ(claimer_.Claim(100).ids, (IdRange{next, next + 7}));
    EXPECT_TRUE(claimer_.Claim(1).ids.empty());
    EXPECT_FALSE(claimer_.HasIds());
    next += 7;
    static_cast<void>(ring_.writer.RetireExhausted());
  }
}

TEST_F(RingClaimerTest, LateClaimerStartsAtHead) {
  TestRing ring;
  OwnViewClaimer first(ring.table, ring.cursors);
  for (std::uint64_t i = 1; i <= 40; ++i) {
    ring.Publish(i * 100, i * 100 + 10);
    ASSERT_EQ(Exhaust(first), 10U);
    ASSERT_EQ(ring.writer.RetireExhausted().size(), 1U);
  }
  OwnViewClaimer late(ring.table, ring.cursors);
  EXPECT_TRUE(late.Claim(1).ids.empty());
  ring.Publish(5000, 5010);
  ring.Publish(5010, 5020);
  OwnViewClaimer later(ring.table, ring.cursors);
  EXPECT_EQ(late.Claim(1).ids, (IdRange{5000, 5001}));
  EXPECT_EQ(later.Claim(1).ids, (IdRange{5001, 5002}));
}

TEST_F(RingClaimerTest, StaleClaimerOfARecycledSlotGetsOnlyNewIds) {
  // The sleeper's hint names segment 1; slot 1 then holds segments 17, 33, ...: the same slot,
  // other ids.
  for (const std::uint64_t recycled : {15U, 16U, 17U, 31U, 32U, 33U, 100U}) {
    TestRing ring;
    OwnViewClaimer sleeper(ring.table, ring.cursors);
    OwnViewClaimer busy(ring.table, ring.cursors);
    ring.Publish(1, 11);
    ASSERT_EQ(sleeper.Claim(1).ids, (IdRange{1, 2}));
    ASSERT_EQ(Exhaust(busy), 9U);
    static_cast<void>(ring.writer.RetireExhausted());
    std::uint64_t next = 11;
    for (std::uint64_t i = 0; i < recycled; ++i, next += 10) {
      ring.Publish(next, next + 10);
      ASSERT_EQ(Exhaust(busy), 10U);
      static_cast<void>(ring.writer.RetireExhausted());
    }
    EXPECT_TRUE(sleeper.Claim(5).ids.empty()) << recycled;
    ring.Publish(next, next + 10);
    EXPECT_EQ(sleeper.Claim(5).ids, (IdRange{next, next + 5})) << recycled;
    EXPECT_EQ(busy.Claim(50).ids, (IdRange{next + 5, next + 10})) << recycled;
  }
}

TEST_F(RingClaimerTest, DrainMidwayEndsClaimsWhereTheDrainFoundThem) {
  ring_.Publish(1, 101);
  ring_.Publish(101, 201);
  ASSERT_EQ(claimer_.Claim(40).ids, (IdRange{1, 41}));
  const auto drained = ring_.writer.DrainAll();
  EXPECT_EQ(drained[0].next, 41U);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(claimer_.Claim(kMaxClaim).ids.empty());
  OwnViewClaimer late(ring_.table, ring_.cursors);
  EXPECT_TRUE(late.Claim(1).ids.empty());
}

TEST_F(RingClaimerTest, ClaimersGoOnAfterADrainAndAPublish) {
  ring_.Publish(1, 101);
  ASSERT_EQ(claimer_.Claim(40).ids.size(), 40U);
  static_cast<void>(ring_.writer.DrainAll());
  ASSERT_TRUE(claimer_.Claim(1).ids.empty());
  ring_.Publish(101, 111);
  EXPECT_EQ(claimer_.Claim(100).ids, (IdRange{101, 111}));
}

// Regression: DrainSlot left base and limit unchanged, so a client that reset the closed cursor
// made other clients accept ids that the daemon had handed back to the store.
TEST_F(RingClaimerTest, DrainedSegmentStaysClosedWhenItsCursorIsForgedBack) {
  ring_.Publish(1, 101);
  ASSERT_EQ(claimer_.Claim(10).ids.size(), 10U);
  const auto drained = ring_.writer.DrainAll();
  ASSERT_EQ(drained[0].available(), 90U);  // the daemon's alone from now on
  ring_.cursor(1) = 11;
  EXPECT_TRUE(claimer_.Claim(1).ids.empty()) << "an id of a tail that was handed back";
  OwnViewClaimer late(ring_.table, ring_.cursors);
  EXPECT_TRUE(late.Claim(1).ids.empty());
}

// With every batch size the mark is reported once, wherever the claims fall.
class RefillMarkTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RefillMarkTest, ExactlyOneClaimReportsTheMark) {
  for (const std::uint64_t mark : {1000U, 1001U, 1100U, 1998U, 1999U}) {
    TestRing ring;
    OwnViewClaimer claimer(ring.table, ring.cursors);
    ring.writer.Publish({1000, 2000}, 0, mark);
    int reports = 0;
    for (SlotClaim claim = claimer.Claim(GetParam()); !claim.ids.empty();
         claim = claimer.Claim(GetParam())) {
      const bool covers = claim.ids.first <= mark && mark < claim.ids.limit;
      EXPECT_EQ(claim.wakes_daemon, covers) << claim.ids.first;
      reports += claim.wakes_daemon ? 1 : 0;
    }
    EXPECT_EQ(reports, 1) << "mark " << mark;
  }
}

INSTANTIATE_TEST_SUITE_P(BatchSizes, RefillMarkTest,
                         ::testing::Values(1, 2, 3, 7, 64, 99, 100, 101, 999, 1000, 1001,
                                           kMaxClaim));

TEST_F(RingClaimerTest, NoClaimReportsAMarkThatWasTakenOrIsNone) {
  ring_.writer.Publish({1000, 2000}, 200, 1100);
  ring_.writer.Publish({2000, 3000}, 0, kNoMark);
  for (SlotClaim claim = claimer_.Claim(7); !claim.ids.empty(); claim = claimer_.Claim(7)) {
    EXPECT_FALSE(claim.wakes_daemon) << claim.ids.first;
  }
}

TEST_F(RingClaimerTest, ClaimOfMoreThanOneAddMayTakeIsCut) {
  ring_.Publish(1, 1 + 3 * kMaxClaim);
  EXPECT_EQ(claimer_.Claim(kMaxWord).ids, (IdRange{1, 1 + kMaxClaim}));
  EXPECT_EQ(claimer_.Claim(kMaxClaim + 1).ids, (IdRange{1 + kMaxClaim, 1 + 2 * kMaxClaim}));
  EXPECT_EQ(claimer_.Claim(kMaxClaim).ids, (IdRange{1 + 2 * kMaxClaim, 1 + 3 * kMaxClaim}));
  EXPECT_TRUE(claimer_.Claim(kMaxClaim).ids.empty());
}

TEST_F(RingClaimerTest, LastIdsBelowTheLimitOfAllAreClaimedOnce) {
  TestRing ring;
  OwnViewClaimer one(ring.table, ring.cursors);
  OwnViewClaimer two(ring.table, ring.cursors);
  ring.Publish(kMaxLimit - 5, kMaxLimit);
  EXPECT_EQ(one.Claim(2).ids, (IdRange{kMaxLimit - 5, kMaxLimit - 3}));
  EXPECT_EQ(two.Claim(kMaxClaim).ids, (IdRange{kMaxLimit - 3, kMaxLimit}));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(one.Claim(kMaxClaim).ids.empty());
    ASSERT_TRUE(two.Claim(kMaxClaim).ids.empty());
  }
}

TEST_F(RingClaimerTest, HasIdsLooksWithoutClaiming) {
  ring_.Publish(1, 3);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(claimer_.HasIds());
  EXPECT_EQ(ring_.cursor(1), 1U);
}

TEST_F(RingClaimerTest, StateIsTheTables) {
  TestRing ring;
  const OwnViewClaimer claimer(ring.table, ring.cursors);
  EXPECT_EQ(claimer.state(), RingState::kActive);
  ring.writer.SetState(RingState::kQuarantined);
  EXPECT_EQ(claimer.state(), RingState::kQuarantined);
}

// Values that a hostile client may write into a cursor.
class ForgedCursorTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr IdRange kIds{1000, 2000};

  static void ExpectInBounds(const SlotClaim& claim, std::uint64_t count) {
    if (claim.ids.empty()) return;
    EXPECT_GE(claim.ids.first, kIds.first);
    EXPECT_LE(claim.ids.limit, kIds.limit);
    EXPECT_LE(claim.ids.size(), count);
  }
};

TEST_P(ForgedCursorTest, NoClaimLeavesTheSegmentsBounds) {
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{7}, kMaxClaim, kMaxWord}) {
    for (const bool positioned : {false, true}) {
      TestRing ring;
      OwnViewClaimer claimer(ring.table, ring.cursors);
      ring.Publish(kIds.first, kIds.limit);
      ASSERT_EQ(claimer.Claim(positioned ? 1 : 0).ids.size(), positioned ? 1U : 0U);
      for (int i = 0; i < 5; ++i) {
        ring.cursor(1) = GetParam();
        ExpectInBounds(claimer.Claim(count), count);
        ExpectInBounds(ring.writer.Claim(count), count);
      }
    }
  }
}

TEST_P(ForgedCursorTest, OtherSegmentsAreNotTouched) {
  TestRing ring;
  OwnViewClaimer claimer(ring.table, ring.cursors);
  ring.Publish(kIds.first, kIds.limit);
  ring.Publish(kIds.limit, 3000);
  ring.cursor(1) = GetParam();
  std::uint64_t of_second = 0;
  for (int i = 0; i < 5000; ++i) {
    const IdRange ids = claimer.Claim(1).ids;
    if (!ids.empty() && ids.first >= kIds.limit) ++of_second;
  }
  EXPECT_LE(of_second, 1000U);
  ring.cursor(1) = kIds.limit;
  OwnViewClaimer rest(ring.table, ring.cursors);
  EXPECT_EQ(of_second + Exhaust(rest), 1000U) << "each id of the second segment once";
}

INSTANTIATE_TEST_SUITE_P(Values, ForgedCursorTest,
                         ::testing::Values(0, 1, 999, 1000, 1001, 1500, 1999, 2000, 2001,
                                           kMaxLimit - 1, kMaxLimit, kClosingStep - 1, kClosingStep,
                                           kClosingStep + 1, kMaxWord - kMaxClaim, kMaxWord - 1,
                                           kMaxWord));

// Steps of claimers and publisher in random order: ids rise over all claims, none comes twice, none
// lies outside a published segment, and the drain finds all unclaimed ids.
TEST_F(RingClaimerTest, RandomInterleavingsGiveEveryIdOnceAndInOrder) {
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](std::uint32_t limit) { return random() % limit; };
    TestRing ring;
    std::vector<std::unique_ptr<OwnViewClaimer>> claimers;
    for (int i = 0; i < 5; ++i) {
      claimers.push_back(std::make_unique<OwnViewClaimer>(ring.table, ring.cursors));
    }
    std::vector<IdRange> published;
    std::uint64_t newest = 0;  // over all claims so far
    std::uint64_t claimed = 0;
    std::uint64_t leased = 0;
    for (int step = 0; step < 3000; ++step) {
      switch (below(8)) {
        case 0:
          static_cast<void>(ring.writer.RetireExhausted());
          break;
        case 1:
          if (ring.writer.CanPublish()) {
            const std::uint64_t first = ring.writer.floor() + below(3) * 50 + 1;
            const std::uint64_t size = 1 + below(40);
            ring.Publish(first, first + size);
            published.push_back({first, first + size});
            leased += size;
          }
          break;
        case 2:
          claimers[below(5)] = std::make_unique<OwnViewClaimer>(ring.table, ring.cursors);
          break;
        default: {
          // Mostly the first two, so that the others sleep through many recyclings.
          OwnViewClaimer& claimer = *claimers[below(20) == 0 ? 2 + below(3) : below(2)];
          const IdRange ids = claimer.Claim(1 + below(60)).ids;
          if (ids.empty()) break;
          ASSERT_GT(ids.first, newest) << "seed " << seed << " step " << step;
          newest = ids.limit - 1;
          claimed += ids.size();
          ASSERT_TRUE(std::any_of(published.begin(), published.end(),
                                  [ids](const IdRange& range) {
                                    return range.first <= ids.first && ids.limit <= range.limit;
                                  }))
              << "seed " << seed;
        }
      }
    }
    std::uint64_t left = 0;
    for (const RingWriter::Segment& segment : ring.writer.DrainAll()) left += segment.available();
    EXPECT_EQ(claimed + left, leased) << "seed " << seed;
  }
}

// Values that a claimer may read while the daemon rewrites the slot: the old segment's limit, then
// the new one's base.
struct TornSlot {
  struct Word {
    std::uint64_t value;
    [[nodiscard]] std::uint64_t load(std::memory_order) const noexcept { return value; }
  };
  Word segment, base, limit, refill_mark;
};
struct TornCursor {
  TornSlot::Word next;
};

// Regression: std::clamp is undefined with base above limit; with the library's assertions enabled
// (as for this file, see CMakeLists.txt) it aborts the claimer's process.
TEST(RingClaimerDeathTest, LookAtASlotThatIsBeingRewrittenIsHarmless) {
  const TornSlot slot{.segment = {0}, .base = {5000}, .limit = {2000}, .refill_mark = {kNoMark}};
  const TornCursor cursor{.next = {2000}};
  EXPECT_EXIT(::_exit(NextUnclaimed(slot, cursor) >= 2000 ? 0 : 1), ::testing::ExitedWithCode(0),
              "");
}

// Regression: with a tail of 2^64-1 the search through the published segments never ended.
TEST(RingClaimerDeathTest, ClaimEndsWhateverTheTableSays) {
  for (const std::uint64_t tail : {kMaxWord, kMaxWord - 1, kMaxLimit, kClosingStep}) {
    for (const std::uint64_t head : {std::uint64_t{0}, std::uint64_t{1}, kMaxWord}) {
      TestRing ring;
      ring.Publish(1, 11, 10);
      ring.table.live.tail_segment = tail;
      ring.table.live.head_segment = head;
      const auto claim = [&ring] {
        ::alarm(2);
        OwnViewClaimer claimer(ring.table, ring.cursors);
        static_cast<void>(claimer.Claim(1));
        ::_exit(0);
      };
      EXPECT_EXIT(claim(), ::testing::ExitedWithCode(0), "") << tail << " " << head;
    }
  }
}

// The next daemon closes a ring while claimers use it, and continues from the cursor that it found.
TEST_F(RingClaimerTest, NothingIsClaimedAboveWhereALaterDaemonClosedTheRing) {
  constexpr IdRange kSegment{1, 100'000'001};
  const Deadline enough = Deadline::After(std::chrono::seconds(5));  // for a busy machine
  for (int round = 0; round < 300 && (round < 20 || !enough.passed()); ++round) {
    const auto memory = RingMemory::Create({.tag = "orders", .ring_id = 1}).value();
    RingWriter writer(memory->writable_table(), memory->cursors());
    writer.Publish(kSegment, 0, kNoMark);
    const ScopedFd table(::dup(memory->table_fd()));
    const ScopedFd cursors(::dup(memory->cursors_fd()));
    const auto left = LeftRing::Open(table, cursors, "orders").value();
    std::atomic<std::uint64_t> end{kSegment.first};
    std::thread claims([&] {
      OwnViewClaimer claimer(memory->table(), memory->cursors());
      for (IdRange ids = claimer.Claim(1).ids; !ids.empty(); ids = claimer.Claim(1).ids) {
        end = ids.limit;
      }
    });
    while (end < 1000) std::this_thread::yield();
    left->Close();
    claims.join();
    ASSERT_LE(end, left->NextOf(kSegment).value()) << "the rest is handed out again";
  }
}

// Threads on one mapping, small segments, and a publisher that recycles as fast as it can.
class RingThreadsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kIds = 150'000;
  static constexpr std::uint64_t kSegmentIds = 48;
  static constexpr int kThreads = 3;

  void PublishAll() {
    std::uint64_t next = 1;
    while (next <= kIds) {
      static_cast<void>(ring_.writer.RetireExhausted());
      if (!ring_.writer.CanPublish()) {
        std::this_thread::yield();
        continue;
      }
      const std::uint64_t limit = std::min(next + kSegmentIds, kIds + 1);
      ring_.writer.Publish({next, limit}, 0, next + kSegmentIds / 10);
      next = limit;
    }
    published_all_ = true;
  }

  // Claims until everything was published and the ring is dry.
  void ClaimAll(int seed) {
    OwnViewClaimer own(ring_.table, ring_.cursors);
    OwnViewClaimer& claimer = seed % 2 == 0 ? own : shared_;
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    std::uint64_t last = 0;
    while (true) {
      const bool final_look = published_all_;
      const std::uint64_t returned_before = newest_;
      const SlotClaim claim = claimer.Claim(1 + random() % 9);
      if (claim.ids.empty()) {
        if (final_look) return;
        std::this_thread::yield();
        continue;
      }
      // Order on a host: every claim that returned before this one began has smaller ids.
      if (claim.ids.first <= returned_before || claim.ids.first <= last) ++disorders_;
      last = claim.ids.limit - 1;
      for (std::uint64_t id = claim.ids.first; id < claim.ids.limit; ++id) {
        if (id > kIds || times_[id].fetch_add(1) != 0) ++duplicates_;
      }
      if (claim.wakes_daemon) ++wake_ups_;
      std::uint64_t seen = newest_;
      while (seen < last && !newest_.compare_exchange_weak(seen, last)) {
      }
    }
  }

  TestRing ring_;
  OwnViewClaimer shared_{ring_.table, ring_.cursors};
  std::array<std::atomic<std::uint8_t>, kIds + 1> times_{};
  std::atomic<std::uint64_t> newest_{0};
  std::atomic<std::uint64_t> disorders_{0};
  std::atomic<std::uint64_t> duplicates_{0};
  std::atomic<std::uint64_t> wake_ups_{0};
  std::atomic<bool> published_all_{false};
};

TEST_F(RingThreadsTest, IdsAreClaimedOnceInOrderAndEveryMarkIsReportedOnce) {
  std::vector<std::thread> claimers;
  for (int i = 0; i < kThreads; ++i) claimers.emplace_back([this, i] { ClaimAll(i); });
  PublishAll();
  for (std::thread& claimer : claimers) claimer.join();
  EXPECT_EQ(duplicates_, 0U);
  EXPECT_EQ(disorders_, 0U);
  const auto once = std::count_if(times_.begin() + 1, times_.end(),
                                  [](const std::atomic<std::uint8_t>& n) { return n == 1; });
  // A claimer that slept between its add and its second look gives up what it added if the slot was
  // withdrawn or recycled meanwhile: a gap.
  EXPECT_LE(static_cast<std::uint64_t>(once), kIds);
  EXPECT_GE(static_cast<std::uint64_t>(once), kIds - kIds / 100);
  // The last segment may end before its mark.
  const std::uint64_t segments = (kIds + kSegmentIds - 1) / kSegmentIds;
  EXPECT_GE(wake_ups_ + 1 + (kIds - static_cast<std::uint64_t>(once)), segments);
  EXPECT_LE(wake_ups_, segments);
}

TEST_F(RingThreadsTest, NoIdOutsideThePublishedSegmentsUnderAHostileWriter) {
  // Segments [1000k, 1000k + 600): an id with another remainder was never published.
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> published{0};
  std::atomic<std::uint64_t> outside{0};
  std::atomic<std::uint64_t> accepted{0};
  std::thread hostile([&] {
    std::mt19937_64 random(7);
    while (!stop) {
      const std::uint64_t near = published.load() * 1000 + random() % 4000 - 2000;
      const std::uint64_t value = random() % 4 == 0 ? random() : near;
      ring_.cursors.slots[random() % kSlotCount].next = value;
    }
  });
  std::vector<std::thread> claimers;
  for (int i = 0; i < 2; ++i) {
    claimers.emplace_back([&] {
      OwnViewClaimer claimer(ring_.table, ring_.cursors);
      while (!stop) {
        const IdRange ids = claimer.Claim(64).ids;
        if (ids.empty()) continue;
        ++accepted;
        const std::uint64_t segment = ids.first / 1000;
        const bool within = ids.first % 1000 < 600 && ids.limit <= segment * 1000 + 600 &&
                            segment >= 1 && segment <= published.load() + 1;
        if (!within) ++outside;
      }
    });
  }
  // Also waits until a claim was accepted: a claimer that starts late may find all segments
  // exhausted, and never looks back at them, whatever the hostile thread writes there.
  for (std::uint64_t k = 1; k <= 3000 || accepted == 0; ++k) {
    while (!ring_.writer.CanPublish()) {
      static_cast<void>(ring_.writer.RetireExhausted());
      static_cast<void>(ring_.writer.Claim(600));
    }
    ring_.Publish(k * 1000, k * 1000 + 600);
    published = k;
    // Sometimes a drain empties the ring instead.
    if (k % 97 == 0) static_cast<void>(ring_.writer.DrainAll());
  }
  stop = true;
  hostile.join();
  for (std::thread& claimer : claimers) claimer.join();
  EXPECT_EQ(outside, 0U);
}

}  // namespace
}  // namespace idd::shm
