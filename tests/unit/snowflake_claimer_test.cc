// SPDX-License-Identifier: Apache-2.0
//
// Claims of snowflake ids from a ring, by the claimer's clock and by the daemon's.
#include "idd/shm/snowflake_claimer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "idd/shm/snowflake.h"
#include "support/test_ring.h"

namespace idd::shm {
namespace {

constexpr std::uint64_t kTime = 1000;  // the time now
constexpr IdLayout kLayout{.worker_bits = 7ULL << 12, .sequence_bits = 12, .time_shift = 22};

std::int64_t UnixMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Its units are so long that the time stands still in a test.
struct SnowflakeRing : TestRing {
  static constexpr std::uint32_t kUnitMs = 1'000'000'000;

  explicit SnowflakeRing(TagClock clock = TagClock::kClaimer, std::uint64_t max_ahead = 0) {
    table.header.mode = static_cast<std::uint32_t>(TagMode::kSnowflake);
    table.header.unit_ms = kUnitMs;
    table.header.clock = static_cast<std::uint32_t>(clock);
    table.header.max_ahead = max_ahead;
    SetTime(kTime);
  }
  // Moves the clock of claimers that are made after it.
  void SetTime(std::uint64_t time) {
    table.header.epoch_ms =
        UnixMs() - static_cast<std::int64_t>(time) * kUnitMs - std::int64_t{kUnitMs / 2};
  }
  // A window of the times [first, limit).
  void PublishTimes(std::uint64_t first, std::uint64_t limit) {
    writer.Publish({kLayout.FirstOf(first), kLayout.FirstOf(limit)}, 0, kNoMark, nullptr, kLayout);
  }
  static std::uint64_t Id(std::uint64_t time, std::uint64_t sequence) {
    return time << 22 | 7ULL << 12 | sequence;
  }
};

TEST(IdLayoutTest, NumbersBecomeIds) {
  EXPECT_EQ(kLayout.IdOf(kLayout.FirstOf(5) + 9), 5ULL << 22 | 7ULL << 12 | 9);
  const IdRange numbers{kLayout.FirstOf(5) + 4090, kLayout.FirstOf(6) + 3};
  EXPECT_EQ(kLayout.OneTime(numbers), (IdRange{kLayout.FirstOf(5) + 4090, kLayout.FirstOf(6)}));
  EXPECT_EQ(kLayout.IdsOf(kLayout.OneTime(numbers)).size(), 6U);
}

class SnowflakeClaimerTest : public ::testing::Test {
 protected:
  SnowflakeRing ring_;
  SnowflakeClaimer claimer_{ring_.table, ring_.cursors};
};

TEST_F(SnowflakeClaimerTest, RingIsDryBeforeTheFirstWindow) {
  EXPECT_TRUE(claimer_.Claim(1).ids.empty());
  EXPECT_FALSE(claimer_.Claim(1).is_early);
  EXPECT_FALSE(claimer_.IsDue(0));
}

TEST_F(SnowflakeClaimerTest, IdsHaveTheTimeNowAlthoughTheWindowBeganEarlier) {
  ring_.PublishTimes(kTime - 10, kTime + 10);
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    const SnowflakeClaim claim = claimer_.Claim(1);
    EXPECT_EQ(claim.ids.first, ring_.Id(kTime, sequence));
    EXPECT_EQ(claim.ids.size(), 1U);
    EXPECT_FALSE(claim.is_early);
  }
}

TEST_F(SnowflakeClaimerTest, BatchEndsWithItsTime) {
  SnowflakeRing ring(TagClock::kClaimer, 5);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  ring.PublishTimes(kTime, kTime + 10);
  ASSERT_EQ(claimer.Claim(1).ids.size(), 1U);
  const SnowflakeClaim rest = claimer.Claim(100'000);
  EXPECT_EQ(rest.ids, (IdRange{ring.Id(kTime, 1), ring.Id(kTime, 4095) + 1}));
  EXPECT_EQ(claimer.Claim(2).ids, (IdRange{ring.Id(kTime + 1, 0), ring.Id(kTime + 1, 2)}));
}

TEST_F(SnowflakeClaimerTest, BurstBorrowsNoMoreThanItMayAndThenAddsNothing) {
  SnowflakeRing ring(TagClock::kClaimer, 2);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  ring.PublishTimes(kTime, kTime + 10);
  std::uint64_t ids = 0;
  for (SnowflakeClaim claim = claimer.Claim(5000); !claim.is_early; claim = claimer.Claim(5000)) {
    ASSERT_FALSE(claim.ids.empty());
    EXPECT_LT(claim.ids.limit, ring.Id(kTime + 3, 0));
    ids += claim.ids.size();
  }
  EXPECT_EQ(ids, 3U * 4096);
  const std::uint64_t stopped_at = ring.cursor(1);
  const SnowflakeClaim early = claimer.Claim(1);
  EXPECT_TRUE(early.is_early);
  EXPECT_TRUE(early.ids.empty());
  EXPECT_EQ(early.number, kLayout.FirstOf(kTime + 3));
  EXPECT_FALSE(claimer.IsDue(early.number));
  EXPECT_TRUE(claimer.IsDue(early.number - 1));
  EXPECT_EQ(ring.cursor(1), stopped_at);
}

TEST_F(SnowflakeClaimerTest, IdsThatAnotherClaimMovedBeyondTheFrontierAreEarly) {
  ring_.PublishTimes(kTime, kTime + 10);
  ASSERT_FALSE(claimer_.Claim(1).is_early);
  ring_.cursor(1) = kLayout.FirstOf(kTime + 1) - 1;
  EXPECT_FALSE(claimer_.Claim(1).is_early);
  EXPECT_TRUE(claimer_.Claim(1).is_early);
}

TEST_F(SnowflakeClaimerTest, SingleClaimsGetTheSameIdsAsOthers) {
  SnowflakeRing ring(TagClock::kClaimer, 1);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  EXPECT_TRUE(claimer.ClaimOne().ids.empty()) << "there is no window";
  ring.PublishTimes(kTime - 10, kTime + 10);
  const SnowflakeClaim first = claimer.ClaimOne();
  EXPECT_EQ(first.ids, (IdRange{ring.Id(kTime, 0), ring.Id(kTime, 1)}));
  EXPECT_EQ(first.number, kLayout.FirstOf(kTime));
  EXPECT_EQ(claimer.Claim(2).ids.first, ring.Id(kTime, 1));
  EXPECT_EQ(claimer.ClaimOne().ids.first, ring.Id(kTime, 3));
  EXPECT_EQ(ring.cursor(1), kLayout.FirstOf(kTime) + 4);
}

// The clock has gone on since the last claim: the cursor moves with it.
TEST_F(SnowflakeClaimerTest, SingleClaimSkipsNumbersOfThePast) {
  SnowflakeRing ring(TagClock::kClaimer, 1);
  ring.PublishTimes(kTime - 10, kTime + 10);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  ASSERT_EQ(claimer.ClaimOne().ids.first, ring.Id(kTime, 0));
  ring.cursor(1) = kLayout.FirstOf(kTime - 3) + 5;
  EXPECT_EQ(claimer.ClaimOne().ids.first, ring.Id(kTime, 0));
  EXPECT_EQ(claimer.ClaimOne().ids.first, ring.Id(kTime, 1));
}

// However often a program tries, it drives the cursor no further ahead than by one id.
TEST_F(SnowflakeClaimerTest, EarlySingleClaimKeepsItsIdAndTheNextOnesAddNothing) {
  SnowflakeRing ring(TagClock::kClaimer, 1);
  ring.PublishTimes(kTime, kTime + 10);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  ASSERT_FALSE(claimer.ClaimOne().is_early);
  ring.cursor(1) = kLayout.FirstOf(kTime + 2);
  const SnowflakeClaim early = claimer.ClaimOne();
  EXPECT_TRUE(early.is_early);
  EXPECT_EQ(early.ids, (IdRange{ring.Id(kTime + 2, 0), ring.Id(kTime + 2, 1)}));
  EXPECT_FALSE(claimer.IsDue(early.number));
  for (int i = 0; i < 100; ++i) {
    const SnowflakeClaim next = claimer.ClaimOne();
    EXPECT_TRUE(next.is_early);
    EXPECT_TRUE(next.ids.empty());
  }
  EXPECT_EQ(ring.cursor(1), kLayout.FirstOf(kTime + 2) + 1);
  ring.cursor(1) = kLayout.FirstOf(kTime + 1);
  EXPECT_FALSE(claimer.ClaimOne().is_early) << "it looks, and finds that it may add again";
  EXPECT_EQ(claimer.ClaimOne().ids.first, ring.Id(kTime + 1, 1));
}

// The daemon has stopped moving the ring: only it can help, so the caller does not wait.
TEST_F(SnowflakeClaimerTest, EarlySingleClaimWithTheDaemonsClockGivesItsIdUp) {
  SnowflakeRing ring(TagClock::kDaemon, 1);
  ring.PublishTimes(kTime, kTime + 10);
  ring.table.live.frontier = kLayout.FirstOf(kTime + 2);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  ASSERT_EQ(claimer.ClaimOne().ids.first, ring.Id(kTime, 0));
  ring.table.live.frontier = 0;
  for (int i = 0; i < 3; ++i) {
    const SnowflakeClaim early = claimer.ClaimOne();
    EXPECT_TRUE(early.is_early);
    EXPECT_TRUE(early.ids.empty());
  }
  EXPECT_EQ(ring.cursor(1), kLayout.FirstOf(kTime) + 2);
  ring.table.live.frontier = kLayout.FirstOf(kTime + 2);
  EXPECT_EQ(claimer.ClaimOne().ids.first, ring.Id(kTime, 2));
}

// A claimer that knows no segment yet adds without a look.
TEST_F(SnowflakeClaimerTest, FirstClaimOfARingThatTheDaemonHasStoppedMovingGetsNothing) {
  for (const bool is_single : {true, false}) {
    SnowflakeRing ring(TagClock::kDaemon, 1);
    ring.PublishTimes(kTime, kTime + 10);
    SnowflakeClaimer claimer(ring.table, ring.cursors);
    const SnowflakeClaim claim = is_single ? claimer.ClaimOne() : claimer.Claim(10);
    EXPECT_TRUE(claim.is_early);
    EXPECT_TRUE(claim.ids.empty()) << "the caller would wait until its deadline";
  }
}

TEST_F(SnowflakeClaimerTest, ClockThatWasSetBackHoldsTheClaimsAndRepeatsNothing) {
  SnowflakeRing ring(TagClock::kClaimer, 1);
  ring.PublishTimes(kTime, kTime + 10);
  SnowflakeClaimer before(ring.table, ring.cursors);
  const std::uint64_t newest = before.Claim(1).ids.first;
  ring.SetTime(kTime - 1);
  SnowflakeClaimer after(ring.table, ring.cursors);
  EXPECT_EQ(after.Claim(1).ids.first, newest + 1) << "one unit ahead of the clock";
  ring.SetTime(kTime - 2);
  SnowflakeClaimer later(ring.table, ring.cursors);
  EXPECT_TRUE(later.Claim(1).is_early);
}

TEST_F(SnowflakeClaimerTest, WindowThatIsOverIsPassedAndTheNextOneBeginsNow) {
  ring_.PublishTimes(kTime - 20, kTime - 10);
  EXPECT_TRUE(claimer_.Claim(1).ids.empty()) << "the only window is over";
  EXPECT_EQ(ring_.writer.RetireExhausted().size(), 1U) << "the claim has moved its cursor";
  ring_.PublishTimes(kTime - 10, kTime + 10);
  EXPECT_EQ(claimer_.Claim(1).ids.first, ring_.Id(kTime, 0));
  ring_.writer.MoveWithTime(kLayout.FirstOf(kTime));
  EXPECT_EQ(ring_.writer.RetireExhausted().size(), 0U);
  EXPECT_EQ(claimer_.Claim(1).ids.first, ring_.Id(kTime, 1));
}

TEST_F(SnowflakeClaimerTest, DaemonsClockAllowsNothingUntilItSaysSo) {
  SnowflakeRing ring(TagClock::kDaemon);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  ring.PublishTimes(kTime, kTime + 10);
  EXPECT_TRUE(claimer.Claim(1).is_early);
  ring.writer.MoveWithTime(kLayout.FirstOf(kTime + 1));
  ring.writer.SetFrontier(kLayout.FirstOf(kTime + 2));
  EXPECT_EQ(claimer.Claim(1).ids.first, ring.Id(kTime + 1, 0));
  ring.writer.SetFrontier(0);
  EXPECT_TRUE(claimer.Claim(1).is_early);
}

TEST_F(SnowflakeClaimerTest, DrainedRingGivesNothingAndItsRestIsExact) {
  ring_.PublishTimes(kTime - 10, kTime + 10);
  ASSERT_EQ(claimer_.Claim(5).ids.size(), 5U);
  const std::vector<RingWriter::Segment> drained = ring_.writer.DrainAll();
  ASSERT_EQ(drained.size(), 1U);
  EXPECT_EQ(drained[0].next, kLayout.FirstOf(kTime) + 5);
  EXPECT_TRUE(claimer_.Claim(1).ids.empty());
  EXPECT_FALSE(claimer_.Claim(1).is_early);
}

TEST_F(SnowflakeClaimerTest, ClosedCursorIsNotMoved) {
  ring_.PublishTimes(kTime - 10, kTime + 10);
  static_cast<void>(ring_.writer.DrainAll());
  const std::uint64_t closed = ring_.cursor(1);
  EXPECT_GE(MoveWithTime(ring_.slot(1), ring_.cursors.slots[1], kLayout.FirstOf(kTime)), closed);
  EXPECT_EQ(ring_.cursor(1), closed);
}

TEST_F(SnowflakeClaimerTest, CursorThatWasSetBackIsFoundBeforeTheClockMovesIt) {
  ring_.PublishTimes(kTime - 10, kTime + 10);
  ASSERT_FALSE(claimer_.Claim(1).ids.empty());
  static_cast<void>(ring_.writer.Snapshot());
  ring_.cursor(1) = kLayout.FirstOf(kTime - 10);
  ring_.writer.MoveWithTime(kLayout.FirstOf(kTime + 1));
  EXPECT_TRUE(ring_.writer.forged());
}

// A client that sleeps while its slot is recycled must not wait for the window that is there now.
TEST_F(SnowflakeClaimerTest, LaterWindowInTheSlotOfTheLastClaimHoldsNothingBack) {
  SnowflakeRing ring(TagClock::kClaimer, 1);
  SnowflakeClaimer claimer(ring.table, ring.cursors);
  ring.PublishTimes(kTime, kTime + 1);
  ASSERT_FALSE(claimer.Claim(1).ids.empty());
  ring.writer.MoveWithTime(kLayout.FirstOf(kTime + 1));
  ASSERT_EQ(ring.writer.RetireExhausted().size(), 1U);
  ring.PublishTimes(kTime + 1, kTime + 2);
  for (std::uint64_t time = kTime + 2; ring.writer.CanPublish(); ++time) {
    ring.PublishTimes(time, time + 1);
  }
  ASSERT_EQ(ring.writer.Snapshot().back().number, 1 + kSlotCount);
  SnowflakeClaimer other(ring.table, ring.cursors);
  EXPECT_EQ(other.Claim(1).ids.first, ring.Id(kTime + 1, 0));
  const SnowflakeClaim claim = claimer.Claim(1);
  EXPECT_FALSE(claim.is_early);
  EXPECT_EQ(claim.ids.size(), 1U);
}

TEST_F(SnowflakeClaimerTest, DrainedRingLooksDryAlthoughItsCursorWasForged) {
  ring_.PublishTimes(kTime, kTime + 10);
  ASSERT_FALSE(claimer_.Claim(1).ids.empty());
  static_cast<void>(ring_.writer.DrainAll());
  ring_.cursor(1) = kLayout.FirstOf(kTime + 9);
  const SnowflakeClaim claim = claimer_.Claim(1);
  EXPECT_TRUE(claim.ids.empty());
  EXPECT_FALSE(claim.is_early) << "the client would wait instead of attaching again";
}

TEST_F(SnowflakeClaimerTest, OneClaimPassesAllWindowsThatAreOver) {
  for (std::uint64_t i = 1; i < kSlotCount; ++i) {
    ring_.PublishTimes(kTime - 40 + 2 * i, kTime - 38 + 2 * i);
  }
  ring_.PublishTimes(kTime, kTime + 1);
  EXPECT_EQ(claimer_.Claim(1).ids.first, ring_.Id(kTime, 0));
}

TEST_F(SnowflakeClaimerTest, CursorBelowItsBaseIsLeftForTheDaemonToFind) {
  ring_.PublishTimes(kTime - 10, kTime + 10);
  ASSERT_EQ(claimer_.Claim(5).ids.size(), 5U);
  ring_.cursor(1) = 0;
  EXPECT_TRUE(claimer_.Claim(1).ids.empty()) << "the clock would make five ids come again";
  static_cast<void>(ring_.writer.Snapshot());
  EXPECT_TRUE(ring_.writer.forged());
}

// A cursor that a hostile client writes between any two steps of another process.
struct ContendedCursor {
  struct Word {
    std::uint64_t value = 1;
    int tries = 0;
    [[nodiscard]] std::uint64_t load(std::memory_order /*order*/) const { return value; }
    bool compare_exchange_weak(std::uint64_t& expected, std::uint64_t /*desired*/,
                               std::memory_order /*success*/, std::memory_order /*failure*/) {
      expected = value = 3 - value;
      return ++tries == 1'000'000;
    }
  };
  Word next;
};

TEST(MoveWithTimeTest, EndsAlthoughTheCursorIsWrittenAllTheTime) {
  SlotDescriptor slot{};
  slot.base = 1;
  slot.limit = 100;
  ContendedCursor cursor;
  EXPECT_LT(MoveWithTime(slot, cursor, 50), 50U);
  EXPECT_LT(cursor.next.tries, 1000);
}

// Claimers with their own positions, in windows of one millisecond, while the daemon publishes.
TEST_F(SnowflakeClaimerTest, ThreadsNeverGetAnIdTwiceAndSeeThemRise) {
  TestRing ring;
  ring.table.header.mode = static_cast<std::uint32_t>(TagMode::kSnowflake);
  ring.table.header.unit_ms = 1;
  ring.table.header.clock = static_cast<std::uint32_t>(TagClock::kClaimer);
  ring.table.header.max_ahead = 5;
  ring.table.header.epoch_ms = UnixMs() - 1000;
  std::atomic<bool> ends{false};
  std::vector<std::vector<std::uint64_t>> ids(4);
  std::vector<std::thread> threads;
  for (auto& own : ids) {
    threads.emplace_back([&] {
      SnowflakeClaimer claimer(ring.table, ring.cursors);
      while (!ends) {
        const SnowflakeClaim claim = claimer.Claim(1 + own.size() % 3);
        for (std::uint64_t id = claim.ids.first; id < claim.ids.limit; ++id) own.push_back(id);
        if (claim.is_early) std::this_thread::yield();
      }
    });
  }
  std::uint64_t limit = 1000;
  while (limit < 1300) {
    const auto now = static_cast<std::uint64_t>(UnixMs() - ring.table.header.epoch_ms);
    ring.writer.MoveWithTime(kLayout.FirstOf(now));
    static_cast<void>(ring.writer.RetireExhausted());
    ring.writer.ClearOldEnds();
    while (ring.writer.CanPublish() && limit < now + 10) {
      ring.writer.Publish({kLayout.FirstOf(limit), kLayout.FirstOf(limit + 3)}, 0, kNoMark, nullptr,
                          kLayout);
      limit += 3;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  std::size_t count = 0;
  for (const auto& own : ids) {
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    all.insert(own.begin(), own.end());
    count += own.size();
  }
  EXPECT_GT(count, 1000U);
  EXPECT_EQ(all.size(), count);
  EXPECT_FALSE(ring.writer.forged());
}

}  // namespace
}  // namespace idd::shm
