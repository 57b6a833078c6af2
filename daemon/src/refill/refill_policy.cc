// SPDX-License-Identifier: Apache-2.0
#include "refill/refill_policy.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "refill/leaf_policy.h"
#include "refill/promise_policy.h"

namespace idd::daemon {
namespace {

// Like MostHeld(), without max_prefetch.
std::uint64_t TwiceEarned(const RefillSettings& settings, std::uint64_t earned) noexcept {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max() / 2;
  return 2 * std::min(std::max(settings.step, earned), kMax);
}

}  // namespace

std::uint64_t MostHeld(const RefillSettings& settings, std::uint64_t earned) noexcept {
  return std::min(TwiceEarned(settings, earned), settings.max_prefetch);
}

// This must be more than half of twice the earned ids, or the promise would be shorter than the
// load has lasted. The extra eighth is for claims that ClaimHistory cannot see, and for a growing
// load.
std::uint64_t MostHeldBeforeLease(const RefillSettings& settings, std::uint64_t earned) noexcept {
  const std::uint64_t most = MostHeld(settings, earned);
  const std::uint64_t twice = TwiceEarned(settings, earned);
  const std::uint64_t of_earned = twice - twice / 8 * 3;
  const std::uint64_t of_prefetch = settings.max_prefetch - settings.max_prefetch / 4;
  return std::min({of_earned, of_prefetch, most - std::min(settings.step, most / 2)});
}

// Without the limit of max_prefetch, at most MostHeldBeforeLease(): part of those ids is for the
// time until a lease comes.
std::uint64_t PromisedIds(const RefillSettings& settings, std::uint64_t earned,
                          double planning_rate_per_s) noexcept {
  const double tolerance_s = std::chrono::duration<double>(settings.outage_tolerance).count();
  const double of_earned = static_cast<double>(earned) * 9 / 8;
  const auto before_lease = static_cast<double>(TwiceEarned(settings, earned) - settings.step);
  const double ids = std::min({planning_rate_per_s * tolerance_s, of_earned, before_lease});
  return static_cast<std::uint64_t>(std::ceil(std::min(ids, 9e18)));
}

std::unique_ptr<RefillPolicy> MakeRefillPolicy(const RefillSettings& settings) {
  if (settings.rule == RefillRule::kLeaf) return std::make_unique<LeafPolicy>(settings);
  return std::make_unique<PromisePolicy>(settings);
}

}  // namespace idd::daemon
