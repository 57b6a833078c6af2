// SPDX-License-Identifier: Apache-2.0
//
// The daemon's numbers of a tag in its table (RingStats of abi.h): the daemon writes them, and
// observers read them at the same time. The labels (T1, O1, ...) are those of the protocol table in
// abi.h.
#ifndef IDD_SHM_RING_STATS_H_
#define IDD_SHM_RING_STATS_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "idd/shm/abi.h"

namespace idd::shm {

// RingStats as a value, field for field.
struct TagNumbers {
  std::uint64_t written_at_ns = 0;
  std::uint64_t claimed_before = 0;
  std::uint64_t counted_from = 0;
  std::uint64_t leases = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t step = 0;
  std::uint64_t outage_tolerance_s = 0;
  std::uint64_t max_prefetch = 0;
  std::uint64_t reckoned_per_1000_s = 0;
  std::uint64_t quarantined_until_ns = 0;
  std::uint64_t promised_ids = 0;
  TagCondition condition = TagCondition::kServed;

  friend bool operator==(const TagNumbers&, const TagNumbers&) = default;
};

// Whether a tag keeps its promise now. All lists, documents, metrics and reports ask this.
[[nodiscard]] constexpr bool IsPromiseKept(std::uint64_t available,
                                           std::uint64_t promised_ids) noexcept {
  return available >= promised_ids;
}

// The present length of the promise: how long the promised ids last at `per_s`, at most the
// tolerance. Precondition: the rate is not 0.
[[nodiscard]] constexpr double PromiseSeconds(std::uint64_t promised_ids, double tolerance_s,
                                              double per_s) noexcept {
  return std::min(static_cast<double>(promised_ids) / per_s, tolerance_s);
}

// Daemon only, one thread.
void PublishStats(RingStats& stats, const TagNumbers& numbers) noexcept;

// Makes one try. Returns nothing while the daemon writes the numbers, or if it never has (ABI 1.0
// and 1.1).
[[nodiscard]] std::optional<TagNumbers> ReadNumbers(const RingStats& stats) noexcept;

}  // namespace idd::shm

#endif  // IDD_SHM_RING_STATS_H_
