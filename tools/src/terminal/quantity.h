// SPDX-License-Identifier: Apache-2.0
//
// Numbers and times as users write them, on the command line and in files of tags. Counts take k,
// m, g and t; times take ms, s, m, h and d. No argument takes both, so "10m" is never ambiguous.
//
// Each Parse function returns what is wrong with the text, or stores the value and returns an empty
// string.
#ifndef IDD_TOOLS_TERMINAL_QUANTITY_H_
#define IDD_TOOLS_TERMINAL_QUANTITY_H_

#include <cstdint>
#include <string>

namespace idd::tools {

// The lines of a help that explain counts (N) and times (TIME).
inline constexpr const char* kCountHelp =
    "N may end in k, m, g or t: 10k is 10,000, 10m is 10,000,000; g is 10^9, t is 10^12.";
inline constexpr const char* kTimeHelp = "TIME ends in ms, s, m, h or d: 500ms, 90s, 10m, 2h, 7d.";

// Printable bounds of a number.
struct NumberRange {
  std::uint64_t min;
  std::uint64_t max;
};

// Decimal digits and nothing else.
[[nodiscard]] std::string ParseNumber(const std::string& text, NumberRange range,
                                      std::uint64_t* number);

// A whole number, or one with k, m, g or t for 10^3, 10^6, 10^9 or 10^12: "10k" is 10000.
[[nodiscard]] std::string ParseCount(const std::string& text, NumberRange range,
                                     std::uint64_t* count);

// Whether a time may be a number without a unit: then it counts TimeRange::unit_ms. 0 never needs a
// unit.
enum class BareTime { kRefused, kAllowed };

// Bounds of a time, in multiples of `unit_ms`; other times are refused.
struct TimeRange {
  std::uint64_t min;
  std::uint64_t max;
  std::uint64_t unit_ms;
  BareTime bare;
};

// A whole number with ms, s, m, h or d. Stores it in multiples of `range.unit_ms`.
[[nodiscard]] std::string ParseTime(const std::string& text, const TimeRange& range,
                                    std::uint64_t* time);

// "90s", "10m", "2h", "7d", "500ms": exact, in the largest unit that divides it. ParseTime() reads
// it.
[[nodiscard]] std::string TimeText(std::uint64_t ms);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_QUANTITY_H_
