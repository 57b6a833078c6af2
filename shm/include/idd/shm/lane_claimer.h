// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_LANE_CLAIMER_H_
#define IDD_SHM_LANE_CLAIMER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "idd/shm/abi.h"
#include "idd/shm/lane_sequences.h"
#include "idd/shm/ring_claimer.h"
#include "idd/shm/ring_protocol.h"

namespace idd::shm {

// Where the C library keeps each thread's struct rseq, from the thread pointer. Nothing: this C
// library, kernel or processor has no restartable sequences, or a setting has turned them off.
[[nodiscard]] std::optional<std::ptrdiff_t> RseqOffset() noexcept;

// A view that refuses every claim: before there is a ring, and for a ring without lanes.
[[nodiscard]] const LaneView* NoLanes() noexcept;

// A claimer's side of the lanes of one ring.
//
// Thread safety: every method may be called from any number of threads at once, also from a forked
// child and from a signal handler: a process keeps nothing but pointers.
//
// A claim makes no system call and allocates nothing. A thread that is stopped or killed anywhere
// in it delays no other, and loses at most one block.
class LaneClaimer {
 public:
  // `lanes` are those of the ring that `ring` claims from; all of it outlives the claimer.
  LaneClaimer(const Table& table, Lane* lanes, RingClaimer& ring,
              std::ptrdiff_t rseq_offset) noexcept;

  [[nodiscard]] const LaneView& view() const noexcept { return view_; }

  // Up to `count` (>= 1) contiguous ids; empty when lane and ring are dry.
  [[nodiscard]] SlotClaim Claim(std::uint64_t count) noexcept {
    if (count == 1) {
      const LaneGrant grant = ClaimOneInLane(view_);
      if (!grant.empty() && IsPublished(view_, grant)) [[likely]]
        return {.ids = {grant.first, grant.first + 1}};
      return FinishOne(grant);
    }
    return ClaimMany(count);
  }

  // As Claim(), but above all ids that lanes have had: the lanes of two CPUs rise independently.
  [[nodiscard]] SlotClaim ClaimAboveLanes(std::uint64_t count) noexcept;

  // The rest of a claim of one id whose look at the lane gave `grant`: nothing, or a refused id.
  [[nodiscard]] SlotClaim FinishOne(const LaneGrant& grant) noexcept;

 private:
  [[nodiscard]] SlotClaim ClaimMany(std::uint64_t count) noexcept;
  // Y4: the lane's block was refused.
  void GiveUp(const LaneGrant& grant) noexcept;
  void CountDropped(std::uint64_t ids) noexcept;
  [[nodiscard]] std::uint64_t BlockSize() const noexcept;

  LaneView view_;
  const RingLive& live_;
  RingClaimer& ring_;
};

}  // namespace idd::shm

#endif  // IDD_SHM_LANE_CLAIMER_H_
