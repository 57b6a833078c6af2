// SPDX-License-Identifier: Apache-2.0
#include "refill/claim_history.h"

namespace idd::daemon {

// A longer window contains the ids of a shorter one. If the new window is shorter, `covering` new
// windows cover an old one, so the busiest of them had at least 1/covering of the old one's ids.
void ClaimHistory::SetWindow(std::chrono::seconds outage_tolerance) noexcept {
  const std::chrono::seconds window = std::max(outage_tolerance, kShortestWindow);
  if (window < window_) {
    const auto covering =
        static_cast<std::uint64_t>((window_ + window - std::chrono::seconds(1)) / window);
    for (std::size_t i = 0; i < peaks_.size(); ++i) peaks_[i].ids /= covering;
  }
  window_ = window;
}

void ClaimHistory::Observe(MonotonicTime before, MonotonicTime after,
                           std::uint64_t claimed) noexcept {
  if (!has_looked_) {
    has_looked_ = true;
    looked_at_ = before;
    claimed_ = claimed;
    BeginBucket(before);
    return;
  }
  const std::uint64_t more = claimed - std::min(claimed, claimed_);
  claimed_ = claimed;
  const MonotonicClock::duration width = MonotonicClock::duration(window_) / kBuckets;
  const MonotonicTime newest = buckets_[buckets_.size() - 1].begin;
  const bool is_over = looked_at_ - newest >= width || before - looked_at_ >= width;
  if (is_over && newest < looked_at_) BeginBucket(looked_at_);
  looked_at_ = std::max(looked_at_, before);
  buckets_[buckets_.size() - 1].ids += more;
  in_window_ += more;
  while (buckets_.size() != 0 && after - buckets_[0].begin > window_) DropOldestBucket();
  if (buckets_.size() == 0) return BeginBucket(looked_at_);
  NotePeak(buckets_[0].begin, in_window_);
}

void ClaimHistory::BeginBucket(MonotonicTime begin) noexcept {
  if (buckets_.full()) DropOldestBucket();
  buckets_.Push({.begin = begin, .ids = 0});
}

void ClaimHistory::DropOldestBucket() noexcept {
  in_window_ -= buckets_[0].ids;
  buckets_.PopOldest();
}

// `begin` is never smaller than the last one. When all peaks are in use, the oldest has expired.
void ClaimHistory::NotePeak(MonotonicTime begin, std::uint64_t ids) noexcept {
  const MonotonicClock::duration apart = MonotonicClock::duration(Horizon()) / kPeaks;
  if (peaks_.size() == 0 || begin - peaks_[peaks_.size() - 1].begin >= apart) {
    peaks_.Push({.begin = begin, .ids = ids});
    return;
  }
  Peak& newest = peaks_[peaks_.size() - 1];
  newest.ids = std::max(newest.ids, ids);
}

std::uint64_t ClaimHistory::Most(MonotonicTime now) const noexcept {
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < peaks_.size(); ++i) {
    if (now - peaks_[i].begin <= Horizon()) most = std::max(most, peaks_[i].ids);
  }
  return most;
}

}  // namespace idd::daemon
