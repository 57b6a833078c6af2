// SPDX-License-Identifier: Apache-2.0
//
// A tag's rate, as `status` shows it. Pure: counts and times in, a rate out.
#ifndef IDD_DAEMON_REFILL_USAGE_METER_H_
#define IDD_DAEMON_REFILL_USAGE_METER_H_

#include <cstdint>
#include <optional>

#include "idd/base/clock.h"

namespace idd::daemon {

// Thread safety: none.
class UsageMeter {
 public:
  // To be called about once a second. `claimed`: all ids so far; it may fall if a client has forged
  // a cursor.
  void Observe(MonotonicTime now, std::uint64_t claimed);
  // True if Observe() would change nothing that is shown.
  [[nodiscard]] bool IsIdleAt(std::uint64_t claimed) const noexcept;
  // To be called instead of Observe() in that case.
  void SkipTo(MonotonicTime now) noexcept { at_ = now; }

  // Ids a second; the newest second has a weight of 0.3.
  [[nodiscard]] double rate_per_s() const noexcept { return rate_per_s_; }
  // How long `ids` last at that rate; nothing while (nearly) no ids are claimed.
  [[nodiscard]] std::optional<double> DaysFor(double ids) const noexcept;

 private:
  std::uint64_t claimed_ = 0;
  MonotonicTime at_{};
  double rate_per_s_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_USAGE_METER_H_
