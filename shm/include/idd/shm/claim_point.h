// SPDX-License-Identifier: Apache-2.0
//
// Where the next claim adds: all that a claim reads before its add, in one place.
//
// ABI between libidclient.so and programs compiled with idclient.hpp, whose inlined claims follow a
// ClaimView of the library's. A change of this file or of abi.h's structs is a new
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
  // A batch looks before it adds: for a claimer that slept while its slot was recycled the whole
  // batch would be lost. One id is not worth the wait.
  if (count > 1 && !HoldsSegment(*point.slot, segment)) [[unlikely]]
    return {};
  return ClaimFromSlot(*point.slot, *point.cursor, segment, count);
}

}  // namespace idd::shm

#endif  // IDD_SHM_CLAIM_POINT_H_
