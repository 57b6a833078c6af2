// SPDX-License-Identifier: Apache-2.0
//
// The steps of a claim in TagMode::kSnowflake (abi.h) on one slot, and how a number becomes an id.
// Templates for the same reason as in ring_protocol.h.
#ifndef IDD_SHM_SNOWFLAKE_H_
#define IDD_SHM_SNOWFLAKE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "idd/shm/ring_protocol.h"

namespace idd::shm {

// How the numbers of a ring become ids.
struct IdLayout {
  std::uint64_t worker_bits = 0;    // already shifted into place
  std::uint32_t sequence_bits = 0;  // below the worker's
  std::uint32_t time_shift = 0;     // bits below the time

  [[nodiscard]] std::uint64_t sequence_mask() const noexcept { return (1ULL << sequence_bits) - 1; }
  [[nodiscard]] std::uint64_t FirstOf(std::uint64_t time) const noexcept {
    return time << sequence_bits;
  }
  [[nodiscard]] std::uint64_t IdOf(std::uint64_t number) const noexcept {
    return (number >> sequence_bits) << time_shift | worker_bits | (number & sequence_mask());
  }
  // The numbers of the range that have the time of the first one.
  [[nodiscard]] IdRange OneTime(IdRange numbers) const noexcept {
    return {numbers.first, std::min(numbers.limit, (numbers.first | sequence_mask()) + 1)};
  }
  // The ids of numbers that have one time; they are contiguous. Precondition: not empty.
  [[nodiscard]] IdRange IdsOf(IdRange numbers) const noexcept {
    const std::uint64_t first = IdOf(numbers.first);
    return {first, first + numbers.size()};
  }
  friend bool operator==(const IdLayout&, const IdLayout&) = default;
};

// Precondition: a segment was seen published in the slot (C0). All segments of a ring have the same
// layout, so it does not matter which one is in the slot now.
//
// The shift is read last: if the ring is blanked meanwhile, it is 0, and the layout is none.
template <typename Slot>
[[nodiscard]] IdLayout LayoutOf(const Slot& slot) noexcept {
  return {.worker_bits = slot.worker_bits.load(std::memory_order_acquire),      // P2, after C0
          .sequence_bits = slot.sequence_bits.load(std::memory_order_acquire),  // P2, after C0
          .time_shift = slot.time_shift.load(std::memory_order_relaxed)};       // P2, after C0
}

// Daemon only, before PublishSegment().
template <typename Slot>
void WriteLayout(Slot& slot, const IdLayout& layout) noexcept {
  slot.worker_bits.store(layout.worker_bits, std::memory_order_relaxed);      // P2
  slot.sequence_bits.store(layout.sequence_bits, std::memory_order_relaxed);  // P2
  slot.time_shift.store(layout.time_shift, std::memory_order_relaxed);        // P2
}

// What the clock allows: claims begin at `now`, and numbers from `frontier` on must wait.
struct TimeBounds {
  std::uint64_t now = 0;
  std::uint64_t frontier = 0;
};

// How often a move is tried before it is given up: a hostile client could write the cursor between
// any two steps. A template as kLooksForEnd.
template <typename Cursor>
inline constexpr int kTriesToMove = 100;

// Raises a cursor that was seen at `next` to `target`, if that is higher, and returns where it was
// seen last. A cursor below `floor` is forged. It is left as it is, for the daemon to find.
template <typename Cursor>
std::uint64_t RaiseCursor(Cursor& cursor, std::uint64_t next, std::uint64_t floor,
                          std::uint64_t target) noexcept {
  for (int tries = 0; tries < kTriesToMove<Cursor>; ++tries) {
    if (next < floor || next >= target) break;
    // U2: C1 orders what follows. A failure shows where another process has moved the cursor.
    if (cursor.next.compare_exchange_weak(next, target, std::memory_order_relaxed,  // U2
                                          std::memory_order_relaxed)) {             // U1
      return target;
    }
  }
  return next;
}

// Moves the cursor forwards to `now`, over numbers of the past that are not claimed, and returns
// where it was seen last. It is safe at any time, also on a slot that is being recycled: the cursor
// only rises, and not above the limit, so numbers are skipped and none comes twice.
template <typename Slot, typename Cursor>
std::uint64_t MoveWithTime(const Slot& slot, Cursor& cursor, std::uint64_t now) noexcept {
  const std::uint64_t next = cursor.next.load(std::memory_order_relaxed);  // U1: a look
  const std::uint64_t limit = slot.limit.load(std::memory_order_acquire);  // C2, pairs with P4
  const std::uint64_t base = slot.base.load(std::memory_order_relaxed);    // C3, ordered by C2
  return RaiseCursor(cursor, next, base, std::min(now, limit));
}

}  // namespace idd::shm

#endif  // IDD_SHM_SNOWFLAKE_H_
