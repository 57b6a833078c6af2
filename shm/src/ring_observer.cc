// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_observer.h"

#include <algorithm>
#include <atomic>
#include <optional>

namespace idd::shm {
namespace {

// Enough, because the daemon writes a few times a second, for a few hundred nanoseconds each time.
constexpr int kTries = 8;

// How many ids of one segment are claimed and available.
struct SegmentUse {
  std::uint64_t claimed = 0;
  std::uint64_t available = 0;
  bool is_closed = false;  // by a later daemon, which cannot write the table
};

// The use of an open segment. Nothing if the slot was recycled or holds nonsense.
std::optional<SegmentUse> UseOfOpen(const SlotDescriptor& slot, const Cursor& cursor,
                                    std::uint64_t number) noexcept {
  std::uint64_t next = cursor.next.load(std::memory_order_relaxed);        // L1: a look
  const std::uint64_t limit = slot.limit.load(std::memory_order_acquire);  // C2, pairs with P4
  const std::uint64_t base = slot.base.load(std::memory_order_relaxed);    // C3, ordered by C2
  if (slot.segment.load(std::memory_order_relaxed) != number) return std::nullopt;  // C5
  if (base >= limit || limit > kMaxLimit) return std::nullopt;
  const bool is_closed = next >= base + kClosingStep;
  if (is_closed) next -= kClosingStep;
  next = std::clamp(next, base, limit);
  return SegmentUse{
      .claimed = next - base, .available = is_closed ? 0 : limit - next, .is_closed = is_closed};
}

// The use of a withdrawn segment that the numbers do not count yet.
std::optional<SegmentUse> UseOfEnded(const SlotDescriptor& slot, std::uint64_t number) noexcept {
  const std::uint64_t ended =
      slot.ended_segment.load(std::memory_order_acquire);  // C6, pairs with D4
  if (ended != number) return std::nullopt;
  const std::uint64_t end = slot.ended_at.load(std::memory_order_acquire);  // C7, pairs with D3
  // The base is this segment's or, if the slot was published again meanwhile, a later one's.
  const std::uint64_t base = slot.base.load(std::memory_order_relaxed);                   // C3
  if (slot.ended_segment.load(std::memory_order_relaxed) != number) return std::nullopt;  // C8
  if (base > end || end > kMaxLimit) return std::nullopt;
  return SegmentUse{.claimed = end - base, .available = 0, .is_closed = false};
}

std::optional<SegmentUse> UseOf(const SlotDescriptor& slot, const Cursor& cursor,
                                std::uint64_t number) noexcept {
  if (slot.segment.load(std::memory_order_acquire) == number) {  // C0, pairs with P5
    if (const auto use = UseOfOpen(slot, cursor, number); use.has_value()) return use;
  }
  return UseOfEnded(slot, number);
}

RingState StateOf(std::uint32_t word) noexcept {
  switch (static_cast<RingState>(word)) {
    case RingState::kActive:
      return RingState::kActive;
    case RingState::kDrained:
      return RingState::kDrained;
    case RingState::kQuarantined:
      return RingState::kQuarantined;
    case RingState::kRetired:
      break;
  }
  return RingState::kRetired;
}

// Adds up the segments [first, last]. False if a slot is being rewritten or holds nonsense.
bool AddSegments(const Table& table, const Cursors& cursors, RingView& view, std::uint64_t first,
                 std::uint64_t last) noexcept {
  for (std::uint64_t number = first; number <= last; ++number) {
    const std::size_t slot = number % kSlotCount;
    const auto use = UseOf(table.slots[slot], cursors.slots[slot], number);
    if (!use.has_value()) return false;
    view.claimed += use->claimed;
    view.available += use->available;
    view.open_segments += use->available != 0 ? 1U : 0U;
    view.is_over = view.is_over || use->is_closed;
  }
  return true;
}

bool TryLook(const Table& table, const Cursors& cursors, RingView& view) noexcept {
  const bool has_numbers = table.stats.version.load(std::memory_order_acquire) != 0;  // O1, with T3
  const std::optional<TagNumbers> numbers = ReadNumbers(table.stats);
  if (has_numbers && !numbers.has_value()) return false;
  RingView seen;
  seen.state = StateOf(table.live.state.load(std::memory_order_acquire));  // S2, pairs with S1
  seen.is_over = seen.state == RingState::kRetired || seen.state == RingState::kQuarantined;
  seen.has_numbers = numbers.has_value();
  if (numbers.has_value()) seen.numbers = *numbers;
  seen.claimed = seen.numbers.claimed_before;
  // The tail is read before the head: a head that has moved on since only leaves out segments that
  // are over.
  const std::uint64_t last =
      table.live.tail_segment.load(std::memory_order_acquire);  // C0, pairs with P6
  const std::uint64_t head =
      table.live.head_segment.load(std::memory_order_acquire);  // H2, pairs with H1
  const std::uint64_t first = seen.has_numbers ? seen.numbers.counted_from : head;
  if (first == 0 || last >= first + kSlotCount || first > last + 1) return false;
  if (!AddSegments(table, cursors, seen, first, last)) return false;
  view = seen;
  return true;
}

}  // namespace

bool ReadRing(const Table& table, const Cursors& cursors, RingView& view,
              std::span<const Lane> lanes) noexcept {
  for (int tries = 0; tries < kTries; ++tries) {
    if (!TryLook(table, cursors, view)) continue;
    view.lanes = SumOfLanes(lanes);
    return true;
  }
  // A quarantined ring shows no ends, but its state shows that it is over.
  const RingState state =
      StateOf(table.live.state.load(std::memory_order_acquire));  // S2, pairs with S1
  if (state == RingState::kRetired || state == RingState::kQuarantined) {
    view.state = state;
    view.is_over = true;
    view.available = 0;
    view.open_segments = 0;
    return true;
  }
  return false;
}

Result<RingObserver> RingObserver::Attach(const ScopedFd& table_fd, const ScopedFd& cursors_fd,
                                          std::string_view tag) {
  Result<std::unique_ptr<RingMemory>> memory =
      RingMemory::AttachForReading(table_fd, cursors_fd, tag);
  if (!memory.ok()) return memory.status();
  return RingObserver(std::move(memory).value());
}

const RingView& RingObserver::Snapshot() noexcept {
  // If the look fails, view_ still has the result of the last one.
  static_cast<void>(
      ReadRing(memory_->table(), memory_->read_cursors(), view_, memory_->read_lanes()));
  return view_;
}

}  // namespace idd::shm
