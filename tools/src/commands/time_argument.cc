// SPDX-License-Identifier: Apache-2.0
#include "commands/time_argument.h"

#include <array>
#include <cstdint>

#include "terminal/quantity.h"

namespace idd::tools {
namespace {

constexpr const char* kForm = "%Y-%m-%d %H:%M:%S";

std::optional<std::string> Format(std::time_t time) {
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr || parts.tm_year < 0 || parts.tm_year > 8'000) {
    return std::nullopt;
  }
  std::array<char, 32> text{};
  if (std::strftime(text.data(), text.size(), kForm, &parts) == 0) return std::nullopt;
  return text.data();
}

// An age in seconds.
constexpr TimeRange kAgeRange = {0, 100'000ULL * 86'400, 1000, BareTime::kRefused};

}  // namespace

std::optional<std::string> ParsePastTime(const std::string& text, std::time_t now) {
  std::uint64_t age_s = 0;
  // Without a unit, 0 could mean now as well as 1970.
  if (text != "0" && ParseTime(text, kAgeRange, &age_s).empty()) {
    return Format(now - static_cast<std::time_t>(age_s));
  }
  std::string time = text;
  constexpr std::size_t kDateLength = 10;
  if (time.size() > kDateLength && time[kDateLength] == 'T') time[kDateLength] = ' ';
  if (time.size() == kDateLength) time += " 00:00";
  if (time.size() == kDateLength + 6) time += ":00";
  std::tm parts{};
  const char* const rest = ::strptime(time.c_str(), kForm, &parts);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  // Another form, like one without leading zeros, or a day that the month does not have, comes back
  // changed.
  std::optional<std::string> same = Format(::timegm(&parts));
  return same == time ? same : std::nullopt;
}

Argument AddPastTime(Command command, const char* name, const char* help,
                     std::optional<std::string>* time) {
  return command
      .AddArgument(
          name, help,
          [time](const std::string& text) -> std::string {
            *time = ParsePastTime(text, std::time(nullptr));
            if (time->has_value()) return "";
            return "must be a time in UTC, as 2026-11-26 or '2026-11-26 05:30', or how long "
                   "ago, as 12h or 7d";
          })
      .ValueName("TIME");
}

}  // namespace idd::tools
