// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/left_ring.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "idd/shm/abi.h"

namespace idd::shm {
namespace {

// An open cursor stays below base + kClosingStep, because honest claimers overshoot a limit by far
// less.
bool IsClosed(std::uint64_t cursor, std::uint64_t base) noexcept {
  return cursor >= base + kClosingStep;
}

}  // namespace

Result<std::unique_ptr<LeftRing>> LeftRing::Open(const ScopedFd& table_fd,
                                                 const ScopedFd& cursors_fd, std::string_view tag) {
  Result<std::unique_ptr<RingMemory>> memory = RingMemory::Attach(table_fd, cursors_fd, tag);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<LeftRing>(new LeftRing(std::move(memory).value()));
}

// Empty for a slot that was never used. A daemon that was killed between P2 and P4 leaves a base of
// one segment and the limit of another, which is a range that no lease has.
IdRange LeftRing::SegmentIn(std::uint32_t slot) const noexcept {
  const SlotDescriptor& descriptor = memory_->table().slots[slot];
  return {descriptor.base.load(std::memory_order_relaxed),    // C3: it is not written any more
          descriptor.limit.load(std::memory_order_acquire)};  // C2, pairs with P4
}

// Closes the newest first, as RingWriter::DrainAll() does: a claimer that passes a closed segment
// must not find ids in a newer one.
void LeftRing::Close() noexcept {
  std::array<std::uint32_t, kSlotCount> slots{};
  std::iota(slots.begin(), slots.end(), 0U);
  std::sort(slots.begin(), slots.end(), [this](std::uint32_t a, std::uint32_t b) {
    return SegmentIn(a).first > SegmentIn(b).first;
  });
  for (const std::uint32_t slot : slots) {
    std::atomic<std::uint64_t>& cursor = memory_->cursors().slots[slot].next;
    const std::uint64_t base = SegmentIn(slot).first;
    const std::uint64_t seen = cursor.load(std::memory_order_relaxed);  // L1: a look
    // If an earlier daemon closed the cursor, its value includes what claimers have added in vain
    // since; those ids are a gap.
    next_[slot] = IsClosed(seen, base)
                      ? seen - kClosingStep
                      : cursor.fetch_add(kClosingStep,
                                         std::memory_order_acq_rel);  // D2, after C1s
    closed_[slot] = next_[slot] + kClosingStep;
  }
  left_in_lanes_ += SumOfLanes(memory_->lanes()).left;
  CloseLanes();
}

// A claim may still be between its store of a block (Y3) and ours: then it stores the block again
// after us, and the next call closes the lane.
bool LeftRing::CloseLanes() noexcept {
  bool all_taken = true;
  for (Lane& lane : memory_->lanes()) {
    const std::optional<LaneLook> look = LookAtLane(lane);
    if (look.has_value() && look->limit == 0) continue;
    if (look.has_value() && !IsTakenFromASlot(*look)) all_taken = false;
    lane.limit.store(0, std::memory_order_relaxed);  // Y6
  }
  return all_taken;
}

bool LeftRing::IsTakenFromASlot(const LaneLook& look) const noexcept {
  if (look.left().empty()) return true;
  const auto slot = static_cast<std::uint32_t>(look.segment % kSlotCount);
  // Claims of a segment that is not published any more are refused.
  if (!HoldsSegment(memory_->table().slots[slot], look.segment)) return true;
  const IdRange ids = SegmentIn(slot);
  return look.next >= ids.first && look.limit <= std::min(next_[slot], ids.limit);
}

std::optional<std::uint64_t> LeftRing::NextOf(IdRange segment) const noexcept {
  for (std::uint32_t slot = 0; slot < kSlotCount; ++slot) {
    if (SegmentIn(slot) != segment) continue;
    // Claimers keep nothing above the end that a daemon has recorded, whatever was added since.
    const SlotDescriptor& descriptor = memory_->table().slots[slot];
    if (descriptor.ended_segment.load(std::memory_order_acquire) != 0) {  // C6, pairs with D4
      const std::uint64_t end = descriptor.ended_at.load(std::memory_order_acquire);  // C7, with D3
      return std::clamp(end, segment.first, segment.limit);
    }
    return std::min(next_[slot], segment.limit);
  }
  return std::nullopt;
}

// Compares with closed_, not with the slot's base: a daemon that was killed between P2 and P3
// leaves a base that does not belong to the cursor. Honest claimers only add.
bool LeftRing::StaysClosed() noexcept {
  for (std::uint32_t slot = 0; slot < kSlotCount; ++slot) {
    const std::uint64_t cursor =
        memory_->cursors().slots[slot].next.load(std::memory_order_relaxed);  // L1: a look
    if (cursor < closed_[slot]) return false;
  }
  return CloseLanes();
}

}  // namespace idd::shm
