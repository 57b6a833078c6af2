// SPDX-License-Identifier: Apache-2.0
#include "tags/tag_time.h"

#include <algorithm>
#include <chrono>

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// A tag of which no id was claimed for this long is not in use.
constexpr std::chrono::seconds kIdleAfter(2);
// How often the ring is moved at least, however long the unit is.
constexpr milliseconds kLongestTick(100);
// A cursor that is further than this ahead of everything that claims may have is not believed.
constexpr milliseconds kImplausible(10'000);
// How long a claim waits at most before it looks at the clock again, which may be set.
constexpr milliseconds kLongestWait(1000);

}  // namespace

shm::TimeBounds TagTime::Bounds() const { return layout_->BoundsAt(WallClock::now_ms()); }

void TagTime::Inherit(const std::vector<LeaseUse>& leases) {
  for (const LeaseUse& use : leases) {
    if (use.claimed == 0) continue;
    const std::uint64_t next = use.lease.ids.first + use.claimed;
    highest_ = std::max(highest_, layout_->RoundUp(next));
  }
}

// Claims that are under way at the frontier may each pass it by as many ids as they ask for. Also
// while idd does not run, claimers follow the clock; it may be set back before idd sees it again.
bool TagTime::IsPlausible() {
  const MonotonicTime now = MonotonicClock::now();
  if (looked_at_ != MonotonicTime{}) {
    const auto units = std::chrono::duration_cast<milliseconds>(now - looked_at_).count() /
                       static_cast<std::int64_t>(layout_->unit_ms);
    highest_ += layout_->FirstOf(static_cast<std::uint64_t>(units));
    looked_at_ += milliseconds(units * layout_->unit_ms);
  } else {
    looked_at_ = now;
  }
  highest_ = std::max(highest_, Bounds().frontier);
  const auto slack = static_cast<std::uint64_t>(kImplausible.count()) / layout_->unit_ms + 1;
  return ids_.ReachedTo() <= highest_ + layout_->FirstOf(slack);
}

bool TagTime::IsUsed() const {
  return used_at_ != MonotonicTime{} && MonotonicClock::now() - used_at_ < kIdleAfter;
}

void TagTime::NoteUse() {
  const std::uint64_t claimed = ids_.Claimed();
  if (claimed != seen_) used_at_ = MonotonicClock::now();
  seen_ = claimed;
}

// What is passed over here is not a use.
void TagTime::Move() {
  ids_.ring()->MoveWithTime(Bounds());
  seen_ = ids_.Claimed();
}

shm::IdRange TagTime::Claim(std::uint64_t count) {
  const TimedClaim claim = ids_.ring()->ClaimAt(Bounds(), count);
  early_ = claim.early;
  if (!claim.early.has_value()) return claim.ids;
  const std::uint64_t time = *claim.early >> layout_->sequence_bits;
  const std::int64_t due = layout_->UnixMsOf(time - std::min(time, layout_->max_ahead_units()));
  const milliseconds wait(
      std::clamp<std::int64_t>(due - WallClock::now_ms(), 1, kLongestWait.count()));
  wake_.After(wait, on_time_);
  return {};
}

void TagTime::Use() {
  used_at_ = MonotonicClock::now();
  if (!ids_.HasOpenRing()) return;
  Move();
  if (IsMovedByDaemon()) Tick();
}

// Claimers that read no clock get the present time while the tag is used. When it no longer is,
// they are sent to idd, which moves the ring first.
void TagTime::Tick() {
  if (!is_on() || !IsMovedByDaemon() || !ids_.HasOpenRing()) return;
  NoteUse();
  if (!IsUsed()) {
    ids_.ring()->StopTime();
    return;
  }
  Move();
  tick_.After(std::min(milliseconds(layout_->unit_ms), kLongestTick), [this] { Tick(); });
}

void TagTime::Poll() {
  if (!ids_.HasOpenRing()) return;
  NoteUse();
  // A window that is over has no id left, although no claim may have passed over it.
  if (!ids_.IsDry() && ids_.ring()->floor() <= Bounds().now) Move();
}

void TagTime::Stop() {
  tick_.Cancel();
  wake_.Cancel();
}

TimeView TagTime::View() const {
  const std::uint64_t floor = ids_.ring() == nullptr ? 0 : ids_.ring()->floor();
  const auto now = static_cast<std::int64_t>(Bounds().now >> layout_->sequence_bits);
  const std::int64_t units = static_cast<std::int64_t>(floor >> layout_->sequence_bits) - now;
  // A window is at most some weeks long; what a clock that was set back shows is cut.
  constexpr std::int64_t kMost = 1'000'000'000'000;
  const std::int64_t held = std::clamp(units, -kMost, kMost) * layout_->unit_ms;
  return {.held = milliseconds(held),
          .is_new = ids_.Claimed() == 0 && ids_.IsDry(),
          .is_used = IsUsed(),
          .is_dry = ids_.IsDry()};
}

std::string TagTime::LookAhead() const {
  const std::optional<std::uint64_t> next =
      ids_.HasOpenRing() ? ids_.ring()->NextNumber() : std::nullopt;
  return next.value_or(0) < Bounds().frontier ? "" : ReasonFor(next);
}

std::string TagTime::ReasonFor(const std::optional<std::uint64_t>& early) const {
  if (!early.has_value()) return "";
  const shm::TimeBounds bounds = Bounds();
  const std::uint64_t time = *early >> layout_->sequence_bits;
  const std::uint64_t now = bounds.now >> layout_->sequence_bits;
  const std::string ahead = std::to_string((time - std::min(time, now)) * layout_->unit_ms) + " ms";
  return "its next id's time is " + ahead + " ahead of this host's clock, and may be " +
         std::to_string(layout_->max_ahead_ms) +
         " ms ahead: the clock was set back, or more than " +
         std::to_string(layout_->ids_per_unit()) + " ids in " + std::to_string(layout_->unit_ms) +
         " ms were claimed, the ceiling of this layout; a layout with more sequence bits, or mode "
         "segment, has a higher one";
}

double TagTime::DaysLeft() const {
  constexpr double kMsPerDay = 86'400'000;
  return static_cast<double>(layout_->end_ms() - WallClock::now_ms()) / kMsPerDay;
}

}  // namespace idd::daemon
