// SPDX-License-Identifier: Apache-2.0
//
// The settings of a tag: what a user asks for, and what idd reports. Both also as a list of names
// and values in the notation of a file of tags, in which they are compared.
#ifndef IDD_TOOLS_TAGS_TAG_SETTINGS_H_
#define IDD_TOOLS_TAGS_TAG_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/admin_request.h"
#include "client/json_fields.h"
#include "idd/shm/abi.h"
#include "tags/snowflake_layout.h"
#include "terminal/quantity.h"

namespace idd::tools {

// Bounds of the settings. Ids are 0 .. kMaxId; the daemon checks a step further.
inline constexpr std::uint64_t kMaxId = shm::kMaxLimit - 1;
inline constexpr NumberRange kIdRange = {0, kMaxId};
inline constexpr NumberRange kStepRange = {1, kMaxId};
inline constexpr NumberRange kLaneBlockRange = {0, shm::kMaxLaneBlock};
inline constexpr TimeRange kToleranceRange = {0, 604'800, 1000, BareTime::kAllowed};

// What a user asks for, from options or from a file. Nothing: not given.
struct TagSettings {
  std::string tag;
  std::optional<std::uint64_t> step;
  std::optional<std::uint64_t> start;
  std::optional<std::uint64_t> max_id;
  std::optional<std::string> mode;
  std::optional<std::string> access;
  std::optional<std::string> order;
  std::optional<std::uint64_t> lane_block;
  std::optional<std::string> refill;
  std::optional<std::uint64_t> max_step;
  std::optional<std::uint64_t> max_prefetch;
  std::optional<std::uint64_t> outage_tolerance_s;
  std::optional<std::string> description;
  // Of mode snowflake.
  std::optional<std::string> layout;
  std::optional<std::uint64_t> unit_ms;
  std::optional<std::string> epoch;
  std::optional<std::string> clock;
  std::optional<std::uint64_t> max_ahead_ms;
};

// A tag as idd reports it.
struct TagFields {
  std::string tag;
  std::string mode;
  std::string access;
  std::string order;
  std::uint64_t lane_block = 0;  // 0: idd chooses
  std::uint64_t step = 0;
  std::string refill;
  std::uint64_t max_step = 0;
  std::uint64_t max_prefetch = 0;
  std::uint64_t outage_tolerance_s = 0;
  std::uint64_t next_id = 0;
  std::uint64_t max_id = 0;
  std::string description;
  std::string update_time;
  std::optional<LayoutFields> layout;  // of mode snowflake
};
[[nodiscard]] TagFields ReadTag(const Fields& fields);

// Adds the settings to a request that creates, changes or checks a tag.
void SetTagFields(const TagSettings& settings, AdminRequest& request);
// Those that only a new tag has.
void SetLayoutFields(const TagSettings& settings, AdminRequest& request);

// A setting in the notation of a file of tags, without quotation marks: {"step", "1000"}.
struct Setting {
  std::string name;
  std::string value;
  bool is_number = false;  // else a text, in quotation marks
};
// Those that are given, in the order of a file. Without the tag's name.
[[nodiscard]] std::vector<Setting> Given(const TagSettings& settings);
// Those that a tag of this mode has. Without the first id, which idd does not store.
[[nodiscard]] std::vector<Setting> SettingsOf(const TagFields& tag);

// A setting with two values; an empty one: the tag has no such setting.
struct Difference {
  std::string name;
  std::string before;
  std::string after;
};
// The given settings that the tag does not have. `start` counts as met if the tag's next id is not
// below it.
[[nodiscard]] std::vector<Difference> Differences(const TagFields& tag, const TagSettings& asked);
// The settings of `before` that have another value in `after`, a tag of the same mode.
[[nodiscard]] std::vector<Difference> Differences(const TagFields& before, const TagFields& after);

// Whether the setting is fixed when the tag is created.
[[nodiscard]] bool IsFixed(std::string_view setting);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TAGS_TAG_SETTINGS_H_
