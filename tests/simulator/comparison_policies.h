// SPDX-License-Identifier: Apache-2.0
//
// The refill rules of other systems as policies, for comparison. Leaf's rule is the daemon's own
// leaf_policy.h.
#ifndef IDD_TESTS_SIMULATOR_COMPARISON_POLICIES_H_
#define IDD_TESTS_SIMULATOR_COMPARISON_POLICIES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "refill/refill_policy.h"

namespace idd::simulator {

// tinyid: two segments of a fixed step, the second one loaded when a fifth of the first is used.
class TinyidPolicy : public daemon::RefillPolicy {
 public:
  explicit TinyidPolicy(const daemon::RefillSettings& settings) : step_(settings.step) {}

  void Configure(const daemon::RefillSettings& settings) override { step_ = settings.step; }
  void Observe(const daemon::RefillView& /*view*/) override {}
  void OnLeased(const daemon::RefillView& /*view*/, std::uint64_t /*ids*/,
                std::chrono::nanoseconds /*took*/) override {}
  [[nodiscard]] std::uint64_t Wanted(const daemon::RefillView& view) const override {
    const bool is_due =
        view.open_segments == 0 || (view.open_segments == 1 && view.available < step_ - step_ / 5);
    return is_due ? step_ : 0;
  }
  [[nodiscard]] std::uint64_t MarkOf(shm::IdRange ids,
                                     const daemon::RefillView& /*view*/) const override {
    return ids.first + ids.size() / 5;
  }
  [[nodiscard]] double RatePerSecond() const override { return 0; }

 private:
  std::uint64_t step_;
};

// CosId's SegmentChainId: a job runs once a second and keeps the chain `safe distance` (2) steps
// long. A claim that finds the chain empty leases that much itself and makes the job hungry. A
// hungry job runs at once, doubles its distance and appends that many steps; five seconds without
// hunger halve the distance.
class CosidPolicy : public daemon::RefillPolicy {
 public:
  explicit CosidPolicy(const daemon::RefillSettings& settings) : step_(settings.step) {}

  void Configure(const daemon::RefillSettings& settings) override { step_ = settings.step; }
  void Observe(const daemon::RefillView& view) override {
    if (view.available == 0 && view.waiting != 0) {
      hungry_at_ = view.now;
      was_hungry_ = true;
      runs_ = true;
      return;
    }
    if (view.now - ran_at_ >= kPeriod) runs_ = true;
    if (!runs_) return;
    ran_at_ = view.now;
    is_hungry_ = was_hungry_ && view.now - hungry_at_ < kHunger;
    distance_ =
        is_hungry_ ? std::min(distance_ * 2, kMaxDistance) : std::max(distance_ / 2, kSafeDistance);
  }
  void OnLeased(const daemon::RefillView& view, std::uint64_t /*ids*/,
                std::chrono::nanoseconds /*took*/) override {
    // The claim leased these itself; the lease of the job that it woke comes next.
    if (hungry_at_ != MonotonicTime{} && view.now - hungry_at_ < kPeriod && !appended_) {
      appended_ = true;
      Observe(view);
      return;
    }
    appended_ = false;
    runs_ = false;
  }
  [[nodiscard]] std::uint64_t Wanted(const daemon::RefillView& view) const override {
    if (view.available == 0) return kSafeDistance * step_;
    if (!runs_) return 0;
    if (is_hungry_) return distance_ * step_;
    const std::uint64_t steps = (view.available + step_ - 1) / step_;
    return steps < kSafeDistance ? (kSafeDistance - steps) * step_ : 0;
  }
  [[nodiscard]] std::uint64_t MarkOf(shm::IdRange ids,
                                     const daemon::RefillView& /*view*/) const override {
    return ids.limit - 1;  // marks have no effect
  }
  [[nodiscard]] double RatePerSecond() const override { return 0; }

 private:
  static constexpr std::uint64_t kSafeDistance = 2;
  static constexpr std::uint64_t kMaxDistance = 100'000'000;
  static constexpr std::chrono::seconds kPeriod{1};
  static constexpr std::chrono::seconds kHunger{5};

  std::uint64_t step_;
  std::uint64_t distance_ = kSafeDistance;
  MonotonicTime ran_at_{};
  MonotonicTime hungry_at_{};
  bool was_hungry_ = false;
  bool is_hungry_ = false;
  bool runs_ = false;
  bool appended_ = false;
};

}  // namespace idd::simulator

#endif  // IDD_TESTS_SIMULATOR_COMPARISON_POLICIES_H_
