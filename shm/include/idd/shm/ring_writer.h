// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_RING_WRITER_H_
#define IDD_SHM_RING_WRITER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "idd/shm/abi.h"
#include "idd/shm/ring_protocol.h"
#include "idd/shm/ring_stats.h"

namespace idd::shm {

// The daemon's side of one ring.
//
// Thread safety: none; one thread (the event loop) owns it. Claimers in any process run beside it.
//
// Invariants
//  - segments are published with numbers 1, 2, 3, ... and ids that only ascend;
//  - segments head_..tail_ are open or waiting to be noticed as exhausted, all older ones are
//  gone;
//  - a slot is rewritten only after its segment left that window.
class RingWriter {
 public:
  // A published segment as the daemon sees it now.
  struct Segment {
    std::uint64_t number = 0;
    IdRange ids;
    std::uint64_t next = 0;  // first unclaimed id, in [ids.first, ids.limit]

    [[nodiscard]] std::uint64_t claimed() const noexcept { return next - ids.first; }
    [[nodiscard]] std::uint64_t available() const noexcept { return ids.limit - next; }
  };

  // Both outlive the writer; the header of `table` is complete (RingMemory::Create did it). Nothing
  // below `floor` is published: the limit of the ring that this one replaces.
  RingWriter(Table& table, Cursors& cursors, std::uint64_t floor = 0) noexcept
      : table_(table), cursors_(cursors), floor_(floor) {}

  [[nodiscard]] bool CanPublish() const noexcept { return tail_ - head_ + 1 < kSlotCount; }
  // The highest limit ever published here; the next segment starts at or above it.
  [[nodiscard]] std::uint64_t floor() const noexcept { return floor_; }

  // Precondition: CanPublish(), ids not empty, ids.first >= floor(), taken <= ids.size(),
  // ids.limit <= kMaxLimit. Returns the segment's number.
  //
  // `witness`, if there is one, holds the highest cursor of the segment that a look or a claim of
  // this writer has shown, within its bounds, from now until the segment leaves the ring, and is
  // the caller's memory that outlives the process: it is raised before a look or a claim returns.
  std::uint64_t Publish(IdRange ids, std::uint64_t taken, std::uint64_t refill_mark,
                        std::atomic<std::uint64_t>* witness = nullptr) noexcept;

  // Claims from the ring like any client, in the ring's order; empty when it is dry, and for good
  // once it is forged(): no id comes from it below what was seen of a cursor, or claimed here. The
  // wake-up flag is the caller's own business here: it is the daemon.
  [[nodiscard]] SlotClaim Claim(std::uint64_t count) noexcept;

  // Segments that were seen exhausted since the last call, oldest first; moves head past them.
  [[nodiscard]] std::vector<Segment> RetireExhausted();

  // Claimers that were overtaken by the end of their segment may keep their ids until the second
  // call after it: call this about once a second, and before the memory is unmapped.
  void ForgetOldEnds() noexcept;

  // The segments now published, oldest first.
  [[nodiscard]] std::vector<Segment> Look() const;
  [[nodiscard]] std::uint64_t Available() const noexcept;

  // True once a look or a claim has found what no honest claimer writes: a cursor below where it
  // was seen before, or closed by another. From then on it is not known which ids were claimed.
  [[nodiscard]] bool forged() const noexcept { return forged_; }

  // Closes every cursor, the newest first. The returned segments' [next, ids.limit) belong to the
  // caller alone, unless forged() is true afterwards. Oldest first.
  [[nodiscard]] std::vector<Segment> DrainAll();

  // Tells observers what the slots do not say. `numbers.claimed_before` counts what was claimed
  // before the segments that Look() has now; counted_from is filled in here.
  void Tell(TagNumbers numbers) noexcept;

  void SetState(RingState state) noexcept;
  [[nodiscard]] RingState state() const noexcept { return state_; }

 private:
  [[nodiscard]] Segment LookAt(std::uint64_t number) const noexcept;
  // Takes a cursor's word into seen_ and forged_, and returns what may be believed of it.
  std::uint64_t Believe(std::size_t slot, std::uint64_t raw_cursor) const noexcept;
  // `next`, within the bounds of the slot's segment, was seen of its cursor.
  void RaiseSeen(std::size_t slot, std::uint64_t next) const noexcept;
  void MoveHead(std::uint64_t head) noexcept;

  // Whether a slot's withdrawn segment still tells its end, and since before the last
  // ForgetOldEnds().
  enum class End : std::uint8_t { kNone, kTold, kOld };

  Table& table_;
  Cursors& cursors_;
  std::uint64_t head_ = 1;  // oldest segment not yet retired; tail_ + 1 when there is none
  std::uint64_t tail_ = 0;  // newest published
  std::uint64_t floor_;
  // The highest cursor of each slot that a look or a claim has shown, within its segment's bounds.
  // A cache of what was seen, so that const looks may fill it.
  mutable std::array<std::uint64_t, kSlotCount> seen_{};
  std::array<std::atomic<std::uint64_t>*, kSlotCount> witnesses_{};  // of open segments; or null
  mutable bool forged_ = false;
  std::array<End, kSlotCount> ends_{};
  RingState state_ = RingState::kActive;
};

}  // namespace idd::shm

#endif  // IDD_SHM_RING_WRITER_H_
