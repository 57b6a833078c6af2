// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_RATE_BUCKET_H_
#define IDD_DAEMON_PLATFORM_RATE_BUCKET_H_

#include <cstdint>

#include "idd/base/clock.h"

namespace idd::daemon {

// A token bucket with a rate per second and a burst. It stores the time at which everything taken
// is paid off (GCRA), so it needs no refilling, and a full bucket equals a new one.
//
// Pure; time is handed in. Thread safety: none.
class RateBucket {
 public:
  struct Rate {
    std::uint64_t per_s;  // at least 1
    std::uint64_t burst;  // at least 1
  };

  // When `count` units, at most a burst, may be taken.
  [[nodiscard]] MonotonicTime ReadyAt(std::uint64_t count, Rate rate, MonotonicTime now) const;
  // Takes them, or as many as `at_least` brings if that is more. They may be used from that time
  // on.
  void Take(std::uint64_t count, Rate rate, MonotonicTime now,
            MonotonicClock::duration at_least = {});
  void GiveBack(std::uint64_t count, Rate rate);
  [[nodiscard]] bool IsFull(MonotonicTime now) const noexcept { return paid_at_ <= now; }

 private:
  MonotonicTime paid_at_{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_RATE_BUCKET_H_
