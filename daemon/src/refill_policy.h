// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_REFILL_POLICY_H_
#define IDD_DAEMON_REFILL_POLICY_H_

#include <cstdint>

#include "idd/shm/ring_protocol.h"

namespace idd::daemon {

// What the policy sees of a tag's ring: ids only, no clock, no I/O.
struct RingLevel {
  std::uint64_t open_segments = 0;    // published and not exhausted
  std::uint64_t current_claimed = 0;  // ids claimed of the oldest open segment
  std::uint64_t current_size = 0;     // ids of the oldest open segment
};

// Decides when a tag's next segment is leased.
//
// The rule is Leaf's double buffer: while one segment is used a second one is ready, and it is
// fetched when a tenth of the current one is used. Pure: same input, same decision.
class RefillPolicy {
 public:
  // The id whose claimer wakes the daemon: a tenth into the segment.
  [[nodiscard]] static std::uint64_t MarkOf(shm::IdRange ids) noexcept;

  // True when a segment should be leased now.
  [[nodiscard]] static bool WantsSegment(const RingLevel& level) noexcept;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_POLICY_H_
