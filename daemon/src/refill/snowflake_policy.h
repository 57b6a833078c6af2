// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_REFILL_SNOWFLAKE_POLICY_H_
#define IDD_DAEMON_REFILL_SNOWFLAKE_POLICY_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "idd/shm/abi.h"
#include "refill/refill_policy.h"

namespace idd::daemon {

// How far ahead of the clock the time of a snowflake tag is leased: the outage tolerance, and some
// seconds at least, so that the poll of each second renews it in time.
[[nodiscard]] inline std::chrono::milliseconds WindowLength(
    const RefillSettings& settings) noexcept {
  constexpr std::chrono::milliseconds kShortest(4000);
  return std::max(std::chrono::milliseconds(settings.outage_tolerance), kShortest);
}

// The policy of a snowflake tag, which leases time: while the tag is used, time is held as far
// ahead as WindowLength() says, and renewed when a quarter of it is over.
class SnowflakePolicy : public RefillPolicy {
 public:
  explicit SnowflakePolicy(const RefillSettings& settings) : length_(WindowLength(settings)) {}

  void Configure(const RefillSettings& settings) override { length_ = WindowLength(settings); }
  void Observe(const RefillView& /*view*/) override {}
  void OnLeased(const RefillView& /*view*/, std::uint64_t /*ids*/,
                std::chrono::nanoseconds /*took*/) override {}
  // 1: the next window; its length follows from the clock at the moment when it is leased.
  [[nodiscard]] std::uint64_t Wanted(const RefillView& view) const override {
    const bool is_wanted = view.time.is_used || view.time.is_new || view.waiting != 0;
    if (is_wanted && view.time.held <= length_ - length_ / 4) return 1;
    // A clock that was ahead for a moment has passed over a window. Who waits learns how long.
    return view.waiting != 0 && view.time.is_dry ? 1 : 0;
  }
  [[nodiscard]] double RatePerSecond() const override { return 0; }
  [[nodiscard]] std::uint64_t MarkOf(shm::IdRange /*ids*/,
                                     const RefillView& /*view*/) const override {
    return shm::kNoMark;
  }

 private:
  std::chrono::milliseconds length_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_SNOWFLAKE_POLICY_H_
