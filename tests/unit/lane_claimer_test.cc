// SPDX-License-Identifier: Apache-2.0
//
// Lanes from both sides: claimers on simulated CPUs (FakeRseq), the daemon's writer, a later
// daemon, an observer, and claimers that write what they like.
#include "idd/shm/lane_claimer.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "idd/shm/abi.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/lane_look.h"
#include "idd/shm/left_ring.h"
#include "idd/shm/memfd.h"
#include "idd/shm/ring_claimer.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_observer.h"
#include "idd/shm/ring_writer.h"
#include "support/fake_rseq.h"

namespace idd::shm {
namespace {

constexpr std::uint32_t kCpus = 4;
constexpr std::uint64_t kBlock = 10;

ScopedFd CopyOf(int fd) { return ScopedFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

class LaneClaimerTest : public testing::Test {
 protected:
  // What a process has of the ring on one CPU.
  struct Process {
    Process(RingMemory& memory, std::uint32_t cpu)
        : thread(cpu),
          ring(memory.table(), memory.cursors(), view),
          lanes(memory.table(), memory.lanes().data(), ring, thread.offset()) {}

    std::uint64_t Claim() {
      const SlotClaim claim = lanes.Claim(1);
      return claim.ids.empty() ? 0 : claim.ids.first;
    }

    FakeRseq thread;
    ClaimView view{DryPoint()};
    RingClaimer ring;
    LaneClaimer lanes;
  };

  LaneClaimerTest()
      : memory_(RingMemory::Create({.tag = "orders", .ring_id = 9, .lane_count = kCpus}).value()),
        writer_(memory_->writable_table(), memory_->cursors(), 0, memory_->lanes()) {
    writer_.SetLaneBlock(kBlock);
  }

  [[nodiscard]] std::unique_ptr<Process> On(std::uint32_t cpu) {
    return std::make_unique<Process>(*memory_, cpu);
  }
  [[nodiscard]] Lane& lane(std::size_t cpu) { return memory_->lanes()[cpu]; }
  [[nodiscard]] std::unique_ptr<LeftRing> Leave() {
    return LeftRing::Open(CopyOf(memory_->table_fd()), CopyOf(memory_->cursors_fd()), "orders")
        .value();
  }

  std::unique_ptr<RingMemory> memory_;
  RingWriter writer_;
};

TEST_F(LaneClaimerTest, EachCpuHandsOutBlocksOfItsOwn) {
  writer_.Publish({1, 1'001}, 0, kNoMark);
  const auto first = On(0);
  const auto second = On(1);
  for (std::uint64_t i = 0; i < kBlock; ++i) {
    EXPECT_EQ(first->Claim(), 1 + i);
    EXPECT_EQ(second->Claim(), 1 + kBlock + i);
  }
  EXPECT_EQ(first->Claim(), 1 + 2 * kBlock);
  EXPECT_EQ(writer_.Lanes().left, kBlock - 1);
  EXPECT_EQ(writer_.Lanes().dropped, 0U);
}

TEST_F(LaneClaimerTest, ProcessesOfOneCpuShareItsLane) {
  writer_.Publish({1, 1'001}, 0, kNoMark);
  const auto one = On(2);
  const auto other = On(2);
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < 35; ++i) {
    const std::uint64_t id = i % 2 == 0 ? one->Claim() : other->Claim();
    EXPECT_EQ(id, last + 1);
    last = id;
  }
}

TEST_F(LaneClaimerTest, AllIdsOfAllSegmentsAreHandedOutOnce) {
  std::vector<std::unique_ptr<Process>> processes;
  for (std::uint32_t cpu = 0; cpu <= kCpus; ++cpu) processes.push_back(On(cpu));  // one has no lane
  std::set<std::uint64_t> ids;
  std::uint64_t published = 0;
  for (std::uint64_t segment = 0; segment < 40; ++segment) {
    const std::uint64_t base = 1 + segment * 1'000;
    const std::uint64_t size = 33 + segment;  // no multiple of a block
    writer_.Publish({base, base + size}, 0, kNoMark);
    published += size;
    for (bool found = true; found;) {
      found = false;
      for (const auto& process : processes) {
        const std::uint64_t id = process->Claim();
        if (id == 0) continue;
        EXPECT_TRUE(ids.insert(id).second) << id;
        found = true;
      }
    }
    static_cast<void>(writer_.RetireExhausted());
    writer_.ClearOldEnds();
  }
  EXPECT_EQ(ids.size(), published);
  EXPECT_FALSE(writer_.forged());
  EXPECT_EQ(writer_.Lanes().dropped, 0U);
}

TEST_F(LaneClaimerTest, BatchesComeFromTheLaneAndLargeOnesFromTheRing) {
  writer_.Publish({1, 1'001}, 0, kNoMark);
  const auto process = On(0);
  EXPECT_EQ(process->lanes.Claim(4).ids, (IdRange{1, 5}));
  EXPECT_EQ(process->lanes.Claim(4).ids, (IdRange{5, 9}));
  EXPECT_EQ(process->lanes.Claim(4).ids, (IdRange{9, 11})) << "what the lane has left";
  EXPECT_EQ(process->lanes.Claim(kBlock).ids, (IdRange{11, 11 + kBlock})) << "a block or more";
  EXPECT_EQ(process->lanes.Claim(1).ids.first, 11 + kBlock);
  EXPECT_EQ(process->lanes.ClaimAboveLanes(500).ids, (IdRange{31, 531}));
  EXPECT_EQ(process->lanes.Claim(1).ids.first, 12 + kBlock);
}

TEST_F(LaneClaimerTest, WakesTheDaemonWhenABlockCoversTheMark) {
  writer_.Publish({1, 101}, 0, 15);
  const auto process = On(0);
  int wakes = 0;
  for (int i = 0; i < 30; ++i) wakes += process->lanes.Claim(1).wakes_daemon ? 1 : 0;
  EXPECT_EQ(wakes, 1);
}

TEST_F(LaneClaimerTest, ThreadWithoutRseqClaimsFromTheRing) {
  writer_.Publish({1, 101}, 0, kNoMark);
  const auto process = On(static_cast<std::uint32_t>(-1));
  EXPECT_EQ(process->Claim(), 1U);
  EXPECT_EQ(process->lanes.Claim(3).ids, (IdRange{2, 5}));
  const auto with_lane = On(0);
  EXPECT_EQ(with_lane->Claim(), 5U);
  EXPECT_EQ(writer_.Lanes().dropped, 0U);
}

TEST_F(LaneClaimerTest, ExhaustedSegmentStaysPublishedWhileALaneHasIdsOfIt) {
  writer_.Publish({1, 11}, 0, kNoMark);
  const auto process = On(0);
  EXPECT_EQ(process->Claim(), 1U);
  EXPECT_EQ(writer_.RetireExhausted().size(), 1U);
  for (int second = 0; second < 5; ++second) {
    writer_.ClearOldEnds();
    EXPECT_EQ(process->Claim(), static_cast<std::uint64_t>(2 + second));
  }
  while (process->Claim() != 0) {
  }
  EXPECT_EQ(memory_->table().slots[1].segment.load(), 1U);
  writer_.ClearOldEnds();
  EXPECT_EQ(memory_->table().slots[1].segment.load(), 1U)
      << "a claimer may be about to install one";
  writer_.ClearOldEnds();
  EXPECT_EQ(memory_->table().slots[1].segment.load(), 0U);
  EXPECT_EQ(writer_.Lanes().dropped, 0U);
}

TEST_F(LaneClaimerTest, SlotThatIsNeededIsTakenFromTheLaneWhichGivesItsBlockUp) {
  writer_.Publish({1, 11}, 0, kNoMark);
  const auto idle = On(0);
  const auto busy = On(1);
  EXPECT_EQ(idle->Claim(), 1U);
  for (std::uint64_t segment = 2; segment <= 1 + kSlotCount; ++segment) {
    static_cast<void>(writer_.RetireExhausted());
    writer_.Publish({segment * 100, segment * 100 + 20}, 0, kNoMark);
    for (std::uint64_t id = busy->Claim(); id != 0; id = busy->Claim())
      EXPECT_GE(id, segment * 100);
  }
  static_cast<void>(writer_.RetireExhausted());
  writer_.Publish({9'000, 9'020}, 0, kNoMark);
  EXPECT_EQ(idle->Claim(), 9'000U);
  EXPECT_EQ(writer_.Lanes().dropped, kBlock - 1);
  writer_.ClearOldEnds();
  EXPECT_FALSE(writer_.forged());
}

TEST_F(LaneClaimerTest, DrainedRingsLanesHandOutNothing) {
  writer_.Publish({1, 101}, 0, kNoMark);
  writer_.Publish({101, 201}, 0, kNoMark);
  const auto process = On(0);
  EXPECT_EQ(process->Claim(), 1U);
  const std::vector<RingWriter::Segment> drained = writer_.DrainAll();
  EXPECT_FALSE(writer_.forged());
  EXPECT_EQ(drained.front().next, 1 + kBlock) << "the lane's block counts as claimed";
  EXPECT_EQ(process->Claim(), 0U);
  EXPECT_EQ(writer_.Lanes().left, 0U);
  EXPECT_EQ(writer_.Lanes().dropped, kBlock - 1);
}

TEST_F(LaneClaimerTest, DrainAlsoEndsExhaustedSegmentsThatLanesStillHave) {
  writer_.Publish({1, 11}, 0, kNoMark);
  const auto process = On(0);
  EXPECT_EQ(process->Claim(), 1U);
  EXPECT_EQ(writer_.RetireExhausted().size(), 1U);
  static_cast<void>(writer_.DrainAll());
  EXPECT_EQ(process->Claim(), 0U);
}

TEST_F(LaneClaimerTest, LaterDaemonStopsTheLanesAndCountsWhatTheyHad) {
  writer_.Publish({1, 101}, 0, kNoMark);
  const auto process = On(0);
  EXPECT_EQ(process->Claim(), 1U);
  const auto left = Leave();
  left->Close();
  EXPECT_EQ(left->left_in_lanes(), kBlock - 1);
  EXPECT_EQ(left->NextOf({1, 101}), 1 + kBlock);
  EXPECT_TRUE(left->StaysClosed());
  EXPECT_EQ(process->Claim(), 0U);
}

// The claim took its block before the ring was closed, and gives it to the lane afterwards.
TEST_F(LaneClaimerTest, BlockThatComesAfterTheLanesWereStoppedIsStoppedToo) {
  writer_.Publish({1, 101}, 0, kNoMark);
  const auto process = On(0);
  const SlotClaim block = process->ring.Claim(kBlock);
  const auto left = Leave();
  left->Close();
  ASSERT_EQ(InstallInLane(process->lanes.view(), {.first = block.ids.first,
                                                  .kept = 1,
                                                  .limit = block.ids.limit,
                                                  .segment = block.segment}),
            LaneInstall::kInstalled);
  EXPECT_EQ(process->Claim(), block.ids.first + 1) << "no other claim has it";
  EXPECT_TRUE(left->StaysClosed()) << "an honest block";
  EXPECT_EQ(process->Claim(), 0U);
}

TEST_F(LaneClaimerTest, LaterDaemonSeesALaneWithIdsThatNobodyTook) {
  writer_.Publish({1, 101}, 0, kNoMark);
  const auto left = Leave();
  left->Close();
  EXPECT_TRUE(left->StaysClosed());
  lane(3).segment = 1;
  lane(3).next = 50;
  lane(3).limit = 60;
  EXPECT_FALSE(left->StaysClosed());
  EXPECT_EQ(lane(3).limit.load(), 0U);
}

struct ForgedLane {
  const char* what;
  std::uint64_t next;
  std::uint64_t limit;
  std::uint64_t segment;
};
class ForgedLanes : public LaneClaimerTest, public testing::WithParamInterface<ForgedLane> {};

TEST_P(ForgedLanes, AreNoticedAtTheNextLookAndAtADrain) {
  for (const bool at_drain : {false, true}) {
    const auto memory =
        RingMemory::Create({.tag = "orders", .ring_id = 9, .lane_count = kCpus}).value();
    RingWriter writer(memory->writable_table(), memory->cursors(), 0, memory->lanes());
    writer.SetLaneBlock(kBlock);
    writer.Publish({1, 101}, 0, kNoMark);
    Process process(*memory, 0);
    for (std::uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(process.Claim(), id);
    writer.ClearOldEnds();
    ASSERT_FALSE(writer.forged());
    Lane& lane = memory->lanes()[GetParam().segment == 99 ? 0 : 1];
    lane.segment = GetParam().segment == 99 ? 1 : GetParam().segment;
    lane.next = GetParam().next;
    lane.limit = GetParam().limit;
    if (at_drain) {
      static_cast<void>(writer.DrainAll());
    } else {
      writer.ClearOldEnds();
    }
    EXPECT_TRUE(writer.forged()) << (at_drain ? "drain" : "look");
  }
}
INSTANTIATE_TEST_SUITE_P(
    LaneClaimerTest, ForgedLanes,
    testing::Values(ForgedLane{"SetBack", 2, 11, 99}, ForgedLane{"Emptied", 0, 0, 99},
                    ForgedLane{"AboveTheCursor", 50, 60, 1},
                    ForgedLane{"ReachesAboveTheCursor", 9, 12, 1},
                    ForgedLane{"OfAnotherLane", 8, 10, 1}, ForgedLane{"BelowTheBase", 0, 5, 1},
                    ForgedLane{"OfNoSegment", 5, 9, 0}, ForgedLane{"OfALaterSegment", 5, 9, 2},
                    ForgedLane{"TooLarge", 1, 1ULL << 60, 1}),
    [](const auto& tested) { return std::string(tested.param.what); });

TEST_F(LaneClaimerTest, WhateverALaneSaysNoIdComesFromOutsideThePublishedSegments) {
  writer_.Publish({1'000, 1'100}, 0, kNoMark);
  writer_.Publish({5'000, 5'100}, 0, kNoMark);
  const auto process = On(0);
  std::uint64_t random = 88'172'645'463'325'252ULL;
  const auto next = [&random] {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  };
  for (int turn = 0; turn < 20'000; ++turn) {
    lane(0).next = next() % 7'000;
    lane(0).limit = turn % 3 == 0 ? next() : next() % 7'000;
    lane(0).segment = turn % 5 == 0 ? next() : next() % 4;
    for (int i = 0; i < 3; ++i) {
      const IdRange ids = process->lanes.Claim(1 + next() % 12).ids;
      for (std::uint64_t id = ids.first; id < ids.limit; ++id) {
        ASSERT_TRUE((id >= 1'000 && id < 1'100) || (id >= 5'000 && id < 5'100)) << id;
      }
    }
  }
}

TEST_F(LaneClaimerTest, ObserverShowsWhatLanesHave) {
  writer_.Publish({1, 101}, 0, kNoMark);
  const auto process = On(1);
  EXPECT_EQ(process->Claim(), 1U);
  RingObserver observer =
      RingObserver::Attach(CopyOf(memory_->table_fd()),
                           OpenForReading(memory_->cursors_fd()).value(), "orders")
          .value();
  const RingView& view = observer.Snapshot();
  EXPECT_EQ(view.claimed, kBlock);
  EXPECT_EQ(view.available, 100 - kBlock);
  EXPECT_EQ(view.lanes.left, kBlock - 1);
}

TEST_F(LaneClaimerTest, AttachChecksTheGeometryOfLanes) {
  for (const std::uint32_t lanes : {1U, 2U, 31U, 32U, 33U, 1'024U, kMaxLanes}) {
    const auto ring =
        RingMemory::Create({.tag = "orders", .ring_id = 9, .lane_count = lanes}).value();
    const auto client =
        RingMemory::Attach(CopyOf(ring->table_fd()), CopyOf(ring->cursors_fd()), "orders");
    ASSERT_TRUE(client.ok()) << client.status().message();
    EXPECT_EQ(client.value()->lanes().size(), lanes);
    EXPECT_EQ(client.value()->cursors_bytes(), CursorsBytes(lanes));
    client.value()->lanes()[lanes - 1].next = 7;
    EXPECT_EQ(ring->lanes()[lanes - 1].next.load(), 7U);
  }
  const auto two = RingMemory::Create({.tag = "orders", .ring_id = 9, .lane_count = 2}).value();
  const auto many = RingMemory::Create({.tag = "orders", .ring_id = 9, .lane_count = 500}).value();
  EXPECT_FALSE(
      RingMemory::Attach(CopyOf(many->table_fd()), CopyOf(two->cursors_fd()), "orders").ok());
}

TEST_F(LaneClaimerTest, BlankedRingsLanesRefuse) {
  writer_.Publish({1, 101}, 0, kNoMark);
  const auto client =
      RingMemory::Attach(CopyOf(memory_->table_fd()), CopyOf(memory_->cursors_fd()), "orders")
          .value();
  Process process(*client, 0);
  EXPECT_EQ(process.Claim(), 1U);
  client->Blank();
  EXPECT_EQ(process.Claim(), 0U);
}

TEST(RseqOffsetTest, IsThatOfThisThreadsCpu) {
  const std::optional<std::ptrdiff_t> offset = RseqOffset();
  if (!offset.has_value()) GTEST_SKIP() << "no restartable sequences here";
  const auto* const cpu_id = reinterpret_cast<const std::uint32_t*>(
      static_cast<const char*>(__builtin_thread_pointer()) + *offset + 4);
  EXPECT_LT(*cpu_id, std::thread::hardware_concurrency() + 1'024);
}

}  // namespace
}  // namespace idd::shm
