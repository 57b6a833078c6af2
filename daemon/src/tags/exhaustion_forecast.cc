// SPDX-License-Identifier: Apache-2.0
#include "tags/exhaustion_forecast.h"

#include <chrono>
#include <cstdint>

#include "platform/logging.h"

namespace idd::daemon {
namespace {

constexpr double kWarning = 90;  // days
constexpr std::chrono::hours kWarningPause(24);

}  // namespace

void ExhaustionForecast::Update(const std::string& tag, std::optional<double> ids_left,
                                const UsageMeter& usage, MonotonicTime now) {
  in_days_.reset();
  if (ids_left.has_value()) in_days_ = usage.DaysFor(*ids_left);
  if (in_days_.value_or(kWarning) >= kWarning) return;
  if (warned_at_ != MonotonicTime{} && now - warned_at_ < kWarningPause) return;
  warned_at_ = now;
  log::Warning("tag.exhaustion", {{"tag", tag},
                                  {"days", static_cast<std::uint64_t>(*in_days_)},
                                  {"ids_left", static_cast<std::uint64_t>(*ids_left)},
                                  {"rate_per_s", static_cast<std::uint64_t>(usage.rate_per_s())},
                                  {"action", "raise max_id, or move the column to 64 bits"}});
}

}  // namespace idd::daemon
