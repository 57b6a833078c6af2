// SPDX-License-Identifier: Apache-2.0
#include "capacity_tag.h"

#include <algorithm>
#include <cmath>

#include "refill/claim_history.h"

namespace idd::capacity {
namespace {

constexpr double kPollS = 1;
// The delay from the claim of a mark to the daemon's look at the ring.
constexpr double kNoticeS = 100e-6;
// After this many polls, a burst seen in a publication's short looks is forgotten.
constexpr unsigned kSettledPolls = 45;
// The polls simulated before one that may want a lease, and the margin of the low-water mark over
// the highest one seen.
constexpr double kLastPolls = 4;
constexpr double kLowWaterMargin = 1.02;
constexpr double kRounding = 1e-6;  // ids

}  // namespace

void TagModel::Begin(double now) {
  begun_at_ = now;
  next_poll_ = now + kPollS;
  mark_at_ = open_ == 0 ? now + kNoticeS : TimeOf(published_ - newest_size_ * 0.9) + kNoticeS;
  dry_look_at_ = TimeOf(published_) + kNoticeS;
}

void TagModel::BeginRunning(double now, double place) {
  constexpr double kSeen = 3;
  begun_at_ = now - kSeen * kPollS;
  has_run_ = true;
  next_poll_ = now + kPollS;
  const double claimed = Demand(now);
  published_ = std::max(claimed, 1.0) + 1e15;  // more than any policy wants to hold
  for (double back = kSeen; back > 0; --back) Look(now - back * kPollS);
  Look(now);
  double low = 0;
  double lease = static_cast<double>(refill_.step);
  if (refill_.rule == daemon::RefillRule::kPromise) {
    low = LowWater(now);
    published_ = claimed + std::max(low - 1, 0.0);
    lease = static_cast<double>(std::max<std::uint64_t>(Wanted(now), 1));
  }
  published_ = claimed + low + place * lease;
  for (double end = published_; end > claimed && open_ + 1 < kSlots; end -= lease) {
    std::shift_right(ends_.begin(), ends_.end(), 1);
    ends_.front() = end;
    ++open_;
  }
  newest_size_ = lease;
  dry_look_at_ = TimeOf(published_) + kNoticeS;
  // If the segment is used beyond its mark, the next poll notices it.
  const double mark_at = TimeOf(published_ - 0.9 * lease) + kNoticeS;
  if (mark_at > now) mark_at_ = mark_at;
}

double TagModel::Demand(double now) const {
  return now > begun_at_ ? ids_per_s_ * (now - begun_at_) : 0;
}

double TagModel::Claimed(double now) const { return std::min(Demand(now), published_); }

double TagModel::Waiting(double now) const { return std::max(Demand(now) - published_, 0.0); }

double TagModel::TimeOf(double claims) const {
  return ids_per_s_ > 0 ? begun_at_ + claims / ids_per_s_ : kNever;
}

daemon::RefillView TagModel::View(double now) {
  const double claimed = Claimed(now);
  std::size_t used = 0;
  while (used < open_ && ends_[used] <= claimed + kRounding) ++used;
  if (used != 0) {
    std::shift_left(ends_.begin(), ends_.end(), static_cast<std::ptrdiff_t>(used));
    open_ -= used;
  }
  return {.now = At(now - skipped_s_),
          .claimed = static_cast<std::uint64_t>(claimed - skipped_ids_ + kRounding),
          .available = static_cast<std::uint64_t>(published_ - claimed),
          .open_segments = open_,
          .newest_size = open_ == 0 ? 0 : static_cast<std::uint64_t>(newest_size_),
          .waiting = static_cast<std::uint64_t>(std::ceil(Waiting(now))),
          .earned = Earned(now)};
}

bool TagModel::HasEarnedAll(double now) const {
  const std::chrono::duration<double> window = refill_.outage_tolerance;
  return has_run_ || now - begun_at_ >= window.count();
}

// The history misses a sixteenth of a full window.
std::uint64_t TagModel::Earned(double now) const {
  const std::chrono::duration<double> window = refill_.outage_tolerance;
  constexpr double kSeen = 1 - 1.0 / daemon::ClaimHistory::kBuckets;
  const double full = ids_per_s_ * window.count() * kSeen;
  return static_cast<std::uint64_t>(has_run_ ? full : std::min(full, Claimed(now)));
}

double TagModel::LowWater(double now) const {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 52;
  const std::uint64_t mark = policy_->MarkOf({0, kHuge}, {.earned = Earned(now)});
  return static_cast<double>(kHuge - mark);
}

void TagModel::Look(double now) { policy_->Observe(View(now)); }

void TagModel::LookByPoll() {
  Look(next_poll_);
  const double low_water = LowWater(next_poll_);
  next_poll_ += kPollS;
  ++settled_polls_;
  low_water_ = settled_polls_ == kSettledPolls ? low_water : std::max(low_water_, low_water);
}

// At a steady rate a settled policy sees the same every second. So after the skipped seconds its
// view continues where it was before them, in time and in ids.
bool TagModel::Skip(double latest) {
  if (looks_ == Looks::kEverySecond || settled_polls_ < kSettledPolls) return false;
  if (!HasEarnedAll(next_poll_)) return false;  // the low-water mark rises
  const double low = TimeOf(published_ - low_water_ * kLowWaterMargin);
  const double seconds =
      std::floor(std::min({latest, low, TimeOf(published_)}) - next_poll_ - kLastPolls * kPollS);
  if (!(seconds >= 1) || seconds == kNever) return false;
  skipped_ids_ += Claimed(next_poll_ + seconds) - Claimed(next_poll_);
  skipped_s_ += seconds;
  next_poll_ += seconds;
  return true;
}

void TagModel::CatchUp(double now) {
  while (next_poll_ <= now) {
    if (!Skip(now)) LookByPoll();
  }
}

std::uint64_t TagModel::Wanted(double now) {
  if (open_ + 1 >= kSlots) return 0;
  return policy_->Wanted(View(now));
}

double TagModel::NextDue(double until) {
  if (ids_per_s_ <= 0 || begun_at_ == kNever) return kNever;
  while (true) {
    const double at = std::min({next_poll_, mark_at_, dry_look_at_});
    if (at > until) return kNever;
    if (at == next_poll_) {
      if (Skip(std::min(mark_at_, dry_look_at_))) continue;
      LookByPoll();
    } else {
      Look(at);
      (at == mark_at_ ? mark_at_ : dry_look_at_) = kNever;
    }
    if (Wanted(at) != 0) return at;
  }
}

double TagModel::Publish(double now, std::uint64_t ids, double asked_at) {
  CatchUp(now);
  const double waited = std::min(Waiting(now), static_cast<double>(ids));
  daemon::RefillView view = View(now);
  view.claimed += static_cast<std::uint64_t>(waited);
  const std::chrono::duration<double> took(now - asked_at);
  policy_->OnLeased(view, ids, std::chrono::duration_cast<std::chrono::nanoseconds>(took));
  const std::uint64_t mark = policy_->MarkOf({0, ids}, view);
  mark_at_ = TimeOf(published_ + static_cast<double>(mark)) + kNoticeS;
  if (mark_at_ <= now) mark_at_ = kNever;
  newest_size_ = static_cast<double>(ids);
  published_ += newest_size_;
  ends_[open_++] = published_;
  dry_look_at_ = std::max(TimeOf(published_), now) + kNoticeS;
  settled_polls_ = 0;
  return waited;
}

double TagModel::FoundExhausted(std::size_t n) const {
  const double at = TimeOf(ends_[n]);
  if (next_poll_ == kNever || at == kNever) return kNever;
  return next_poll_ + std::ceil((at - next_poll_) / kPollS) * kPollS;
}

}  // namespace idd::capacity
