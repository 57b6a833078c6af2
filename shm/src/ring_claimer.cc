// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_claimer.h"

#include <algorithm>

namespace idd::shm {

ClaimPoint* DryPoint() noexcept {
  // The cursor has its own block, so that threads that find their rings dry disturb nothing else.
  static Cursor cursor{};
  static const SlotDescriptor slot{};  // base = limit = 0: accepts nothing
  static ClaimPoint point{.cursor = &cursor, .slot = &slot, .segment = 0};
  return &point;
}

RingClaimer::RingClaimer(const Table& table, Cursors& cursors, ClaimView& view) noexcept
    : slots_(table.slots), cursors_(cursors.slots), live_(table.live), view_(view) {
  for (std::size_t i = 0; i < kSlotCount; ++i) {
    points_[i].cursor = &cursors.slots[i];
    points_[i].slot = &table.slots[i];
  }
}

SlotClaim RingClaimer::ClaimFromNext(std::uint64_t count) noexcept {
  // Each round that fails has passed an exhausted segment; a thread that loses kSlotCount races in
  // a row while the daemon recycles under it takes the slow way, which is bounded by a deadline.
  for (std::uint32_t round = 0; round <= kSlotCount; ++round) {
    ClaimPoint* seen = view_.load(std::memory_order_acquire);  // N1, pairs with N2
    ClaimPoint* const next = Advance();
    // A failure means that another thread has moved the view: its point is as good as ours.
    if (seen != next) {
      view_.compare_exchange_strong(seen, next, std::memory_order_acq_rel,  // N2, with N1
                                    std::memory_order_acquire);             // N1
    }
    if (next == DryPoint()) return {};
    const SlotClaim claim = ClaimAtPoint(view_, count);
    if (!claim.ids.empty()) return claim;
  }
  return {};
}

bool RingClaimer::HasIds() noexcept { return Advance() != DryPoint(); }

ClaimPoint* RingClaimer::Advance() noexcept {
  const std::uint64_t position = position_.load(std::memory_order_acquire);  // N5, pairs with N6
  const std::uint64_t tail = live_.tail_segment.load(std::memory_order_acquire);  // C0, P6
  const std::uint64_t head = live_.head_segment.load(std::memory_order_acquire);  // H2, with H1
  if (tail >= kDryBit) return DryPoint();  // no daemon comes that far: a spoilt table
  std::uint64_t segment = position & ~kDryBit;
  // A dry position is the number of the exhausted segment itself, so its successor is next.
  if ((position & kDryBit) != 0) ++segment;
  segment = std::max({segment, head, std::uint64_t{1}});
  // Look back at most one ring's length: older segments were recycled, hence exhausted.
  if (tail >= kSlotCount) segment = std::max(segment, tail - kSlotCount + 1);
  for (; segment <= tail; ++segment) {
    const std::size_t slot = segment % kSlotCount;
    // C0 again: the daemon may have recycled the slot since tail was read; then it was exhausted.
    if (!HoldsSegment(slots_[slot], segment)) continue;
    const std::uint64_t limit = slots_[slot].limit.load(std::memory_order_acquire);  // C2, P4
    if (NextUnclaimed(slots_[slot], cursors_[slot]) >= limit) continue;
    std::uint64_t known = points_[slot].segment.load(std::memory_order_acquire);  // N3, with N4
    while (known < segment && !points_[slot].segment.compare_exchange_weak(
                                  known, segment, std::memory_order_acq_rel,  // N4, with N3
                                  std::memory_order_acquire)) {               // N3
    }
    RaisePosition(position, segment);
    return &points_[slot];
  }
  RaisePosition(position, std::max(tail, position & ~kDryBit) | kDryBit);
  return DryPoint();
}

void RingClaimer::RaisePosition(std::uint64_t from, std::uint64_t to) noexcept {
  // N6: a failure means that another thread moved on; its position is as good as ours. Positions
  // are compared by number. If the numbers are equal, dry ranks above not dry, because a segment
  // that is exhausted stays so.
  const auto rank = [](std::uint64_t position) noexcept {
    return ((position & ~kDryBit) << 1) | (position >> 63);
  };
  while (rank(from) < rank(to) &&
         !position_.compare_exchange_weak(from, to, std::memory_order_acq_rel,  // N6, with N5
                                          std::memory_order_acquire)) {         // N5
  }
}

}  // namespace idd::shm
