// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_RING_CLAIMER_H_
#define IDD_SHM_RING_CLAIMER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "idd/shm/abi.h"
#include "idd/shm/ring_protocol.h"

namespace idd::shm {

// A claimer's side of one ring.
//
// Thread safety: every method may be called from any number of threads at once, and from a forked
// child: all it holds is two pointers into shared memory and one hint.
//
// Invariants
//  - position_ never falls: it is the number of a segment that was seen published (C0), or that
//    number with kDryBit while that segment is exhausted and no later one has been seen;
//  - no add is made to a segment that this object has seen exhausted ("look before you add").
//
// The claim is lock-free, makes no system call and allocates nothing: a thread stopped anywhere in
// it delays nobody.
class RingClaimer {
 public:
  // Both outlive the claimer and were validated by AttachRing().
  RingClaimer(const Table& table, Cursors& cursors) noexcept
      : slots_(table.slots), cursors_(cursors.slots), live_(table.live) {}

  // Up to `count` (>= 1) contiguous ids, in the ring's order; empty when the ring is dry. Never
  // blocks. Fewer than `count` means the segment ended there.
  [[nodiscard]] SlotClaim Claim(std::uint64_t count) noexcept {
    const std::uint64_t segment = position_.load(std::memory_order_acquire);  // N1, pairs with N2
    const std::uint64_t n = count < kMaxClaim ? count : kMaxClaim;
    const std::size_t slot = segment % kSlotCount;
    const SlotClaim claim = ClaimFromSlot(slots_[slot], cursors_[slot], segment, n);
    if (!claim.ids.empty()) [[likely]]
      return claim;
    return ClaimFromNext(n);
  }

  [[nodiscard]] RingState state() const noexcept {
    return static_cast<RingState>(
        live_.state.load(std::memory_order_acquire));  // S2, pairs with S1
  }
  // True when a claim would find ids now. A look, no add.
  [[nodiscard]] bool HasIds() noexcept;

 private:
  // Set while the segment is exhausted and no successor is published: no slot's number has it, so
  // the fast path's C2 fails before its add.
  static constexpr std::uint64_t kDryBit = 1ULL << 63;

  [[nodiscard]] SlotClaim ClaimFromNext(std::uint64_t count) noexcept;
  // Moves position_ to the oldest published segment that still has ids. False: the ring is dry.
  [[nodiscard]] bool Advance() noexcept;
  void RaisePosition(std::uint64_t from, std::uint64_t to) noexcept;

  const SlotDescriptor* slots_;
  Cursor* cursors_;
  const RingLive& live_;
  std::atomic<std::uint64_t> position_{kDryBit};
};

}  // namespace idd::shm

#endif  // IDD_SHM_RING_CLAIMER_H_
