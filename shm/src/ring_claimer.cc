// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_claimer.h"

#include <algorithm>

namespace idd::shm {

SlotClaim RingClaimer::ClaimFromNext(std::uint64_t count) noexcept {
  // Each round that fails has passed an exhausted segment; a thread that loses kSlotCount races in
  // a row while the daemon recycles under it takes the slow way, which is bounded by a deadline.
  for (std::uint32_t round = 0; round <= kSlotCount; ++round) {
    if (!Advance()) return {};
    const std::uint64_t segment = position_.load(std::memory_order_acquire);  // N1, pairs with N2
    if ((segment & kDryBit) != 0) return {};
    const std::size_t slot = segment % kSlotCount;
    const SlotClaim claim = ClaimFromSlot(slots_[slot], cursors_[slot], segment, count);
    if (!claim.ids.empty()) return claim;
  }
  return {};
}

bool RingClaimer::HasIds() noexcept { return Advance(); }

bool RingClaimer::Advance() noexcept {
  const std::uint64_t position = position_.load(std::memory_order_acquire);  // N1, pairs with N2
  const std::uint64_t tail = live_.tail_segment.load(std::memory_order_acquire);  // C0, P6
  const std::uint64_t head = live_.head_segment.load(std::memory_order_acquire);  // H2, with H1
  if (tail >= kDryBit) return false;  // no daemon comes that far: a spoilt table
  std::uint64_t segment = position & ~kDryBit;
  // A dry position is the number of the exhausted segment itself: its successor is next.
  if ((position & kDryBit) != 0) ++segment;
  segment = std::max({segment, head, std::uint64_t{1}});
  // At most one ring's length: what is older than that was recycled, hence exhausted.
  if (tail >= kSlotCount) segment = std::max(segment, tail - kSlotCount + 1);
  for (; segment <= tail; ++segment) {
    const std::size_t slot = segment % kSlotCount;
    // C0 again: the daemon may have recycled the slot since tail was read; then it was exhausted.
    if (!HoldsSegment(slots_[slot], segment)) continue;
    const std::uint64_t limit = slots_[slot].limit.load(std::memory_order_acquire);  // C1, P4
    if (NextUnclaimed(slots_[slot], cursors_[slot]) >= limit) continue;
    RaisePosition(position, segment);
    return true;
  }
  RaisePosition(position, std::max(tail, position & ~kDryBit) | kDryBit);
  return false;
}

void RingClaimer::RaisePosition(std::uint64_t from, std::uint64_t to) noexcept {
  // N2: a failure means that another thread moved on; its position is as good as ours. The number
  // alone is compared, and dry ranks above not dry: "exhausted" is later news of the same segment.
  const auto rank = [](std::uint64_t position) noexcept {
    return ((position & ~kDryBit) << 1) | (position >> 63);
  };
  while (rank(from) < rank(to) &&
         !position_.compare_exchange_weak(from, to, std::memory_order_acq_rel,  // N2, with N1
                                          std::memory_order_acquire)) {         // N1
  }
}

}  // namespace idd::shm
