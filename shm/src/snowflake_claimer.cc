// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/snowflake_claimer.h"

#include <algorithm>
#include <atomic>

#include "idd/base/clock.h"

namespace idd::shm {
namespace {

// A claim begins again when it has come to the next segment, whose cursor the clock may not have
// moved yet, and when the clock goes on beneath it. All windows of a ring may be over.
constexpr std::uint32_t kTries = 2 * kSlotCount;

}  // namespace

SnowflakeClock::SnowflakeClock(const Table& table) noexcept
    : live_(table.live),
      epoch_ms_(table.header.epoch_ms),
      unit_ms_(std::max<std::uint32_t>(table.header.unit_ms, 1)),
      max_ahead_(table.header.max_ahead),
      is_claimers_(table.header.clock == static_cast<std::uint32_t>(TagClock::kClaimer)) {}

std::uint64_t SnowflakeClock::Now() const noexcept {
  const std::int64_t since = WallClock::now_ms() - epoch_ms_;
  if (since < 0) return 0;
  // A division by a number that is not known when this is compiled takes longer than the add.
  return unit_ms_ == 1 ? static_cast<std::uint64_t>(since)
                       : static_cast<std::uint64_t>(since) / unit_ms_;
}

TimeBounds SnowflakeClock::Bounds(std::uint32_t sequence_bits) const noexcept {
  if (!is_claimers_) {
    return {.now = 0, .frontier = live_.frontier.load(std::memory_order_acquire)};  // U6, with U5
  }
  const std::uint64_t time = Now();
  return {.now = time << sequence_bits, .frontier = (time + max_ahead_ + 1) << sequence_bits};
}

SnowflakeClaim SnowflakeClaimer::Claim(std::uint64_t count) noexcept {
  const std::optional<IdLayout> layout = Layout();
  if (!layout.has_value()) return {};
  for (std::uint32_t round = 0; round < kTries; ++round) {
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
      claim = ClaimAtPoint(view_, std::min(count, layout->OneTime({next, limit}).size()));
    }
    if (claim.ids.empty()) claim = claimer_.ClaimFromNext(1);
    if (claim.ids.empty()) return {};
    if (claim.ids.first < bounds.now) continue;
    return {.ids = layout->IdsOf(layout->OneTime(claim.ids)),
            .is_early = claim.ids.first >= bounds.frontier,
            .number = claim.ids.first};
  }
  return {};
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
