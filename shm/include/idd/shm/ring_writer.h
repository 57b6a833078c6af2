// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_RING_WRITER_H_
#define IDD_SHM_RING_WRITER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "idd/shm/abi.h"
#include "idd/shm/lane_look.h"
#include "idd/shm/ring_protocol.h"
#include "idd/shm/ring_stats.h"
#include "idd/shm/snowflake.h"

namespace idd::shm {

// The daemon's side of one ring.
//
// Thread safety: none; one thread (the event loop) owns it. Claimers in any process run
// concurrently.
//
// Invariants
//  - segments are published with numbers 1, 2, 3, ... and ids that only ascend;
//  - segments head_..tail_ are open, or exhausted and not yet retired; all older ones are gone;
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

  // `table`, `cursors` and `lanes` outlive the writer; RingMemory::Create has completed the header
  // of `table`. Nothing below `floor`, the limit of the ring that this one replaces, is published.
  // `lanes`: of a ring of order cpu.
  RingWriter(Table& table, Cursors& cursors, std::uint64_t floor = 0, std::span<Lane> lanes = {});

  [[nodiscard]] bool CanPublish() const noexcept { return tail_ - head_ + 1 < kSlotCount; }
  // The highest limit ever published here; the next segment starts at or above it.
  [[nodiscard]] std::uint64_t floor() const noexcept { return floor_; }

  // Precondition: CanPublish(), ids not empty, ids.first >= floor(), taken <= ids.size(),
  // ids.limit <= kMaxLimit. Returns the segment's number.
  //
  // `witness`, if there is one, is the caller's memory that outlives the process. From now until
  // the segment leaves the ring, the witness holds the highest cursor of the segment, within its
  // bounds, that a look or a claim of this writer has seen. It is raised before the look or the
  // claim returns.
  //
  // `layout`: of a ring in mode snowflake, whose ids are numbers; the same in every call.
  std::uint64_t Publish(IdRange ids, std::uint64_t taken, std::uint64_t refill_mark,
                        std::atomic<std::uint64_t>* witness = nullptr,
                        const IdLayout& layout = {}) noexcept;

  // Mode snowflake: moves the cursors forwards to the number `now`.
  void MoveWithTime(std::uint64_t now) noexcept;
  // Mode snowflake, clock of the daemon: numbers from `frontier` on must wait.
  void SetFrontier(std::uint64_t frontier) noexcept;
  // What Claim() would find first, if nothing else claimed; nothing: the ring is dry.
  [[nodiscard]] std::optional<Segment> NextOpen() const noexcept;

  // Claims from the ring like any client, in the ring's order. Empty when the ring is dry, and
  // always once it is forged(): Claim() returns no id below a cursor value that was seen or claimed
  // here. The caller is the daemon, so it handles the wake-up flag itself.
  [[nodiscard]] SlotClaim Claim(std::uint64_t count) noexcept;

  // How many ids can be claimed before a claim takes the next refill mark; nothing: no mark lies
  // ahead.
  [[nodiscard]] std::optional<std::uint64_t> ToNextMark() const noexcept;
  // No claim takes that mark: the caller knows already what its message would say.
  void ClearNextMark() noexcept;

  // Segments that were seen exhausted since the last call, oldest first; moves head past them.
  [[nodiscard]] std::vector<Segment> RetireExhausted();

  // A claimer overtaken by the end of its segment can still read that end (C6), and so keep its
  // ids, until this function has been called twice after the end. To be called about once a second,
  // and before the memory is unmapped. Order cpu: it also looks for what no honest claimer writes
  // into a lane (forged()).
  void ClearOldEnds() noexcept;

  // Order cpu: how many ids claimers take for a lane at once, 1..kMaxLaneBlock.
  void SetLaneBlock(std::uint64_t ids) noexcept;
  [[nodiscard]] std::uint64_t lane_block() const noexcept;
  [[nodiscard]] LaneSums Lanes() const noexcept { return SumOfLanes(lanes_); }

  // The segments now published, oldest first.
  [[nodiscard]] std::vector<Segment> Snapshot() const;
  [[nodiscard]] std::uint64_t Available() const noexcept;

  // True once a look or a claim has found what no honest claimer writes: a cursor below an earlier
  // value, one that another process has closed, or a lane with ids that no claim took from a slot.
  // From then on it is unknown which ids were claimed.
  [[nodiscard]] bool forged() const noexcept { return forged_; }

  // Closes every cursor, the newest first. The returned segments' [next, ids.limit) belong to the
  // caller alone, unless forged() is true afterwards. Oldest first.
  [[nodiscard]] std::vector<Segment> DrainAll();

  // Writes the numbers that the slots do not show, for observers. `numbers.claimed_before` counts
  // the ids claimed before the segments that Snapshot() returns now. This call fills in
  // counted_from.
  void PublishStats(TagNumbers numbers) noexcept;

  void SetState(RingState state) noexcept;
  [[nodiscard]] RingState state() const noexcept { return state_; }

 private:
  [[nodiscard]] Segment ReadSegment(std::uint64_t number) const noexcept;
  // The next refill mark: its segment, and the ids to claim before it. Segment 0: there is none.
  struct NextMark {
    std::uint64_t number = 0;
    std::uint64_t distance = 0;
  };
  [[nodiscard]] NextMark FindNextMark() const noexcept;
  // Updates seen_ and forged_ from a cursor's word, and returns the position that may be trusted.
  std::uint64_t ClampCursor(std::size_t slot, std::uint64_t raw_cursor) const noexcept;
  // Records that the slot's cursor was seen at `next`, which is within its segment's bounds.
  void RaiseSeen(std::size_t slot, std::uint64_t next) const noexcept;
  void MoveHead(std::uint64_t head) noexcept;

  // The number of the segment that was published last in this slot; 0: none.
  [[nodiscard]] std::uint64_t NumberIn(std::size_t slot) const noexcept;
  // Withdraws an exhausted segment.
  void EndSegment(std::size_t slot) noexcept;
  // Order cpu: checks all lanes. Returns the slots of whose segments lanes have ids, as bits.
  std::uint32_t CheckLanes() noexcept;
  // Checks what one lane shows, and returns the bit of its slot if it has ids.
  std::uint32_t CheckLane(std::size_t lane) noexcept;

  // What became of the segment in a slot below head_. It is exhausted, but lanes had ids of it
  // (kInLanes) or at the last ClearOldEnds() had none (kLeftLanes); or the slot shows its end
  // (kPublished), and did already at the last ClearOldEnds() (kOld).
  enum class End : std::uint8_t { kNone, kInLanes, kLeftLanes, kPublished, kOld };

  Table& table_;
  Cursors& cursors_;
  std::span<Lane> lanes_;
  std::vector<std::uint64_t> lane_floors_;  // no id of the lane below it is left
  std::vector<IdRange> lane_ids_;           // of the last CheckLanes()
  std::uint64_t head_ = 1;  // oldest segment not yet retired; tail_ + 1 when there is none
  std::uint64_t tail_ = 0;  // newest published
  std::uint64_t floor_;
  // The highest value of each slot's cursor that a look or a claim has seen, within its segment's
  // bounds. It is mutable because const looks update this cache.
  mutable std::array<std::uint64_t, kSlotCount> seen_{};
  std::array<std::atomic<std::uint64_t>*, kSlotCount> witnesses_{};  // of open segments; or null
  mutable bool forged_ = false;
  std::array<End, kSlotCount> ends_{};
  RingState state_ = RingState::kActive;
};

}  // namespace idd::shm

#endif  // IDD_SHM_RING_WRITER_H_
