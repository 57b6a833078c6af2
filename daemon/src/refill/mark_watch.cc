// SPDX-License-Identifier: Apache-2.0
#include "refill/mark_watch.h"

#include <algorithm>
#include <cmath>

namespace idd::daemon {
namespace {

using Seconds = std::chrono::duration<double>;

// The rate is that of about this time.
constexpr Seconds kRateMemory(0.02);
// Two looks closer together show no rate.
constexpr Seconds kShortestRate(100e-6);
// The next look is at this part of the way to the mark.
constexpr double kPartOfWay = 0.75;
constexpr double kMostExpected = 1e15;

// Looks at about the same time share one wake-up of the daemon.
MonotonicTime OnGrid(MonotonicTime time) {
  return std::chrono::ceil<std::chrono::milliseconds>(time);
}

}  // namespace

MarkWatch::Plan MarkWatch::Look(MonotonicTime now, std::uint64_t claimed,
                                std::optional<std::uint64_t> to_mark) noexcept {
  if (!has_looked_ || claimed < claimed_) {  // a forged cursor may go back
    has_looked_ = true;
    looked_at_ = now;
    claimed_ = claimed;
    per_s_ = 0;
    return {};
  }
  if (per_s_ == 0) began_at_ = looked_at_;
  const Seconds passed = now - looked_at_;
  if (passed >= kShortestRate) {
    const double rate = static_cast<double>(claimed - claimed_) / passed.count();
    const double fade = std::exp(-passed.count() / kRateMemory.count());
    per_s_ = rate * (1 - fade) + per_s_ * fade;
    looked_at_ = now;
    claimed_ = claimed;
  }
  if (per_s_ < 1) per_s_ = 0;
  if (!to_mark.has_value() || !IsLoad(now)) return {};
  if (*to_mark <= Expected(now)) return {.is_due = true, .next_look = {}};
  const Seconds left(static_cast<double>(*to_mark) / per_s_);
  if (left > kHorizon) return {};
  const auto pause = std::max<std::chrono::nanoseconds>(
      kShortestPause, std::chrono::duration_cast<std::chrono::nanoseconds>(left * kPartOfWay));
  return {.is_due = false, .next_look = OnGrid(now + pause)};
}

// A single burst is no load.
bool MarkWatch::IsLoad(MonotonicTime now) const noexcept {
  return per_s_ > 0 && now - began_at_ >= kRateMemory;
}

std::uint64_t MarkWatch::Expected(MonotonicTime now) const noexcept {
  if (!IsLoad(now) || now - looked_at_ > kRateMemory) return 0;
  const double ids = per_s_ * Seconds(kAhead).count();
  return static_cast<std::uint64_t>(std::min(ids, kMostExpected));
}

}  // namespace idd::daemon
