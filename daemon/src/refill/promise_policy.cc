// SPDX-License-Identifier: Apache-2.0
#include "refill/promise_policy.h"

#include <algorithm>
#include <cmath>

namespace idd::daemon {
namespace {

using DoubleSeconds = std::chrono::duration<double>;

// Two looks closer together than this do not show a rate.
constexpr DoubleSeconds kShortestLook(100e-6);
constexpr DoubleSeconds kSecond(1);
constexpr DoubleSeconds kBurstMemory(10);
// The number of leases that the ring must outlast at the burst rate, each as long as the slowest
// recent one. The next lease and the one after it may take that long; the other two are a margin.
constexpr double kLeasesAhead = 4;
// A growing load continues to grow while the store is unavailable.
constexpr double kGrowth = 1.1;
constexpr double kFillUp = 1.5;
constexpr double kLatencyFade = 0.9;

double Fade(DoubleSeconds passed, DoubleSeconds memory) {
  return memory.count() > 0 ? std::exp(-passed.count() / memory.count()) : 0;
}

std::uint64_t Ids(double ids) {
  return ids >= static_cast<double>(kMaxStep) ? kMaxStep : static_cast<std::uint64_t>(ids);
}

}  // namespace

void PromisePolicy::Observe(const RefillView& view) {
  if (!has_looked_ || view.claimed < looked_claimed_) {
    // This is the first look, or a cursor was forged and the count has fallen.
    has_looked_ = true;
    looked_at_ = second_began_ = view.now;
    looked_claimed_ = second_claimed_ = view.claimed;
    return;
  }
  // A tag without claims is not looked at. After a pause, new claims count as the last second's.
  const DoubleSeconds since = view.now - looked_at_;
  if (since > kSecond * 2) {
    second_began_ = view.now - std::chrono::seconds(1);
    second_claimed_ = looked_claimed_;
  }
  const DoubleSeconds passed = std::min(since, kSecond * 2);
  const auto claimed = static_cast<double>(view.claimed - looked_claimed_);
  const double rate = claimed / std::max(passed, kShortestLook).count();
  if (passed < kShortestLook) {
    burst_ = std::max(burst_, rate);
  } else {
    burst_ = std::max(burst_ * Fade(since, kBurstMemory), rate);
    sustained_ *= Fade(since, settings_.outage_tolerance);
    looked_at_ = view.now;
    looked_claimed_ = view.claimed;
  }
  // A second that is not over yet counts with the claims so far.
  const DoubleSeconds second = view.now - second_began_;
  const auto in_second = static_cast<double>(view.claimed - second_claimed_);
  sustained_ = std::max(sustained_, in_second / std::max(second, kSecond).count());
  if (second >= kSecond) {
    second_began_ = view.now;
    second_claimed_ = view.claimed;
  }
}

void PromisePolicy::OnLeased(const RefillView& view, std::uint64_t /*ids*/,
                             std::chrono::nanoseconds took) {
  lease_takes_ = std::max<DoubleSeconds>(took, lease_takes_ * kLatencyFade);
  Observe(view);
}

// How many ids must be in the ring; below that the next lease is due.
double PromisePolicy::Reserve() const {
  const DoubleSeconds tolerance = settings_.outage_tolerance;
  return sustained_ * tolerance.count() * kGrowth + burst_ * lease_takes_.count() * kLeasesAhead;
}

std::uint64_t PromisePolicy::Step() const {
  return std::min(settings_.step, std::max<std::uint64_t>(settings_.max_prefetch / 2, 1));
}

std::uint64_t PromisePolicy::LowWater(std::uint64_t earned) const {
  return std::min(std::max(Ids(Reserve()), NineTenthsOf(Step())),
                  MostHeldBeforeLease(settings_, earned));
}

std::uint64_t PromisePolicy::Wanted(const RefillView& view) const {
  std::uint64_t wanted = view.waiting;
  if (view.available - std::min(view.soon, view.available) < LowWater(view.earned)) {
    const std::uint64_t full = Ids(Reserve() * kFillUp);
    wanted = std::max({wanted, Step(), full - std::min(full, view.available)});
  }
  if (wanted == 0) return 0;
  wanted = std::clamp(wanted, Step(), std::max(settings_.max_step, Step()));
  const std::uint64_t most = MostHeld(settings_, view.earned);
  return std::min(wanted, most - std::min(view.available, most));
}

// The id at which the low-water mark is reached, at the earliest a tenth into the segment.
std::uint64_t PromisePolicy::MarkOf(shm::IdRange ids, const RefillView& view) const {
  const std::uint64_t size = ids.size();
  return ids.limit - std::clamp<std::uint64_t>(LowWater(view.earned), 1, NineTenthsOf(size));
}

}  // namespace idd::daemon
