// SPDX-License-Identifier: Apache-2.0
//
// How many ids a claim takes for a lane at once (order cpu). Pure.
#ifndef IDD_DAEMON_REFILL_LANE_BLOCK_H_
#define IDD_DAEMON_REFILL_LANE_BLOCK_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "idd/shm/abi.h"

namespace idd::daemon {

inline constexpr std::uint64_t kUsualLaneBlock = 256;

struct LaneBlockFacts {
  std::uint64_t configured = 0;    // the tag's setting; 0: idd chooses
  std::uint64_t lanes = 1;         // >= 1
  std::uint64_t max_prefetch = 0;  // the most ids that the host may hold
  double rate_per_s = 0;           // of the tag on this host
};

// Lanes never hold more than half of what the host may hold. Within that, idd chooses a power of
// two that lasts a lane for a millisecond if all lanes are used alike: then the slots' cursors,
// which all CPUs share, are touched a thousand times a second by each.
[[nodiscard]] constexpr std::uint64_t LaneBlockOf(const LaneBlockFacts& facts) noexcept {
  const std::uint64_t most =
      std::clamp<std::uint64_t>(facts.max_prefetch / 2 / facts.lanes, 1, shm::kMaxLaneBlock);
  if (facts.configured != 0) return std::min(facts.configured, most);
  const double lasts_1_ms = facts.rate_per_s / 1'000 / static_cast<double>(facts.lanes);
  const auto wanted = lasts_1_ms < static_cast<double>(shm::kMaxLaneBlock)
                          ? std::bit_ceil(static_cast<std::uint64_t>(std::max(lasts_1_ms, 1.0)))
                          : shm::kMaxLaneBlock;
  return std::min(std::clamp(wanted, kUsualLaneBlock, shm::kMaxLaneBlock), most);
}

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_LANE_BLOCK_H_
