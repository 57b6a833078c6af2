// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/snowflake_claimer.h"

#include <algorithm>
#include <atomic>

namespace idd::shm {
namespace {

// A claim begins again when it has come to the next segment, whose cursor the clock may not have
// moved yet, and when the clock goes on beneath it. All windows of a ring may be over.
constexpr std::uint32_t kMoveTries = 2 * kSlotCount;

}  // namespace

SnowflakeClock::SnowflakeClock(const Table& table) noexcept
    : live_(table.live),
      epoch_ms_(table.header.epoch_ms),
      unit_ms_(std::max<std::uint32_t>(table.header.unit_ms, 1)),
      max_ahead_(table.header.max_ahead),
      is_claimers_(table.header.clock == static_cast<std::uint32_t>(TagClock::kClaimer)) {}

SnowflakeClaim SnowflakeClaimer::Claim(std::uint64_t count) noexcept {
  const std::optional<IdLayout> layout = Layout();
  if (!layout.has_value()) return {};
  for (std::uint32_t round = 0; round < kMoveTries; ++round) {
    const TimeBounds bounds = clock_.Bounds(layout->sequence_bits);
    const ClaimPoint& point = *view_.load(std::memory_order_acquire);  // N1, pairs with N2
    const std::uint64_t segment = point.segment.load(std::memory_order_acquire);  // N3, with N4
    const std::uint64_t next = MoveWithTime(*point.slot, *point.cursor, bounds.now);
    const std::uint64_t limit = point.slot->limit.load(std::memory_order_acquire);  // C2, with P4
    SlotClaim claim;
    // C0 after the looks at cursor and limit: they are of the segment that the point knows. A
    // client that slept while its slot was recycled would otherwise wait for the new window, and
    // one whose ring was drained for a forged cursor.
    if (next < limit && HoldsSegment(*point.slot, segment)) {
      if (next >= bounds.frontier) return {.is_early = true, .number = next};
      if (looks_first_.load(std::memory_order_relaxed)) {      // U7
        looks_first_.store(false, std::memory_order_relaxed);  // U7
      }
      claim = ClaimAtPoint(view_, std::min(count, layout->OneTime({next, limit}).size()));
    }
    if (claim.ids.empty()) claim = claimer_.ClaimFromNext(1);
    if (claim.ids.empty()) return {};
    if (claim.ids.first < bounds.now) continue;
    if (claim.ids.first >= bounds.frontier) return Early(*layout, layout->OneTime(claim.ids));
    return {.ids = layout->IdsOf(layout->OneTime(claim.ids)),
            .is_early = false,
            .number = claim.ids.first};
  }
  return {};
}

SnowflakeClaim SnowflakeClaimer::Early(const IdLayout& layout, IdRange numbers) noexcept {
  looks_first_.store(true, std::memory_order_relaxed);  // U7
  // With the daemon's clock only the daemon can help, and it may have stopped moving the ring.
  if (!clock_.is_claimers()) return {.ids = {}, .is_early = true, .number = numbers.first};
  return {.ids = layout.IdsOf(numbers), .is_early = true, .number = numbers.first};
}

bool SnowflakeClaimer::IsDue(std::uint64_t number) noexcept {
  const std::optional<IdLayout> layout = Layout();
  return layout.has_value() && number < clock_.Bounds(layout->sequence_bits).frontier;
}

std::uint64_t SnowflakeClaimer::AheadMs(std::uint64_t number) noexcept {
  const std::optional<IdLayout> layout = Layout();
  return layout.has_value() ? clock_.AheadMs(number >> layout->sequence_bits) : 0;
}

std::optional<IdLayout> SnowflakeClaimer::Layout() noexcept {
  std::uint32_t time_shift = time_shift_.load(std::memory_order_acquire);  // U3, pairs with U4
  if (time_shift != 0) [[likely]] {
    return IdLayout{
        .worker_bits = worker_bits_.load(std::memory_order_relaxed),      // U3 orders it
        .sequence_bits = sequence_bits_.load(std::memory_order_relaxed),  // U3 orders it
        .time_shift = time_shift};
  }
  // The first segment is published in slot 1.
  if (table_.live.tail_segment.load(std::memory_order_acquire) == 0) return std::nullopt;  // C0
  const IdLayout layout = LayoutOf(table_.slots[1]);
  if (layout.time_shift == 0) return std::nullopt;
  // Threads that come here at once write the same values.
  worker_bits_.store(layout.worker_bits, std::memory_order_relaxed);      // U4 orders it
  sequence_bits_.store(layout.sequence_bits, std::memory_order_relaxed);  // U4 orders it
  time_shift_.store(layout.time_shift, std::memory_order_release);        // U4, pairs with U3
  return layout;
}

}  // namespace idd::shm
