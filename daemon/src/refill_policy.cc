// SPDX-License-Identifier: Apache-2.0
#include "refill_policy.h"

namespace idd::daemon {
namespace {

constexpr std::uint64_t kMarkDivisor = 10;
constexpr std::uint64_t kSegmentsAhead = 1;

}  // namespace

std::uint64_t RefillPolicy::MarkOf(shm::IdRange ids) noexcept {
  // Divided, not multiplied: `step * 20 / 100` overflows.
  return ids.first + ids.size() / kMarkDivisor;
}

bool RefillPolicy::WantsSegment(const RingLevel& level) noexcept {
  if (level.open_segments == 0) return true;
  if (level.open_segments > kSegmentsAhead) return false;
  // The mark itself has been claimed.
  return level.current_claimed > level.current_size / kMarkDivisor;
}

}  // namespace idd::daemon
