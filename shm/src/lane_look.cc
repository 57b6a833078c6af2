// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/lane_look.h"

#include <atomic>

namespace idd::shm {
namespace {

// A lane changes its block a few thousand times a second at most, within nanoseconds.
constexpr int kLaneLooks = 8;

}  // namespace

// No two blocks of a lane have the same limit, and giving up lowers it below all later ones. So if
// the limit is the same before and after, the words between belong to it.
std::optional<LaneLook> LookAtLane(const Lane& lane) noexcept {
  for (int tries = 0; tries < kLaneLooks; ++tries) {
    const std::uint64_t limit = lane.limit.load(std::memory_order_acquire);  // Y8, pairs with Y3
    const std::uint64_t next = lane.next.load(std::memory_order_acquire);    // Y8, with Y3
    const std::uint64_t segment = lane.segment.load(std::memory_order_acquire);  // Y8, with Y3
    if (lane.limit.load(std::memory_order_relaxed) == limit) {                   // Y8 again
      return LaneLook{.next = next, .limit = limit, .segment = segment};
    }
  }
  return std::nullopt;
}

LaneSums SumOfLanes(std::span<const Lane> lanes) noexcept {
  LaneSums sums;
  for (const Lane& lane : lanes) {
    sums.dropped += lane.dropped.load(std::memory_order_relaxed);  // Y7
    const std::optional<LaneLook> look = LookAtLane(lane);
    if (!look.has_value()) continue;
    const std::uint64_t left = look->left().size();
    if (left <= kMaxLaneBlock) sums.left += left;
  }
  return sums;
}

}  // namespace idd::shm
