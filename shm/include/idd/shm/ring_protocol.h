// SPDX-License-Identifier: Apache-2.0
//
// The steps of the protocol in abi.h on one slot, each written once.
//
// They are templates over the slot, cursor and live words so that the exhaustive interleaving tests
// run this very code with their own atomics; all other code uses ring_writer.h and ring_claimer.h.
// The labels (P1, C1, D2, ...) are those of the protocol table in abi.h.
#ifndef IDD_SHM_RING_PROTOCOL_H_
#define IDD_SHM_RING_PROTOCOL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "idd/shm/abi.h"

namespace idd::shm {

// Ids [first, limit).
struct IdRange {
  std::uint64_t first = 0;
  std::uint64_t limit = 0;

  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return limit - first; }
  [[nodiscard]] constexpr bool empty() const noexcept { return first >= limit; }
  friend constexpr bool operator==(const IdRange&, const IdRange&) = default;
};

// The values that a publication writes into a slot.
struct Publication {
  std::uint64_t segment = 0;  // its number, above all before it
  IdRange ids;                // first >= every earlier limit of this ring
  std::uint64_t taken = 0;    // leading ids already given to waiters; <= ids.size()
  std::uint64_t refill_mark = kNoMark;
};

// The result of one fetch_add.
struct SlotClaim {
  IdRange ids;                // empty: the slot is exhausted, drained or holds another segment
  bool wakes_daemon = false;  // the range covers the refill mark: the caller sends the wake-up
  std::uint64_t segment = 0;  // that the ids are of; not set by claims of lanes
};

// Daemon only. Precondition: the slot's earlier segment is exhausted or drained.
template <typename Live, typename Slot, typename Cursor>
void PublishSegment(Live& live, Slot& slot, Cursor& cursor, const Publication& what) noexcept {
  // P1: a claimer that sees the new limit (P4) must not take the slot for its old segment.
  slot.segment.store(0, std::memory_order_relaxed);
  slot.base.store(what.ids.first, std::memory_order_relaxed);           // P2
  slot.refill_mark.store(what.refill_mark, std::memory_order_relaxed);  // P2
  // P3 before P5: a claimer that knows the new number adds to the new cursor, not the exhausted
  // one.
  cursor.next.store(what.ids.first + what.taken, std::memory_order_relaxed);
  slot.limit.store(what.ids.limit, std::memory_order_release);       // P4, pairs with C2
  slot.segment.store(what.segment, std::memory_order_release);       // P5, pairs with C0
  live.tail_segment.store(what.segment, std::memory_order_release);  // P6, pairs with C0
  live.publications.fetch_add(1, std::memory_order_release);  // P7, pairs with a waiter's look
}

// C0: has `segment` been published in this slot? A yes makes ClaimFromSlot(segment) safe.
template <typename Slot>
[[nodiscard]] bool HoldsSegment(const Slot& slot, std::uint64_t segment) noexcept {
  return slot.segment.load(std::memory_order_acquire) == segment;  // C0, pairs with P5
}

// How often a claimer looks for the end of its segment before it gives up what it added. The daemon
// takes a few hundred nanoseconds from D1 to D4, unless it loses its processor in between. This is
// a template so that the exhaustive tests can look less often at their own slots.
template <typename Slot>
inline constexpr int kLooksForEnd = 2000;

inline void PauseBetweenLooks() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm("yield");  // an asm without outputs is never removed
#endif
}

// Finishes a claim that the withdrawal (D1) of its segment overtook between C1 and C5. Either the
// claim added to the cursor before the withdrawal, or a hostile client has written the cursor back.
// The ids of `added` below the end that the daemon publishes (D4) are claimed, and no other claimer
// gets them. The result is a range because that fits in registers; a SlotClaim would cost every
// claim room on its stack.
template <typename Slot>
[[nodiscard, gnu::cold, gnu::noinline]] IdRange KeepOvertaken(const Slot& slot,
                                                              std::uint64_t segment,
                                                              IdRange added) noexcept {
  for (int look = 0; look < kLooksForEnd<Slot>; ++look) {
    if (slot.ended_segment.load(std::memory_order_acquire) == segment) {        // C6, pairs with D4
      const std::uint64_t end = slot.ended_at.load(std::memory_order_acquire);  // C7, pairs with D3
      // C8, ordered by C7: a claimer that read a later segment's end also sees the 0 of D5.
      if (slot.ended_segment.load(std::memory_order_relaxed) != segment) return {};
      if (added.first >= end) return {};
      return {added.first, std::min(added.limit, end)};
    }
    // Another segment's number (C5 again): the slot was recycled and no longer shows the end.
    if (slot.segment.load(std::memory_order_relaxed) != 0) return {};
    PauseBetweenLooks();
  }
  return {};
}

// Claims up to `count` (1..kMaxClaim) ids: adds, then checks whether it may keep what it got.
// Precondition: `segment` is known to be published (C0).
//
// The add comes first because it is the cost of a claim: nothing waits for the loads that follow
// it. Its acquire orders those loads after it. So ids that were added after the slot was withdrawn
// (D1) are refused even if a hostile client has written the cursor back, unless they lie below the
// segment's end and the slot still shows that end (D4, D5).
template <typename Slot, typename Cursor>
[[nodiscard]] inline SlotClaim ClaimFromSlot(const Slot& slot, Cursor& cursor,
                                             std::uint64_t segment, std::uint64_t count) noexcept {
  const std::uint64_t first = cursor.next.fetch_add(count, std::memory_order_acquire);  // C1
  const std::uint64_t limit = slot.limit.load(std::memory_order_acquire);       // C2, pairs with P4
  const std::uint64_t base = slot.base.load(std::memory_order_relaxed);         // C3, ordered by C2
  const std::uint64_t mark = slot.refill_mark.load(std::memory_order_relaxed);  // C4, ordered by C2
  if (first < base || first >= limit) [[unlikely]]
    return {};
  IdRange ids{first, first + std::min(count, limit - first)};
  bool wakes_daemon = mark - first < ids.size();
  // C5, ordered by C2: a claimer that read a later segment's limit also sees the 0 of P1.
  if (slot.segment.load(std::memory_order_relaxed) != segment) [[unlikely]] {
    ids = KeepOvertaken(slot, segment, ids);
    wakes_daemon = false;
  }
  return {ids, wakes_daemon, segment};
}

// The first id of the slot that is not claimed, within [base, limit]. The result is limit for a
// drained or exhausted slot, and base for a cursor below base, which was forged.
template <typename Slot, typename Cursor>
[[nodiscard]] std::uint64_t NextUnclaimed(const Slot& slot, const Cursor& cursor) noexcept {
  const std::uint64_t limit = slot.limit.load(std::memory_order_acquire);  // C2, pairs with P4
  const std::uint64_t base = slot.base.load(std::memory_order_relaxed);    // C3, ordered by C2
  const std::uint64_t next = cursor.next.load(std::memory_order_relaxed);  // L1: a look
  // Not std::clamp: while the daemon rewrites the slot, base may belong to a later segment than
  // limit.
  return std::min(std::max(next, base), limit);
}

// Daemon only. Takes the slot out of use: whatever a hostile client writes into its cursor from now
// on, C5 fails before a claimer believes it.
template <typename Slot>
void WithdrawSegment(Slot& slot) noexcept {
  slot.segment.store(0, std::memory_order_release);  // D1, before D2 or after a look
}

// Daemon only. Lets claimers that added to `segment` in time keep the ids below `end`.
// Precondition: the cursor was seen at `end` or closed there.
template <typename Slot>
void RecordEnd(Slot& slot, std::uint64_t segment, std::uint64_t end) noexcept {
  slot.ended_at.store(end, std::memory_order_release);           // D3, pairs with C7
  slot.ended_segment.store(segment, std::memory_order_release);  // D4, pairs with C6
}

// Daemon only. From here on no claimer keeps ids of the slot's withdrawn segment.
template <typename Slot>
void ClearEnd(Slot& slot) noexcept {
  slot.ended_segment.store(0, std::memory_order_relaxed);  // D5: D3 of a later end orders it
}

// Daemon only. Closes the cursor and returns the ids that were not claimed. They belong to the
// caller alone, because every later add starts at or above the limit. `raw_cursor` receives the
// cursor's earlier value.
template <typename Slot, typename Cursor>
[[nodiscard]] IdRange DrainSlot(Slot& slot, Cursor& cursor, std::uint64_t& raw_cursor) noexcept {
  const std::uint64_t limit = slot.limit.load(std::memory_order_relaxed);  // D0: our own last store
  // D1 before D2: a claimer that sees what a hostile client has written into the closed cursor also
  // sees the withdrawal. A claimer that is in the slot waits a moment for the end (C6).
  WithdrawSegment(slot);
  raw_cursor = cursor.next.fetch_add(kClosingStep, std::memory_order_acq_rel);  // D2, after C1s
  return {std::min(raw_cursor, limit), limit};
}

}  // namespace idd::shm

#endif  // IDD_SHM_RING_PROTOCOL_H_
