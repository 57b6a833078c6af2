// SPDX-License-Identifier: Apache-2.0
//
// ClaimPoint: where the next claim adds, and all that a claim reads before its add.
//
// This is an ABI between libidclient.so and programs compiled with idclient.hpp: their inlined
// claims follow a ClaimView of the library. A change to this file or to abi.h's structs needs a new
// kClaimViewVersion.
#ifndef IDD_SHM_CLAIM_POINT_H_
#define IDD_SHM_CLAIM_POINT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "idd/shm/abi.h"
#include "idd/shm/ring_protocol.h"

namespace idd::shm {

inline constexpr std::uint32_t kClaimViewVersion = (kAbiMajor << 16) | 1;

// One slot of one mapped ring, as one process sees it.
struct ClaimPoint {
  Cursor* cursor = nullptr;
  const SlotDescriptor* slot = nullptr;
  std::atomic<std::uint64_t> segment{0};  // number of a segment seen published (C0) in the slot
};

// The point that claims of a tag start from. Never null: while the ring is dry it is a point whose
// cursor belongs to no ring and whose slot refuses every claim.
using ClaimView = std::atomic<ClaimPoint*>;

static_assert(offsetof(ClaimPoint, cursor) == 0);
static_assert(offsetof(ClaimPoint, slot) == sizeof(void*));
static_assert(offsetof(ClaimPoint, segment) == 2 * sizeof(void*));
static_assert(std::atomic<ClaimPoint*>::is_always_lock_free);

// Claims up to `count` (1..kMaxClaim) ids at the view's point. Empty: take the slow way.
[[nodiscard]] inline SlotClaim ClaimAtPoint(const ClaimView& view, std::uint64_t count) noexcept {
  const ClaimPoint& point = *view.load(std::memory_order_acquire);              // N1, pairs with N2
  const std::uint64_t segment = point.segment.load(std::memory_order_acquire);  // N3, pairs with N4
  // A batch looks before it adds: if the claimer slept while its slot was recycled, the whole batch
  // would be lost. A single id is not worth the extra load.
  if (count > 1 && !HoldsSegment(*point.slot, segment)) [[unlikely]]
    return {};
  return ClaimFromSlot(*point.slot, *point.cursor, segment, count);
}

}  // namespace idd::shm

#endif  // IDD_SHM_CLAIM_POINT_H_
