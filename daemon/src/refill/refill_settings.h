// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_REFILL_REFILL_SETTINGS_H_
#define IDD_DAEMON_REFILL_REFILL_SETTINGS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace idd::daemon {

inline constexpr std::uint64_t kMaxStep = 1'000'000'000'000ULL;
inline constexpr std::uint64_t kDefaultStep = 1000;
inline constexpr std::uint64_t kDefaultMaxPrefetch = 1'000'000'000;
inline constexpr std::chrono::seconds kDefaultOutageTolerance{600};
inline constexpr std::chrono::seconds kMaxOutageTolerance{7 * 24 * 3600};

enum class RefillRule { kPromise, kLeaf };
[[nodiscard]] const char* RefillRuleName(RefillRule rule) noexcept;  // "promise", "leaf"
[[nodiscard]] std::optional<RefillRule> ParseRefillRule(std::string_view name) noexcept;

// The default for a tag without a max_prefetch; at least two of its steps.
[[nodiscard]] constexpr std::uint64_t DefaultMaxPrefetch(std::uint64_t step) noexcept {
  return step > kDefaultMaxPrefetch / 2 ? 2 * step : kDefaultMaxPrefetch;
}

// A tag's promise: without the allocator, claims continue for `outage_tolerance` at the measured
// rate. The host never holds more than `max_prefetch` ids of the tag.
struct RefillSettings {
  RefillRule rule = RefillRule::kPromise;
  std::uint64_t step = kDefaultStep;                 // least ids of a lease, 1 to kMaxStep
  std::uint64_t max_step = kMaxStep;                 // most ids of a lease, at least step
  std::uint64_t max_prefetch = kDefaultMaxPrefetch;  // at least two steps
  std::chrono::seconds outage_tolerance = kDefaultOutageTolerance;

  friend bool operator==(const RefillSettings&, const RefillSettings&) = default;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_REFILL_SETTINGS_H_
