// SPDX-License-Identifier: Apache-2.0
//
// The layout of a snowflake tag: its options, and its fields in the daemon's documents in words.
#ifndef IDD_TOOLS_TAGS_SNOWFLAKE_LAYOUT_H_
#define IDD_TOOLS_TAGS_SNOWFLAKE_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/json_fields.h"

namespace idd::tools {

[[nodiscard]] inline bool IsSnowflake(std::string_view mode) { return mode == "snowflake"; }

// --- Options. Each returns what is wrong with the text, or an empty string. The daemon checks the
// bounds.

// "41/10/12".
[[nodiscard]] std::string CheckLayoutArgument(const std::string& text);
// "1ms", "10ms" or "1s".
[[nodiscard]] std::string ParseUnitArgument(const std::string& text, std::uint64_t* unit_ms);
// "2024-01-01" or "2024-01-01T00:00:00Z".
[[nodiscard]] std::string CheckEpochArgument(const std::string& text);
// "0", "500ms", "1s" or "2m", at most an hour.
[[nodiscard]] std::string ParseAheadArgument(const std::string& text, std::uint64_t* ahead_ms);

// --- Documents

struct LayoutFields {
  std::string layout;  // "41/10/12"
  std::uint64_t unit_ms = 0;
  std::string epoch;
  std::string clock;
  std::uint64_t max_ahead_ms = 0;
  std::uint64_t ids_per_unit = 0;
  std::uint64_t workers = 0;
  std::string ends;
};

// The object `snowflake` of a tag; nothing if it is null or, from an older idd, missing.
[[nodiscard]] std::optional<Fields> SnowflakeOf(const Fields& tag);
[[nodiscard]] LayoutFields ReadLayout(const Fields& snowflake);
// Names and values, for one line each.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> LayoutInWords(
    const LayoutFields& layout);

// The parts of one id in replies of whois and decode.
struct PartsFields {
  std::string id;
  std::string time;
  std::string worker;
  std::string sequence;
};
[[nodiscard]] PartsFields ReadParts(const Fields& parts);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TAGS_SNOWFLAKE_LAYOUT_H_
