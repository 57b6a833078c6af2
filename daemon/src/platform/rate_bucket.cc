// SPDX-License-Identifier: Apache-2.0
#include "platform/rate_bucket.h"

#include <algorithm>
#include <chrono>

namespace idd::daemon {
namespace {

// How long `count` units take at that rate.
MonotonicClock::duration Span(std::uint64_t count, std::uint64_t per_s) {
  const std::chrono::duration<double> seconds(static_cast<double>(count) /
                                              static_cast<double>(per_s));
  return std::chrono::duration_cast<MonotonicClock::duration>(seconds);
}

}  // namespace

MonotonicTime RateBucket::ReadyAt(std::uint64_t count, Rate rate, MonotonicTime now) const {
  const MonotonicTime paid = std::max(paid_at_, now);
  const std::uint64_t taken = std::min(count, rate.burst);
  return std::max(now, paid - Span(rate.burst - taken, rate.per_s));
}

void RateBucket::Take(std::uint64_t count, Rate rate, MonotonicTime now,
                      MonotonicClock::duration at_least) {
  paid_at_ = std::max(paid_at_, now) + std::max(Span(count, rate.per_s), at_least);
}

void RateBucket::GiveBack(std::uint64_t count, Rate rate) { paid_at_ -= Span(count, rate.per_s); }

}  // namespace idd::daemon
