// SPDX-License-Identifier: Apache-2.0
#include "commands/time_argument.h"

#include <array>
#include <charconv>
#include <utility>

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

std::optional<std::string> ParseAge(const std::string& text, std::time_t now) {
  constexpr std::array<std::pair<char, std::int64_t>, 4> kUnits = {
      {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}}};
  constexpr std::int64_t kMost = 100'000;  // of any unit
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  for (const auto& [unit, seconds] : kUnits) {
    const bool is_it = parsed.ec == std::errc{} && parsed.ptr + 1 == end && *parsed.ptr == unit;
    if (is_it && number >= 0 && number <= kMost) return Format(now - number * seconds);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> ParsePastTime(const std::string& text, std::time_t now) {
  if (std::optional<std::string> age = ParseAge(text, now)) return age;
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
