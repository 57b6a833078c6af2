// SPDX-License-Identifier: Apache-2.0
//
// Each sequence on a lane, interrupted at each of its instructions. The kernel's part is played by
// a signal handler: it single-steps the sequence, and before the chosen instruction it lets another
// claimer of the same CPU run, and then sends the thread to the abort handler.
#include "idd/shm/lane_sequences.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <functional>
#include <set>

#include "idd/shm/abi.h"
#include "support/fake_rseq.h"

namespace idd::shm {
namespace {

constexpr std::uint64_t kLaneSegment = 5;

// One lane with the ids [10, 20) of segment 5, and its claimers on CPU 0.
class LaneSequences : public testing::Test {
 protected:
  LaneSequences() {
    lanes_[0].next = 10;
    lanes_[0].limit = 20;
    lanes_[0].segment = kLaneSegment;
    slots_[kLaneSegment].base = 1;
    slots_[kLaneSegment].limit = 1'000;
    slots_[kLaneSegment].segment = kLaneSegment;
  }

  [[nodiscard]] LaneView ViewOf(const FakeRseq& thread, std::uint64_t lanes = 1) const {
    return {.lanes = const_cast<Lane*>(lanes_.data()),
            .slots = slots_.data(),
            .lane_count = lanes,
            .rseq_offset = thread.offset()};
  }
  [[nodiscard]] std::array<std::uint64_t, 3> Words() const {
    return {lanes_[0].next.load(), lanes_[0].limit.load(), lanes_[0].segment.load()};
  }

  std::array<Lane, 2> lanes_{};
  std::array<SlotDescriptor, kSlotCount> slots_{};
  FakeRseq thread_{0};
  FakeRseq other_{0};
};

TEST_F(LaneSequences, ClaimTakesOneIdAfterTheOther) {
  const LaneView view = ViewOf(thread_);
  for (std::uint64_t id = 10; id < 20; ++id) {
    const LaneGrant grant = ClaimOneInLane(view);
    EXPECT_EQ(grant.first, id);
    EXPECT_EQ(grant.limit, 20U);
    EXPECT_EQ(grant.segment, kLaneSegment);
    EXPECT_TRUE(IsPublished(view, grant));
  }
  EXPECT_TRUE(ClaimOneInLane(view).empty());
  EXPECT_EQ(Words(), (std::array<std::uint64_t, 3>{20, 20, kLaneSegment}));
}

TEST_F(LaneSequences, BatchTakesAtMostWhatIsLeft) {
  const LaneView view = ViewOf(thread_);
  std::uint64_t taken = 0;
  EXPECT_EQ(ClaimManyInLane(view, 7, taken).first, 10U);
  EXPECT_EQ(taken, 7U);
  EXPECT_EQ(ClaimManyInLane(view, 7, taken).first, 17U);
  EXPECT_EQ(taken, 3U);
  EXPECT_TRUE(ClaimManyInLane(view, 7, taken).empty());
}

TEST_F(LaneSequences, BlockIsInstalledOnlyOverOneThatIsUsedUpAndOnlyAboveIt) {
  const LaneView view = ViewOf(thread_);
  const LaneBlock block{.first = 100, .kept = 1, .limit = 110, .segment = kLaneSegment};
  EXPECT_EQ(InstallInLane(view, block), LaneInstall::kTaken) << "ids were left";
  lanes_[0].next = 20;
  EXPECT_EQ(InstallInLane(view, {.first = 5, .kept = 1, .limit = 8, .segment = kLaneSegment}),
            LaneInstall::kTaken)
      << "the lane has had later ids";
  EXPECT_EQ(Words(), (std::array<std::uint64_t, 3>{20, 20, kLaneSegment}));
  EXPECT_EQ(InstallInLane(view, block), LaneInstall::kInstalled);
  EXPECT_EQ(Words(), (std::array<std::uint64_t, 3>{101, 110, kLaneSegment}));
}

TEST_F(LaneSequences, RefusedBlockIsGivenUpUnlessAnotherHasCome) {
  const LaneView view = ViewOf(thread_);
  const LaneGrant grant = ClaimOneInLane(view);
  std::uint64_t given_up = 0;
  EXPECT_TRUE(GiveUpInLane(view, {grant.first, grant.limit, kLaneSegment + 1}, given_up));
  EXPECT_EQ(given_up, 0U);
  EXPECT_TRUE(GiveUpInLane(view, {grant.first, grant.limit + 1, kLaneSegment}, given_up));
  EXPECT_EQ(given_up, 0U);
  EXPECT_TRUE(GiveUpInLane(view, grant, given_up));
  EXPECT_EQ(given_up, 9U);
  EXPECT_TRUE(ClaimOneInLane(view).empty());
}

TEST_F(LaneSequences, ThreadWithoutALaneGetsNothing) {
  const FakeRseq unregistered{static_cast<std::uint32_t>(-1)};
  const FakeRseq second_cpu{1};
  for (const FakeRseq* thread : {&unregistered, &second_cpu}) {
    const LaneView view = ViewOf(*thread);
    std::uint64_t taken = 0;
    EXPECT_TRUE(ClaimOneInLane(view).empty());
    EXPECT_TRUE(ClaimManyInLane(view, 3, taken).empty());
    EXPECT_EQ(InstallInLane(view, {.first = 100, .kept = 1, .limit = 110, .segment = 1}),
              LaneInstall::kNoLane);
    EXPECT_TRUE(GiveUpInLane(view, {10, 20, kLaneSegment}, taken));
    EXPECT_EQ(taken, 0U);
  }
  EXPECT_EQ(Words(), (std::array<std::uint64_t, 3>{10, 20, kLaneSegment}));
  EXPECT_EQ(lanes_[1].limit.load(), 0U);
}

TEST_F(LaneSequences, EveryLaneNumberUpToTheCountIsUsed) {
  for (const std::uint32_t count : {1U, 2U, 64U, 1'024U}) {
    std::vector<Lane> lanes(count);
    LaneView view = ViewOf(thread_, count);
    view.lanes = lanes.data();
    const FakeRseq last{count - 1};
    view.rseq_offset = last.offset();
    EXPECT_EQ(InstallInLane(view, {.first = 7, .kept = 1, .limit = 9, .segment = 1}),
              LaneInstall::kInstalled);
    EXPECT_EQ(lanes[count - 1].next.load(), 8U);
    EXPECT_EQ(ClaimOneInLane(view).first, 8U);
    const FakeRseq beyond{count};
    view.rseq_offset = beyond.offset();
    EXPECT_EQ(InstallInLane(view, {.first = 7, .kept = 1, .limit = 9, .segment = 1}),
              LaneInstall::kNoLane);
  }
}

TEST_F(LaneSequences, IdsOutsideAPublishedSegmentAreRefused) {
  const LaneView view = ViewOf(thread_);
  EXPECT_TRUE(IsPublished(view, {10, 20, kLaneSegment}));
  EXPECT_FALSE(IsPublished(view, {0, 20, kLaneSegment})) << "below the base";
  EXPECT_FALSE(IsPublished(view, {1'000, 2'000, kLaneSegment})) << "at the limit";
  EXPECT_FALSE(IsPublished(view, {10, 20, kLaneSegment + kSlotCount})) << "another segment's slot";
  slots_[kLaneSegment].segment = 0;
  EXPECT_FALSE(IsPublished(view, {10, 20, kLaneSegment})) << "withdrawn";
  slots_[0].limit = 1'000;
  EXPECT_FALSE(IsPublished(view, {10, 20, 0})) << "an unused slot";
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

// Runs `sequence` with an interruption before instruction `at` of its critical part, in which
// `between` runs. Returns false when the part has fewer instructions.
bool Interrupted(FakeRseq& thread, int at, const std::function<void()>& between,
                 const std::function<void()>& sequence) {
  SingleStepper stepper(thread, at, between);
  stepper.Run(sequence);
  return stepper.has_interrupted();
}

TEST_F(LaneSequences, ClaimInterruptedAnywhereTakesNothingAndBreaksNothing) {
  int at = 0;
  for (;; ++at) {
    lanes_[0].next = 10;
    std::set<std::uint64_t> ids;
    LaneGrant grant;
    const bool more = Interrupted(
        thread_, at, [&] { ids.insert(ClaimOneInLane(ViewOf(other_)).first); },
        [&] { grant = ClaimOneInLane(ViewOf(thread_)); });
    if (!more) break;
    EXPECT_TRUE(grant.empty()) << "instruction " << at;
    for (LaneGrant next = ClaimOneInLane(ViewOf(thread_)); !next.empty();
         next = ClaimOneInLane(ViewOf(thread_))) {
      EXPECT_TRUE(ids.insert(next.first).second) << next.first << " twice, instruction " << at;
    }
    EXPECT_EQ(ids.size(), 10U) << "instruction " << at;
  }
  EXPECT_GE(at, 10) << "so many instructions has the sequence";
}

TEST_F(LaneSequences, BatchInterruptedAnywhereTakesNothingAndBreaksNothing) {
  int at = 0;
  for (;; ++at) {
    lanes_[0].next = 10;
    std::uint64_t taken = 0;
    std::uint64_t others = 0;
    LaneGrant grant;
    const bool more = Interrupted(
        thread_, at, [&] { others = ClaimOneInLane(ViewOf(other_)).first; },
        [&] { grant = ClaimManyInLane(ViewOf(thread_), 4, taken); });
    if (!more) break;
    EXPECT_TRUE(grant.empty()) << "instruction " << at;
    EXPECT_EQ(others, 10U);
    EXPECT_EQ(ClaimManyInLane(ViewOf(thread_), 4, taken).first, 11U) << "instruction " << at;
  }
  EXPECT_GE(at, 12);
}

// Whatever the other thread does meanwhile, the lane hands out its block or ours, each id once.
TEST_F(LaneSequences, InstallationInterruptedAnywhereLeavesAWholeLane) {
  const LaneBlock ours{.first = 100, .kept = 1, .limit = 110, .segment = 6};
  const LaneBlock theirs_below{.first = 50, .kept = 1, .limit = 60, .segment = 5};
  const LaneBlock theirs_above{.first = 200, .kept = 1, .limit = 210, .segment = 7};
  for (const LaneBlock* theirs :
       {&theirs_below, &theirs_above, static_cast<const LaneBlock*>(nullptr)}) {
    for (int at = 0;; ++at) {
      lanes_[0].next = 20;
      lanes_[0].limit = 20;
      lanes_[0].segment = 4;
      LaneInstall result = LaneInstall::kNoLane;
      const bool more = Interrupted(
          thread_, at,
          [&] {
            EXPECT_TRUE(ClaimOneInLane(ViewOf(other_)).empty()) << "a half-made block was claimed";
            if (theirs == nullptr) return;
            EXPECT_EQ(InstallInLane(ViewOf(other_), *theirs), LaneInstall::kInstalled);
          },
          [&] { result = InstallInLane(ViewOf(thread_), ours); });
      if (!more) break;
      EXPECT_EQ(result, LaneInstall::kAborted) << "instruction " << at;
      std::set<std::uint64_t> ids;
      for (LaneGrant next = ClaimOneInLane(ViewOf(thread_)); !next.empty();
           next = ClaimOneInLane(ViewOf(thread_))) {
        ids.insert(next.first);
        ASSERT_NE(theirs, nullptr) << "an aborted block was claimed, instruction " << at;
        EXPECT_EQ(next.segment, theirs->segment) << "instruction " << at;
      }
      EXPECT_EQ(ids.size(), theirs == nullptr ? 0U : 9U) << "instruction " << at;
      const LaneInstall again = InstallInLane(ViewOf(thread_), ours);
      EXPECT_EQ(again, theirs == &theirs_above ? LaneInstall::kTaken : LaneInstall::kInstalled);
    }
  }
}

TEST_F(LaneSequences, GivingUpInterruptedAnywhereIsTriedAgain) {
  for (int at = 0;; ++at) {
    lanes_[0].next = 12;
    lanes_[0].limit = 20;
    bool is_whole = true;
    std::uint64_t given_up = 0;
    const bool more = Interrupted(
        thread_, at, [&] { static_cast<void>(ClaimOneInLane(ViewOf(other_))); },
        [&] {
          is_whole = GiveUpInLane(ViewOf(thread_), {11, 20, kLaneSegment}, given_up);
        });
    if (!more) break;
    EXPECT_FALSE(is_whole) << "instruction " << at;
    EXPECT_TRUE(GiveUpInLane(ViewOf(thread_), {11, 20, kLaneSegment}, given_up));
    EXPECT_EQ(given_up, 7U) << "instruction " << at;
    EXPECT_TRUE(ClaimOneInLane(ViewOf(thread_)).empty());
  }
}

#endif

}  // namespace
}  // namespace idd::shm
