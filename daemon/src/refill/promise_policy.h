// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_REFILL_PROMISE_POLICY_H_
#define IDD_DAEMON_REFILL_PROMISE_POLICY_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "refill/refill_policy.h"

namespace idd::daemon {

// idd's own rule. Two rates are measured:
//
//   sustained  ids of the busiest second, fading over the outage tolerance: at this rate the ring
//              must last for the tolerance;
//   burst      ids a second between two looks, fading over ten seconds: at this rate the ring must
//              last while the next lease is on its way.
//
// A lease is due when less is left than both rates need, and at the latest when a tenth of a step
// is used. It has a step at least and fills the ring up to half as much again as they need, but
// never above MostHeld(). So when a load begins, or rises a thousandfold, the held ids grow at most
// twice as fast as it claims, until they cover the tolerance. When a load falls, the ids in the
// ring are used up before more are leased. A tag without traffic leases nothing.
class PromisePolicy : public RefillPolicy {
 public:
  explicit PromisePolicy(const RefillSettings& settings) : settings_(settings) {}

  void Configure(const RefillSettings& settings) override { settings_ = settings; }
  void Observe(const RefillView& view) override;
  void OnLeased(const RefillView& view, std::uint64_t ids, std::chrono::nanoseconds took) override;
  [[nodiscard]] std::uint64_t Wanted(const RefillView& view) const override;
  [[nodiscard]] std::uint64_t MarkOf(shm::IdRange ids, const RefillView& view) const override;
  [[nodiscard]] double RatePerSecond() const override { return sustained_; }

 private:
  [[nodiscard]] double Reserve() const;
  [[nodiscard]] std::uint64_t LowWater(std::uint64_t earned) const;
  [[nodiscard]] std::uint64_t Step() const;

  RefillSettings settings_;
  bool has_looked_ = false;
  MonotonicTime looked_at_{};
  std::uint64_t looked_claimed_ = 0;
  MonotonicTime second_began_{};
  std::uint64_t second_claimed_ = 0;  // when it began
  double sustained_ = 0;              // ids a second
  double burst_ = 0;                  // ids a second
  std::chrono::duration<double> lease_takes_{0.01};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_PROMISE_POLICY_H_
