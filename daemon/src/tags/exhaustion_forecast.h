// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_EXHAUSTION_FORECAST_H_
#define IDD_DAEMON_TAGS_EXHAUSTION_FORECAST_H_

#include <optional>
#include <string>

#include "idd/base/clock.h"
#include "refill/usage_meter.h"

namespace idd::daemon {

// Forecasts when a tag's ids will be used up at this host's rate; other hosts' leases count once
// they are seen. Logs a warning once a day for a tag with less than 90 days left.
//
// Thread safety: none.
class ExhaustionForecast {
 public:
  // `ids_left`: ids that are neither claimed nor leased by another host; nothing if this host has
  // not leased yet.
  void Update(const std::string& tag, std::optional<double> ids_left, const UsageMeter& usage,
              MonotonicTime now);
  // Of a snowflake tag, which ends at a time.
  void UpdateDays(const std::string& tag, double days_left, MonotonicTime now);
  // Nothing if no ids are claimed, or the time is unknown.
  [[nodiscard]] const std::optional<double>& in_days() const noexcept { return in_days_; }

 private:
  // Whether a warning is due.
  [[nodiscard]] bool Warns(MonotonicTime now);

  std::optional<double> in_days_;
  MonotonicTime warned_at_{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_EXHAUSTION_FORECAST_H_
