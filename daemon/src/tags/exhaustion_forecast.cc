// SPDX-License-Identifier: Apache-2.0
#include "tags/exhaustion_forecast.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "platform/logging.h"

namespace idd::daemon {
namespace {

constexpr double kWarning = 90;  // days
constexpr std::chrono::hours kWarningPause(24);

}  // namespace

bool ExhaustionForecast::Warns(MonotonicTime now) {
  if (in_days_.value_or(kWarning) >= kWarning) return false;
  if (warned_at_ != MonotonicTime{} && now - warned_at_ < kWarningPause) return false;
  warned_at_ = now;
  return true;
}

void ExhaustionForecast::UpdateDays(const std::string& tag, double days_left, MonotonicTime now) {
  in_days_ = std::max(days_left, 0.0);
  if (!Warns(now)) return;
  log::Warning("tag.exhaustion", {{"tag", tag},
                                  {"days", static_cast<std::uint64_t>(*in_days_)},
                                  {"reason", "the time bits of its layout are nearly used up"},
                                  {"action", "create a tag with another layout"}});
}

void ExhaustionForecast::Update(const std::string& tag, std::optional<double> ids_left,
                                const UsageMeter& usage, MonotonicTime now) {
  in_days_.reset();
  if (ids_left.has_value()) in_days_ = usage.DaysFor(*ids_left);
  if (!Warns(now)) return;
  log::Warning("tag.exhaustion", {{"tag", tag},
                                  {"days", static_cast<std::uint64_t>(*in_days_)},
                                  {"ids_left", static_cast<std::uint64_t>(*ids_left)},
                                  {"rate_per_s", static_cast<std::uint64_t>(usage.rate_per_s())},
                                  {"action", "raise max_id, or move the column to 64 bits"}});
}

}  // namespace idd::daemon
