// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_EXHAUSTION_FORECAST_H_
#define IDD_DAEMON_TAGS_EXHAUSTION_FORECAST_H_

#include <optional>
#include <string>

#include "idd/base/clock.h"
#include "refill/usage_meter.h"

namespace idd::daemon {

// When the ids of a tag will be used up at this host's rate; other hosts' leases count when they
// are seen. Warns once a day of a tag that has less than 90 days.
//
// Thread safety: none.
class ExhaustionForecast {
 public:
  // `ids_left`: neither claimed nor leased by another host. Nothing: this host has not leased yet.
  void Update(const std::string& tag, std::optional<double> ids_left, const UsageMeter& usage,
              MonotonicTime now);
  // Nothing: nothing is claimed, or it is not known.
  [[nodiscard]] const std::optional<double>& in_days() const noexcept { return in_days_; }

 private:
  std::optional<double> in_days_;
  MonotonicTime warned_at_{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_EXHAUSTION_FORECAST_H_
