// SPDX-License-Identifier: Apache-2.0
#include "simulator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "refill/claim_history.h"

namespace idd::simulator {
namespace {

using daemon::RefillPolicy;
using daemon::RefillSettings;
using daemon::RefillView;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kPollS = 1;
constexpr std::size_t kSlots = 15;  // one of the ring's is being recycled

MonotonicTime At(double seconds) {
  // Offset from the clock's origin, which means "never" to some classes.
  return MonotonicTime{} + std::chrono::hours(1) +
         std::chrono::duration_cast<MonotonicClock::duration>(
             std::chrono::duration<double>(seconds));
}

// The claims in the busiest window, from the claims themselves. They form a piecewise linear curve,
// so the steepest window begins or ends at one of its points.
class BusiestWindow {
 public:
  explicit BusiestWindow(double window_s) : window_s_(window_s) { points_.push_back({0, 0}); }

  // Claims were even since the last point, or made at once if no time has passed.
  void Add(double at, double claimed) {
    while (next_begin_ < points_.size() && points_[next_begin_].at + window_s_ <= at) {
      const Point& begin = points_[next_begin_++];
      const Point& last = points_.back();
      const double part = at > last.at ? (begin.at + window_s_ - last.at) / (at - last.at) : 1;
      most_ = std::max(most_, last.claimed + (claimed - last.claimed) * part - begin.claimed);
    }
    points_.push_back({at, claimed});
    most_ = std::max(most_, claimed - ClaimedAt(at - window_s_));
  }
  [[nodiscard]] double most() const { return most_; }

 private:
  struct Point {
    double at;
    double claimed;
  };

  // The value before the claims that were made at once at that time. `at` must not decrease.
  double ClaimedAt(double at) {
    while (points_[before_ + 1].at < at) ++before_;
    const Point& from = points_[before_];
    const Point& to = points_[before_ + 1];
    if (at <= from.at || to.at <= from.at) return from.claimed;
    return from.claimed + (to.claimed - from.claimed) * (at - from.at) / (to.at - from.at);
  }

  const double window_s_;
  std::vector<Point> points_;
  std::size_t next_begin_ = 0;
  std::size_t before_ = 0;
  double most_ = 0;
};

class Host {
 public:
  Host(const Trace& trace, const RefillSettings& settings, const MakePolicy& make_policy,
       const StoreModel& store)
      : trace_(trace),
        store_(store),
        two_steps_(2 * static_cast<double>(settings.step)),
        policy_(make_policy(settings)),
        busiest_(std::chrono::duration<double>(settings.outage_tolerance).count()) {
    history_.SetWindow(settings.outage_tolerance);
    Publish(static_cast<double>(settings.step));
    policy_->Observe(NoteView());
  }

  Result Run() {
    while (now_ < trace_.end_s) {
      const double next = NextEvent();
      Flow(next - now_);
      now_ = next;
      busiest_.Add(now_, claimed_);
      Handle();
    }
    result_.held_mean /= trace_.end_s;
    result_.wasted = available_;
    return result_;
  }

 private:
  struct Segment {
    double left = 0;
    double size = 0;
    double mark_left = -1;  // what is left when the mark is claimed; negative afterwards
  };

  [[nodiscard]] double Rate() const { return trace_.pieces[piece_].ids_per_s; }
  [[nodiscard]] bool IsDown(double at) const {
    return at >= store_.outage.begin_s && at < store_.outage.end_s;
  }

  [[nodiscard]] RefillView View() const {
    return {.now = At(now_),
            .claimed = static_cast<std::uint64_t>(claimed_),
            .available = static_cast<std::uint64_t>(available_),
            .open_segments = ring_.size(),
            .newest_size = ring_.empty() ? 0 : static_cast<std::uint64_t>(ring_.back().size),
            .waiting = static_cast<std::uint64_t>(std::ceil(waiting_)),
            .earned = history_.Most(At(now_))};
  }
  [[nodiscard]] RefillView NoteView() {
    history_.Observe(At(now_), At(now_), static_cast<std::uint64_t>(claimed_));
    return View();
  }

  [[nodiscard]] double NextEvent() const {
    double next = std::min({next_poll_, lease_done_, retry_at_, look_at_, trace_.end_s});
    if (piece_ + 1 < trace_.pieces.size()) next = std::min(next, trace_.pieces[piece_ + 1].begin_s);
    const double rate = Rate();
    if (rate > 0 && !ring_.empty()) {
      const Segment& current = ring_.front();
      next = std::min(next, now_ + current.left / rate);
      if (current.mark_left >= 0) {
        next = std::min(next, now_ + std::max(current.left - current.mark_left, 0.0) / rate);
      }
    }
    return std::max(next, now_);
  }

  // Claims for `seconds`, without other events.
  void Flow(double seconds) {
    const double ids = Rate() * seconds;
    result_.claims += ids;
    result_.held_mean += (available_ - std::min(ids, available_) / 2) * seconds;
    if (ring_.empty()) {
      waiting_ += ids;
      result_.dry_claims += ids;
      if (ids > 0) result_.dry_s += seconds;
      if (IsDown(now_)) result_.outage_dry_claims += ids;
      return;
    }
    Segment& current = ring_.front();
    const double taken = std::min(ids, current.left);
    current.left -= taken;
    claimed_ += taken;
    available_ -= taken;
  }

  void Handle() {
    while (piece_ + 1 < trace_.pieces.size() && trace_.pieces[piece_ + 1].begin_s <= now_) {
      ++piece_;
      // A claim that finds the ring dry notifies the daemon, whatever it knew before.
      if (ring_.empty() && Rate() > 0) look_at_ = std::min(look_at_, now_ + store_.notice_s);
    }
    if (!ring_.empty()) PassMarkAndEnd();
    if (lease_done_ <= now_) FinishLease();
    const bool looks = look_at_ <= now_ || next_poll_ <= now_ || retry_at_ <= now_;
    if (look_at_ <= now_) look_at_ = kNever;
    if (retry_at_ <= now_) retry_at_ = kNever;
    if (next_poll_ <= now_) next_poll_ += kPollS;
    if (looks) Look();
  }

  void PassMarkAndEnd() {
    constexpr double kRounding = 1e-6;
    Segment& current = ring_.front();
    if (current.mark_left >= 0 && current.left <= current.mark_left + kRounding) {
      current.mark_left = -1;
      look_at_ = std::min(look_at_, now_ + store_.notice_s);
    }
    if (current.left > kRounding) return;
    claimed_ += current.left;
    available_ = std::max(available_ - current.left, 0.0);
    ring_.pop_front();
    if (!ring_.empty()) return;
    available_ = 0;
    dry_since_ = now_;
    if (Rate() > 0) look_at_ = std::min(look_at_, now_ + store_.notice_s);
  }

  void Look() {
    policy_->Observe(NoteView());
    MaybeLease();
  }

  void MaybeLease() {
    if (lease_done_ != kNever || retry_at_ != kNever || ring_.size() >= kSlots) return;
    const std::uint64_t wanted = policy_->Wanted(View());
    if (wanted == 0) return;
    if (IsDown(now_)) {
      retry_at_ = now_ + store_.retry_s;
      return;
    }
    if (store_.outage.end_s > 0 && now_ >= store_.outage.end_s && now_ < store_.outage.end_s + 1) {
      ++result_.leases_after_outage;
    }
    leasing_ = static_cast<double>(wanted);
    lease_done_ = now_ + store_.lease_s;
  }

  void FinishLease() {
    lease_done_ = kNever;
    if (IsDown(now_)) {
      retry_at_ = now_ + store_.retry_s;
      return;
    }
    ++result_.leases;
    const double served = std::min(waiting_, leasing_);
    waiting_ -= served;
    claimed_ += served;
    busiest_.Add(now_, claimed_);
    if (ring_.empty()) result_.longest_dry_s = std::max(result_.longest_dry_s, now_ - dry_since_);
    policy_->OnLeased(NoteView(), static_cast<std::uint64_t>(leasing_),
                      std::chrono::nanoseconds(static_cast<std::int64_t>(store_.lease_s * 1e9)));
    if (leasing_ > served) {
      Publish(leasing_ - served);
    }
    const double most = std::max(two_steps_, 2 * busiest_.most());
    result_.over_rule = std::max(result_.over_rule, available_ - most);
    if (waiting_ < 1e-6) waiting_ = 0;
    Look();
  }

  void Publish(double ids) {
    const auto size = static_cast<std::uint64_t>(std::max(ids, 1.0));
    const std::uint64_t mark = policy_->MarkOf({0, size}, View());
    ring_.push_back({.left = ids, .size = ids, .mark_left = ids - static_cast<double>(mark) - 1});
    available_ += ids;
    result_.held_max = std::max(result_.held_max, available_);
  }

  const Trace& trace_;
  const StoreModel store_;
  const double two_steps_;
  std::unique_ptr<RefillPolicy> policy_;
  daemon::ClaimHistory history_;
  BusiestWindow busiest_;
  Result result_;
  std::deque<Segment> ring_;
  std::size_t piece_ = 0;
  double now_ = 0;
  double claimed_ = 0;
  double available_ = 0;
  double waiting_ = 0;
  double leasing_ = 0;
  double dry_since_ = 0;
  double next_poll_ = kPollS;
  double lease_done_ = kNever;
  double retry_at_ = kNever;
  double look_at_ = 0;
};

}  // namespace

void Result::Add(const Result& other) {
  claims += other.claims;
  dry_claims += other.dry_claims;
  dry_s += other.dry_s;
  longest_dry_s = std::max(longest_dry_s, other.longest_dry_s);
  outage_dry_claims += other.outage_dry_claims;
  leases += other.leases;
  held_mean += other.held_mean;
  held_max += other.held_max;
  wasted += other.wasted;
  leases_after_outage += other.leases_after_outage;
  over_rule = std::max(over_rule, other.over_rule);
}

Result Simulate(const Trace& trace, const RefillSettings& settings, const MakePolicy& make_policy,
                const StoreModel& store) {
  return Host(trace, settings, make_policy, store).Run();
}

}  // namespace idd::simulator
