// SPDX-License-Identifier: Apache-2.0
#include "terminal/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "terminal/output.h"

namespace idd::tools {
namespace {

using Unit = std::pair<std::string_view, std::uint64_t>;

constexpr std::array<Unit, 4> kPowers = {
    {{"k", 1'000}, {"m", 1'000'000}, {"g", 1'000'000'000}, {"t", 1'000'000'000'000}}};
// The largest first, as TimeText() needs them.
constexpr std::array<Unit, 5> kTimeUnits = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};

// Nothing: not digits, or too large.
std::optional<std::uint64_t> Digits(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value, 10);
  if (stop != end || error != std::errc()) return std::nullopt;
  return value;
}

// Nothing if the product is too large.
std::optional<std::uint64_t> Times(std::uint64_t number, std::uint64_t factor) {
  if (number > std::numeric_limits<std::uint64_t>::max() / factor) return std::nullopt;
  return number * factor;
}

// The number and the factor of its unit: 0 if the text has none. Nothing: not a number with one of
// these units.
template <std::size_t kCount>
std::optional<std::pair<std::uint64_t, std::uint64_t>> Split(
    std::string_view text, const std::array<Unit, kCount>& units) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<std::uint64_t> number = Digits(text.substr(0, end));
  if (!number.has_value()) return std::nullopt;
  const std::string_view unit = text.substr(end);
  if (unit.empty()) return std::pair(*number, std::uint64_t{0});
  for (const auto& [name, factor] : units) {
    if (unit == name) return std::pair(*number, factor);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> CountOf(std::string_view text) {
  const auto parts = Split(text, kPowers);
  if (!parts.has_value()) return std::nullopt;
  return Times(parts->first, parts->second == 0 ? 1 : parts->second);
}

std::optional<std::uint64_t> TimeOf(std::string_view text, const TimeRange& range) {
  const auto parts = Split(text, kTimeUnits);
  if (!parts.has_value()) return std::nullopt;
  const auto [number, unit_ms] = *parts;
  if (unit_ms == 0) {
    const bool is_clear = number == 0 || range.bare == BareTime::kAllowed;
    return is_clear ? std::optional(number) : std::nullopt;
  }
  const std::optional<std::uint64_t> ms = Times(number, unit_ms);
  if (!ms.has_value() || *ms % range.unit_ms != 0) return std::nullopt;
  return *ms / range.unit_ms;
}

bool IsIn(const std::optional<std::uint64_t>& value, std::uint64_t min, std::uint64_t max) {
  return value.has_value() && *value >= min && *value <= max;
}

std::string NotANumber(const std::string& text, NumberRange range) {
  return Quote(text) + " is not a whole number from " + std::to_string(range.min) + " to " +
         std::to_string(range.max);
}

}  // namespace

std::string ParseNumber(const std::string& text, NumberRange range, std::uint64_t* number) {
  const std::optional<std::uint64_t> value = Digits(text);
  if (!IsIn(value, range.min, range.max)) return NotANumber(text, range);
  *number = *value;
  return {};
}

std::string ParseCount(const std::string& text, NumberRange range, std::uint64_t* count) {
  const std::optional<std::uint64_t> value = CountOf(text);
  if (!IsIn(value, range.min, range.max)) {
    return NotANumber(text, range) + ", which may end in k, m, g or t (10k is 10000)";
  }
  *count = *value;
  return {};
}

std::string ParseTime(const std::string& text, const TimeRange& range, std::uint64_t* time) {
  const std::optional<std::uint64_t> value = TimeOf(text, range);
  if (!IsIn(value, range.min, range.max)) {
    return Quote(text) + " is not a time from " + TimeText(range.min * range.unit_ms) + " to " +
           TimeText(range.max * range.unit_ms) +
           (range.unit_ms < 1000 ? ", such as 500ms, 90s or 10m" : ", such as 90s, 10m or 2h");
  }
  *time = *value;
  return {};
}

std::string TimeText(std::uint64_t ms) {
  if (ms == 0) return "0s";
  for (const auto& [name, unit_ms] : kTimeUnits) {
    if (ms % unit_ms == 0) return std::to_string(ms / unit_ms) + std::string(name);
  }
  return std::to_string(ms) + "ms";
}

}  // namespace idd::tools
