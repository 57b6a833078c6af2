// SPDX-License-Identifier: Apache-2.0
#include "refill/usage_meter.h"

#include <algorithm>
#include <chrono>

namespace idd::daemon {
namespace {

constexpr double kRateWeight = 0.3;
// Below this many ids a second a tag is idle.
constexpr double kLeastRate = 0.01;

}  // namespace

void UsageMeter::Observe(MonotonicTime now, std::uint64_t claimed) {
  const double seconds = std::chrono::duration<double>(now - at_).count();
  if (at_ != MonotonicTime{} && seconds > 0) {
    const std::uint64_t more = claimed - std::min(claimed, claimed_);
    rate_per_s_ += kRateWeight * (static_cast<double>(more) / seconds - rate_per_s_);
  }
  claimed_ = claimed;
  at_ = now;
}

bool UsageMeter::IsIdleAt(std::uint64_t claimed) const noexcept {
  return claimed == claimed_ && rate_per_s_ < kLeastRate;
}

std::optional<double> UsageMeter::DaysFor(double ids) const noexcept {
  if (rate_per_s_ < kLeastRate) return std::nullopt;
  return ids / rate_per_s_ / kSecondsPerDay;
}

}  // namespace idd::daemon
