// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_RING_CLAIMER_H_
#define IDD_SHM_RING_CLAIMER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "idd/shm/abi.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/ring_protocol.h"

namespace idd::shm {

// A point that refuses every claim. A view shows it before there is a ring and while the ring is
// dry.
[[nodiscard]] ClaimPoint* DryPoint() noexcept;

// A claimer's side of one ring: finds the segment to claim from and keeps a view on it.
//
// Thread safety: every method may be called from any number of threads at once, and from a forked
// child: all it holds is pointers into shared memory and hints.
//
// Invariants
//  - position_ never falls: it is the number of a segment that was seen published (C0), or that
//    number with kDryBit while that segment is exhausted and no later one has been seen;
//  - a point's segment never falls, and was seen published before it was written there (C0).
//
// The claim is lock-free, makes no system call and allocates nothing: a thread stopped anywhere in
// it delays no other.
class RingClaimer {
 public:
  // RingMemory::Attach() has validated the ring. Table, cursors and view outlive the claimer. The
  // view may also outlive the ring, because the claimers of successive rings move it in turn; but
  // no claim at the view may still run when the ring is unmapped.
  RingClaimer(const Table& table, Cursors& cursors, ClaimView& view) noexcept;
  RingClaimer(const RingClaimer&) = delete;
  RingClaimer& operator=(const RingClaimer&) = delete;

  // Up to `count` (>= 1) contiguous ids, in the ring's order; empty when the ring is dry. Never
  // blocks. Fewer than `count` means the segment ended there.
  [[nodiscard]] SlotClaim Claim(std::uint64_t count) noexcept {
    const std::uint64_t n = count < kMaxClaim ? count : kMaxClaim;
    const SlotClaim claim = ClaimAtPoint(view_, n);
    if (!claim.ids.empty()) [[likely]]
      return claim;
    return ClaimFromNext(n);
  }

  // The slow way: moves the view to this ring's oldest segment that has ids, and claims there.
  [[nodiscard]] SlotClaim ClaimFromNext(std::uint64_t count) noexcept;

  [[nodiscard]] RingState state() const noexcept {
    return static_cast<RingState>(
        live_.state.load(std::memory_order_acquire));  // S2, pairs with S1
  }
  // True when a claim would find ids now. It only looks and adds nothing.
  [[nodiscard]] bool HasIds() noexcept;

 private:
  // Set while the segment is exhausted and no successor is published.
  static constexpr std::uint64_t kDryBit = 1ULL << 63;

  // Moves position_ to the oldest published segment that still has ids, and returns its point, or
  // DryPoint() if there is none.
  [[nodiscard]] ClaimPoint* Advance() noexcept;
  void RaisePosition(std::uint64_t from, std::uint64_t to) noexcept;

  const SlotDescriptor* slots_;
  const Cursor* cursors_;
  const RingLive& live_;
  ClaimView& view_;
  std::atomic<std::uint64_t> position_{kDryBit};
  std::array<ClaimPoint, kSlotCount> points_;
};

}  // namespace idd::shm

#endif  // IDD_SHM_RING_CLAIMER_H_
