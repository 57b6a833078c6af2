// SPDX-License-Identifier: Apache-2.0
//
// An observer's view of a ring: an honest one, one that is being written, and garbage.
#include "idd/shm/ring_observer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "idd/shm/abi.h"
#include "idd/shm/memfd.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_stats.h"
#include "idd/shm/ring_writer.h"
#include "support/test_ring.h"

namespace idd::shm {
namespace {

RingView Look(const TestRing& ring) {
  RingView view;
  EXPECT_TRUE(ReadRing(ring.table, ring.cursors, view));
  return view;
}

class RingObserverTest : public ::testing::Test {
 protected:
  TestRing ring_;
};

TEST_F(RingObserverTest, RingWithoutNumbersShowsItsSegments) {
  ring_.Publish(1, 11);
  ring_.Publish(100, 200, 20);
  ASSERT_EQ(ring_.writer.Claim(4).ids.size(), 4U);
  const RingView view = Look(ring_);
  EXPECT_FALSE(view.has_numbers);
  EXPECT_EQ(view.claimed, 24U);
  EXPECT_EQ(view.available, 86U);
  EXPECT_EQ(view.open_segments, 2U);
  EXPECT_FALSE(view.is_over);
}

TEST_F(RingObserverTest, EmptyRingIsDryAndNotOver) {
  const RingView view = Look(ring_);
  EXPECT_EQ(view.available, 0U);
  EXPECT_FALSE(view.is_over);
}

TEST_F(RingObserverTest, NumbersAreReadAsPublished) {
  const TagNumbers told{.written_at_ns = 1,
                        .claimed_before = 2,
                        .leases = 4,
                        .fallbacks = 5,
                        .step = 6,
                        .outage_tolerance_s = 7,
                        .max_prefetch = 8,
                        .reckoned_per_1000_s = 9,
                        .quarantined_until_ns = 10,
                        .promised_ids = 11,
                        .condition = TagCondition::kDrained};
  ring_.writer.PublishStats(told);
  TagNumbers expected = told;
  expected.counted_from = 1;
  const RingView view = Look(ring_);
  EXPECT_TRUE(view.has_numbers);
  EXPECT_EQ(view.numbers, expected);
  EXPECT_EQ(view.claimed, 2U);
}

TEST_F(RingObserverTest, ClaimsStayTheSameWhenASegmentLeavesTheRing) {
  ring_.Publish(1, 11);
  ring_.Publish(100, 200);
  ring_.writer.PublishStats({.claimed_before = 1000});
  ASSERT_EQ(ring_.writer.Claim(10).ids.size(), 10U);
  EXPECT_EQ(Look(ring_).claimed, 1010U);
  ASSERT_EQ(ring_.writer.RetireExhausted().size(), 1U);
  EXPECT_EQ(Look(ring_).claimed, 1010U) << "between its end and the next numbers";
  ring_.writer.PublishStats({.claimed_before = 1010});
  EXPECT_EQ(Look(ring_).claimed, 1010U);
  EXPECT_EQ(Look(ring_).available, 100U);
}

TEST_F(RingObserverTest, DrainedRingShowsItsClaimsAndIsOver) {
  ring_.Publish(1, 11);
  ring_.writer.PublishStats({.claimed_before = 7});
  ASSERT_EQ(ring_.writer.Claim(3).ids.size(), 3U);
  ring_.writer.SetState(RingState::kRetired);
  ASSERT_EQ(ring_.writer.DrainAll().size(), 1U);
  const RingView view = Look(ring_);
  EXPECT_TRUE(view.is_over);
  EXPECT_EQ(view.claimed, 10U);
  EXPECT_EQ(view.available, 0U);
}

TEST_F(RingObserverTest, CursorClosedByALaterDaemonIsNoClaim) {
  ring_.Publish(1, 11);
  ring_.cursor(1) += 4 + kClosingStep;
  const RingView view = Look(ring_);
  EXPECT_EQ(view.claimed, 4U);
  EXPECT_EQ(view.available, 0U);
  EXPECT_TRUE(view.is_over);
}

TEST_F(RingObserverTest, QuarantinedRingKeepsItsLastClaims) {
  ring_.Publish(100, 200);
  ASSERT_EQ(ring_.writer.Claim(30).ids.size(), 30U);
  RingView view = Look(ring_);
  ring_.cursor(1) = 5;
  ring_.writer.SetState(RingState::kQuarantined);
  ASSERT_EQ(ring_.writer.DrainAll().size(), 1U);
  ASSERT_TRUE(ring_.writer.forged());
  ring_.table.live.head_segment = 1;  // as an observer that looks before the head moves
  EXPECT_TRUE(ReadRing(ring_.table, ring_.cursors, view));
  EXPECT_EQ(view.state, RingState::kQuarantined);
  EXPECT_TRUE(view.is_over);
  EXPECT_EQ(view.claimed, 30U);
  EXPECT_EQ(view.available, 0U);
}

TEST_F(RingObserverTest, ForgedCursorsStayWithinTheSegment) {
  ring_.Publish(100, 200);
  ring_.cursor(1) = 3;
  EXPECT_EQ(Look(ring_).claimed, 0U);
  ring_.cursor(1) = 5000;
  EXPECT_EQ(Look(ring_).claimed, 100U);
  EXPECT_EQ(Look(ring_).available, 0U);
}

TEST_F(RingObserverTest, HalfWrittenNumbersAreNotShown) {
  ring_.writer.PublishStats({.leases = 3});
  RingView view = Look(ring_);
  ring_.table.stats.version += 1;  // as if a daemon was killed after T1
  ring_.table.stats.leases = 99;
  EXPECT_FALSE(ReadRing(ring_.table, ring_.cursors, view));
  EXPECT_EQ(view.numbers.leases, 3U) << "the last good ones";
}

TEST_F(RingObserverTest, GarbageIsBoundedAndEnds) {
  std::mt19937_64 random(20240607);  // NOLINT(cert-msc51-cpp): the same garbage every time
  const auto table = std::make_unique<Table>();
  const auto cursors = std::make_unique<Cursors>();
  for (int round = 0; round < 2000; ++round) {
    const auto fill = [&random](void* memory, std::size_t bytes) {
      for (std::size_t at = 0; at < bytes; at += 8) {
        // Some small numbers, so that segments and slots match now and then.
        const std::uint64_t word = random() % 4 == 0 ? random() : random() % 40;
        std::memcpy(static_cast<std::byte*>(memory) + at, &word, 8);
      }
    };
    fill(table.get(), sizeof(Table));
    fill(cursors.get(), sizeof(Cursors));
    RingView view;
    if (!ReadRing(*table, *cursors, view)) continue;
    EXPECT_LE(view.open_segments, kSlotCount);
  }
}

// One thread writes as the daemon does, another looks: a look never mixes two writes, and claims
// never go back. The writer waits for a look now and then, because on a busy machine it could
// otherwise finish before the other thread starts.
TEST_F(RingObserverTest, LooksBesideTheDaemonAreConsistent) {
  constexpr std::uint64_t kRounds = 20'000;
  constexpr std::uint64_t kRoundsBetweenWaits = kRounds / 10;
  ring_.writer.PublishStats({.leases = 0, .fallbacks = 0, .step = 0});
  std::atomic<bool> is_done = false;
  std::atomic<bool> has_failed = false;
  std::atomic<std::uint64_t> looks = 0;
  std::thread daemon([&] {
    std::uint64_t claimed = 0;
    for (std::uint64_t round = 1; round <= kRounds && !has_failed; ++round) {
      ring_.Publish(round * 100, round * 100 + 10);
      claimed += ring_.writer.Claim(10).ids.size();
      static_cast<void>(ring_.writer.RetireExhausted());
      ring_.writer.PublishStats(
          {.claimed_before = claimed, .leases = round, .fallbacks = round, .step = 1});
      if (round % 64 == 0) ring_.writer.ClearOldEnds();
      if (round % kRoundsBetweenWaits != 0) continue;
      const std::uint64_t before = looks;
      while (looks == before && !has_failed) std::this_thread::yield();
    }
    is_done = true;
  });
  RingView view;
  std::uint64_t last_claimed = 0;
  while (!is_done) {
    looks += ReadRing(ring_.table, ring_.cursors, view) ? 1U : 0U;
    EXPECT_EQ(view.numbers.leases, view.numbers.fallbacks);
    EXPECT_GE(view.claimed, last_claimed);
    EXPECT_LE(view.claimed, kRounds * 10);
    has_failed = HasFailure();
    last_claimed = view.claimed;
  }
  daemon.join();
  EXPECT_EQ(Look(ring_).claimed, kRounds * 10);
}

TEST_F(RingObserverTest, AttachedObserverSeesTheRingThroughAReadOnlyDescriptor) {
  auto memory = RingMemory::Create({.tag = "orders", .ring_id = 77});
  ASSERT_TRUE(memory.ok());
  RingWriter writer(memory.value()->writable_table(), memory.value()->cursors());
  writer.Publish({1, 101}, 0, kNoMark);
  Result<ScopedFd> cursors_fd = OpenForReading(memory.value()->cursors_fd());
  ASSERT_TRUE(cursors_fd.ok()) << cursors_fd.status().message();
  const ScopedFd table_fd(::fcntl(memory.value()->table_fd(), F_DUPFD_CLOEXEC, 0));
  Result<RingObserver> observer = RingObserver::Attach(table_fd, cursors_fd.value(), "orders");
  ASSERT_TRUE(observer.ok()) << observer.status().message();
  EXPECT_EQ(observer.value().ring_id(), 77U);
  EXPECT_EQ(observer.value().Snapshot().available, 100U);
  ASSERT_EQ(writer.Claim(40).ids.size(), 40U);
  memory.value().reset();  // the daemon is gone; the mapping stays
  EXPECT_EQ(observer.value().Snapshot().claimed, 40U);
  EXPECT_FALSE(RingObserver::Attach(table_fd, cursors_fd.value(), "others").ok());
  EXPECT_FALSE(RingObserver::Attach(cursors_fd.value(), table_fd, "orders").ok());
}

TEST_F(RingObserverTest, NothingCanBeWrittenThroughAnObserversDescriptor) {
  auto memory = RingMemory::Create({.tag = "orders", .ring_id = 77});
  ASSERT_TRUE(memory.ok());
  Result<ScopedFd> opened = OpenForReading(memory.value()->cursors_fd());
  ASSERT_TRUE(opened.ok());
  const int fd = opened.value().get();
  EXPECT_EQ(::mmap(nullptr, kCursorsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, EACCES);
  void* const pages = ::mmap(nullptr, kCursorsBytes, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(pages, MAP_FAILED);
  EXPECT_EQ(::mprotect(pages, kCursorsBytes, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
  ::munmap(pages, kCursorsBytes);
  const char byte = 'x';
  EXPECT_EQ(::pwrite(fd, &byte, 1, 0), -1);
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  EXPECT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kCursorsBytes), -1);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

}  // namespace
}  // namespace idd::shm
