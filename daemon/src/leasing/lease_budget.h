// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_LEASE_BUDGET_H_
#define IDD_DAEMON_LEASING_LEASE_BUDGET_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "idd/base/clock.h"

namespace idd::daemon {

// So many leases a second, a tenth of them at once: a token bucket. Pure; time is handed in.
class LeaseBudget {
 public:
  explicit LeaseBudget(std::uint32_t per_s) : per_s_(std::max<std::uint32_t>(per_s, 1)) {}

  // Takes one lease out of the budget, if there is one.
  [[nodiscard]] bool Take(MonotonicTime now) {
    Fill(now);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

  // When the next one will be there.
  [[nodiscard]] MonotonicTime NextAt(MonotonicTime now) {
    Fill(now);
    const std::chrono::duration<double> missing(std::max(1 - left_, 0.0) / per_s_);
    // Rounded up, so that whoever waits until then finds it.
    return now + std::chrono::duration_cast<MonotonicClock::duration>(missing) +
           std::chrono::microseconds(1);
  }

 private:
  [[nodiscard]] double Most() const { return std::max(per_s_ / 10, 1.0); }

  void Fill(MonotonicTime now) {
    if (filled_at_ == MonotonicTime{}) {
      left_ = Most();
    } else {
      const std::chrono::duration<double> passed = now - filled_at_;
      left_ = std::min(Most(), left_ + passed.count() * per_s_);
    }
    filled_at_ = now;
  }

  double per_s_;
  double left_ = 0;
  MonotonicTime filled_at_{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_BUDGET_H_
