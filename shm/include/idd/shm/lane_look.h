// SPDX-License-Identifier: Apache-2.0
//
// What a process that does not claim sees in a lane.
#ifndef IDD_SHM_LANE_LOOK_H_
#define IDD_SHM_LANE_LOOK_H_

#include <cstdint>
#include <optional>
#include <span>

#include "idd/shm/abi.h"
#include "idd/shm/ring_protocol.h"

namespace idd::shm {

// A lane's words, all of one moment. They are input: a hostile client can have written them.
struct LaneLook {
  std::uint64_t next = 0;
  std::uint64_t limit = 0;
  std::uint64_t segment = 0;

  // The ids that the lane has left.
  [[nodiscard]] constexpr IdRange left() const noexcept {
    return {next, next < limit ? limit : next};
  }
};

// Nothing: the words changed under every look.
[[nodiscard]] std::optional<LaneLook> LookAtLane(const Lane& lane) noexcept;

// Sums over the lanes of a ring.
struct LaneSums {
  std::uint64_t left = 0;     // ids that lanes have; a lane that shows nonsense counts as empty
  std::uint64_t dropped = 0;  // ids that claimers gave up, as they say
};
[[nodiscard]] LaneSums SumOfLanes(std::span<const Lane> lanes) noexcept;

}  // namespace idd::shm

#endif  // IDD_SHM_LANE_LOOK_H_
