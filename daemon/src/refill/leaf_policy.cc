// SPDX-License-Identifier: Apache-2.0
#include "refill/leaf_policy.h"

#include <algorithm>

namespace idd::daemon {
namespace {

constexpr std::chrono::minutes kShort(15);
constexpr std::chrono::minutes kLong(30);
// Leaf's largest step, used if the tag has no max_step.
constexpr std::uint64_t kLeafMaxStep = 1'000'000;
constexpr std::chrono::seconds kRateLook(1);

}  // namespace

void LeafPolicy::Configure(const RefillSettings& settings) {
  if (settings.step != settings_.step) step_ = 0;  // the table's step is where it begins
  settings_ = settings;
}

void LeafPolicy::Observe(const RefillView& view) {
  if (!has_looked_ || view.claimed < looked_claimed_) {
    has_looked_ = true;
  } else {
    if (view.now - looked_at_ < kRateLook) return;
    const std::chrono::duration<double> passed = view.now - looked_at_;
    rate_ = static_cast<double>(view.claimed - looked_claimed_) / passed.count();
  }
  looked_at_ = view.now;
  looked_claimed_ = view.claimed;
}

void LeafPolicy::OnLeased(const RefillView& view, std::uint64_t /*ids*/,
                          std::chrono::nanoseconds /*took*/) {
  step_ = NextStep(view.now);
  leased_at_ = view.now;
  Observe(view);
}

std::uint64_t LeafPolicy::NextStep(MonotonicTime now) const {
  const std::uint64_t ceiling =
      std::max(settings_.step, settings_.max_step == kMaxStep ? kLeafMaxStep : settings_.max_step);
  return std::min(DoubledOrHalved(now, ceiling), ceiling);
}

std::uint64_t LeafPolicy::DoubledOrHalved(MonotonicTime now, std::uint64_t ceiling) const {
  if (step_ == 0) return settings_.step;
  const auto lasted = now - leased_at_;
  if (lasted < kShort) return step_ > ceiling / 2 ? step_ : step_ * 2;
  if (lasted < kLong) return step_;
  return std::max(step_ / 2, settings_.step);
}

std::uint64_t LeafPolicy::Wanted(const RefillView& view) const {
  // A lease is due when the second buffer is empty and a tenth of the first is used.
  const std::uint64_t left = view.available - std::min(view.soon, view.available);
  const bool is_due =
      view.open_segments == 0 || (view.open_segments == 1 && left < NineTenthsOf(view.newest_size));
  if (!is_due && view.waiting == 0) return 0;
  if (left > MostHeldNow(view)) return 0;
  const std::uint64_t most = MostHeld(settings_, view.earned);
  return std::min(NextStep(view.now), most - std::min(view.available, most));
}

// The number of held ids at which the next lease is made: it leaves room for the next step, or for
// a good part of it.
std::uint64_t LeafPolicy::MostHeldNow(const RefillView& view) const {
  const std::uint64_t most = MostHeld(settings_, view.earned);
  return std::max(most - std::min(NextStep(view.now), most),
                  MostHeldBeforeLease(settings_, view.earned));
}

// The mark is a tenth into the segment, or later, where there is room for the next segment.
std::uint64_t LeafPolicy::MarkOf(shm::IdRange ids, const RefillView& view) const {
  const std::uint64_t size = ids.size();
  return ids.limit - std::clamp<std::uint64_t>(MostHeldNow(view) + 1, 1, size - TenthOf(size));
}

}  // namespace idd::daemon
