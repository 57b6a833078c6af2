// SPDX-License-Identifier: Apache-2.0
#include "tags/snowflake_layout.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "terminal/output.h"
#include "terminal/quantity.h"

namespace idd::tools {
namespace {

constexpr std::uint64_t kMsPerSecond = 1000;
constexpr std::uint64_t kMostAheadMs = 3'600'000;

bool IsNumber(std::string_view text, NumberRange range, std::uint64_t* number) {
  return ParseNumber(std::string(text), range, number).empty();
}

// Whether `text` has digits where `pattern` has '0', and is the same elsewhere.
bool HasForm(std::string_view text, std::string_view pattern) {
  if (text.size() != pattern.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (pattern[i] == '0' ? !is_digit : text[i] != pattern[i]) return false;
  }
  return true;
}

// Precondition: digits.
unsigned NumberAt(std::string_view text, std::size_t first, std::size_t length) {
  unsigned number = 0;
  for (const char digit : text.substr(first, length)) {
    number = number * 10 + static_cast<unsigned>(digit - '0');
  }
  return number;
}

bool IsDay(std::string_view text) {
  return std::chrono::year_month_day(std::chrono::year(static_cast<int>(NumberAt(text, 0, 4))),
                                     std::chrono::month(NumberAt(text, 5, 2)),
                                     std::chrono::day(NumberAt(text, 8, 2)))
      .ok();
}

bool IsTime(std::string_view text) {
  return NumberAt(text, 11, 2) < 24 && NumberAt(text, 14, 2) < 60 && NumberAt(text, 17, 2) < 60;
}

std::string UnitText(std::uint64_t unit_ms) {
  if (unit_ms == 1) return "ms";
  if (unit_ms == kMsPerSecond) return "s";
  return std::to_string(unit_ms) + " ms";
}

std::string ClockText(const std::string& clock) {
  if (clock == "client") return "claimers read the clock";
  if (clock == "daemon") return "idd moves the time, claimers read no clock";
  return clock;
}

std::string AheadText(std::uint64_t ahead_ms) {
  if (ahead_ms == 0) return "no id is ahead of the clock";
  return "ids may be up to " + TimeText(ahead_ms) + " ahead of the clock";
}

}  // namespace

std::string CheckLayoutArgument(const std::string& text) {
  constexpr NumberRange kBits = {0, 99};
  std::string_view rest = text;
  std::uint64_t bits = 0;
  for (int part = 0; part < 3; ++part) {
    const std::size_t end = part < 2 ? rest.find('/') : rest.size();
    if (end == std::string_view::npos || !IsNumber(rest.substr(0, end), kBits, &bits)) {
      return Quote(text) + " is not the bits of time/worker/sequence, such as 41/10/12";
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

std::string ParseUnitArgument(const std::string& text, std::uint64_t* unit_ms) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 3> kUnits = {
      {{"1ms", 1}, {"10ms", 10}, {"1s", kMsPerSecond}}};
  for (const auto& [name, ms] : kUnits) {
    if (text != name) continue;
    *unit_ms = ms;
    return {};
  }
  return Quote(text) + " is not one of 1ms, 10ms, 1s";
}

std::string CheckEpochArgument(const std::string& text) {
  const bool has_time = HasForm(text, "0000-00-00T00:00:00Z");
  if (!has_time && !HasForm(text, "0000-00-00")) {
    return Quote(text) + " is not a date in UTC, such as 2024-01-01 or 2024-01-01T00:00:00Z";
  }
  if (!IsDay(text) || (has_time && !IsTime(text))) return Quote(text) + " is not in the calendar";
  return {};
}

std::string ParseAheadArgument(const std::string& text, std::uint64_t* ahead_ms) {
  return ParseTime(text, {0, kMostAheadMs, 1, BareTime::kRefused}, ahead_ms);
}

std::optional<Fields> SnowflakeOf(const Fields& tag) {
  return tag.Has("snowflake") ? tag.OptionalObject("snowflake") : std::nullopt;
}

LayoutFields ReadLayout(const Fields& snowflake) {
  LayoutFields layout;
  layout.layout = snowflake.Text("layout");
  layout.unit_ms = snowflake.Count("unit_ms");
  layout.epoch = snowflake.Text("epoch");
  static_cast<void>(snowflake.Count("epoch_ms"));  // checks it
  layout.clock = snowflake.Text("clock");
  layout.max_ahead_ms = snowflake.Count("max_ahead_ms");
  layout.ids_per_unit = snowflake.Count("ids_per_unit");
  layout.workers = snowflake.Count("workers");
  layout.ends = snowflake.Text("ends");
  return layout;
}

std::vector<std::pair<std::string, std::string>> LayoutInWords(const LayoutFields& layout) {
  return {{"layout", layout.layout + " (bits of time/worker/sequence)"},
          {"ids",
           std::to_string(layout.ids_per_unit) + " per " + UnitText(layout.unit_ms) + " and host"},
          {"worker ids", std::to_string(layout.workers)},
          {"epoch", layout.epoch},
          {"ends", layout.ends},
          {"clock", ClockText(layout.clock)},
          {"bursts", AheadText(layout.max_ahead_ms)}};
}

PartsFields ReadParts(const Fields& parts) {
  static_cast<void>(parts.Count("time_ms"));  // checks it
  return {.id = parts.CountText("id"),
          .time = parts.Text("time"),
          .worker = parts.CountText("worker"),
          .sequence = parts.CountText("sequence")};
}

}  // namespace idd::tools
