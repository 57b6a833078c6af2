// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_TIME_BUDGET_H_
#define IDD_DAEMON_STORE_TIME_BUDGET_H_

#include <chrono>

#include "idd/base/clock.h"

namespace idd::daemon {

// The time for statements that run one after the other, each of which may wait for a lock. In
// between, the host looks at the term: had it not looked for six seconds (agreement.cc), it would
// have to hand all leases back, and a server that many hosts ask at once would serve none of them.
class TimeBudget {
 public:
  // Whether the next statement may run. The first always may.
  [[nodiscard]] bool GoesOn() {
    const bool goes_on = !has_begun_ || MonotonicClock::now() < end_;
    has_begun_ = true;
    return goes_on;
  }

 private:
  const MonotonicTime end_ = MonotonicClock::now() + std::chrono::seconds(2);
  bool has_begun_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_TIME_BUDGET_H_
