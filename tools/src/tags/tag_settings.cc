// SPDX-License-Identifier: Apache-2.0
#include "tags/tag_settings.h"

#include <algorithm>
#include <array>
#include <utility>

namespace idd::tools {
namespace {

constexpr std::uint64_t kOneSecondMs = 1000;

// The shortest form of a date that idd or a user writes: "2024-01-01T00:00:00.000Z" is 2024-01-01.
std::string EpochText(std::string text) {
  constexpr std::string_view kNoMs = ".000Z";
  constexpr std::string_view kMidnight = "T00:00:00Z";
  if (text.ends_with(kNoMs)) text.replace(text.size() - kNoMs.size(), kNoMs.size(), "Z");
  if (text.ends_with(kMidnight)) text.resize(text.size() - kMidnight.size());
  return text;
}

// "041/10/12" is 41/10/12.
std::string LayoutText(const std::string& text) {
  std::string shortest;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_first = shortest.empty() || shortest.back() == '/';
    const bool is_last = i + 1 == text.size() || text[i + 1] == '/';
    if (text[i] != '0' || !is_first || is_last) shortest += text[i];
  }
  return shortest;
}

// Collects settings in the order of a file.
class List {
 public:
  void Add(const char* name, std::string text) { settings_.push_back({name, std::move(text)}); }
  void Add(const char* name, std::uint64_t number) {
    settings_.push_back({name, std::to_string(number), true});
  }
  template <typename T>
  void Add(const char* name, const std::optional<T>& value) {
    if (value.has_value()) Add(name, *value);
  }
  void AddTime(const char* name, const std::optional<std::uint64_t>& time, std::uint64_t unit_ms) {
    if (time.has_value()) Add(name, TimeText(*time * unit_ms));
  }
  [[nodiscard]] std::vector<Setting> Take() { return std::move(settings_); }

 private:
  std::vector<Setting> settings_;
};

const Setting* Find(const std::vector<Setting>& settings, const std::string& name) {
  const auto it = std::find_if(settings.begin(), settings.end(),
                               [&name](const Setting& setting) { return setting.name == name; });
  return it == settings.end() ? nullptr : &*it;
}

// The settings of `after` whose values differ in `before`.
std::vector<Difference> Compare(const std::vector<Setting>& before,
                                const std::vector<Setting>& after) {
  std::vector<Difference> differences;
  for (const Setting& setting : after) {
    const Setting* const old = Find(before, setting.name);
    if (old != nullptr && old->value == setting.value) continue;
    differences.push_back({setting.name, old == nullptr ? "" : old->value, setting.value});
  }
  return differences;
}

}  // namespace

TagFields ReadTag(const Fields& fields) {
  TagFields tag;
  tag.tag = fields.Text("tag");
  tag.mode = fields.Text("mode");
  tag.access = fields.Text("access");
  // An older idd knows neither.
  tag.order = fields.Has("order") ? fields.Text("order") : "host";
  tag.lane_block = fields.Has("lane_block") ? fields.Count("lane_block") : 0;
  tag.step = fields.Count("step");
  tag.refill = fields.Text("refill");
  tag.max_step = fields.Count("max_step");
  tag.max_prefetch = fields.Count("max_prefetch");
  tag.outage_tolerance_s = fields.Count("outage_tolerance_s");
  tag.next_id = fields.Count("next_id");
  tag.max_id = fields.Count("max_id");
  tag.description = fields.OptionalText("description").value_or("");
  tag.update_time = fields.Text("update_time");
  if (const auto snowflake = SnowflakeOf(fields)) tag.layout = ReadLayout(*snowflake);
  return tag;
}

void SetTagFields(const TagSettings& settings, AdminRequest& request) {
  request.Set("tag", settings.tag);
  request.SetIfGiven("mode", settings.mode);
  request.SetIfGiven("access", settings.access);
  request.SetIfGiven("order", settings.order);
  request.SetIfGiven("lane_block", settings.lane_block);
  request.SetIfGiven("step", settings.step);
  request.SetIfGiven("refill", settings.refill);
  request.SetIfGiven("max_step", settings.max_step);
  request.SetIfGiven("max_prefetch", settings.max_prefetch);
  request.SetIfGiven("outage_tolerance_s", settings.outage_tolerance_s);
  request.SetIfGiven("start", settings.start);
  request.SetIfGiven("max_id", settings.max_id);
  request.SetIfGiven("description", settings.description);
}

void SetLayoutFields(const TagSettings& settings, AdminRequest& request) {
  request.SetIfGiven("layout", settings.layout);
  request.SetIfGiven("unit_ms", settings.unit_ms);
  request.SetIfGiven("epoch", settings.epoch);
  request.SetIfGiven("clock", settings.clock);
  request.SetIfGiven("max_ahead_ms", settings.max_ahead_ms);
}

std::vector<Setting> Given(const TagSettings& settings) {
  List list;
  list.Add("mode", settings.mode);
  list.Add("description", settings.description);
  list.Add("access", settings.access);
  list.Add("order", settings.order);
  list.Add("lane_block", settings.lane_block);
  list.Add("step", settings.step);
  list.Add("start", settings.start);
  list.Add("max_id", settings.max_id);
  list.Add("refill", settings.refill);
  list.AddTime("outage_tolerance", settings.outage_tolerance_s, kOneSecondMs);
  list.Add("max_prefetch", settings.max_prefetch);
  list.Add("max_step", settings.max_step);
  if (settings.layout.has_value()) list.Add("layout", LayoutText(*settings.layout));
  list.AddTime("unit", settings.unit_ms, 1);
  if (settings.epoch.has_value()) list.Add("epoch", EpochText(*settings.epoch));
  list.Add("clock", settings.clock);
  list.AddTime("max_ahead", settings.max_ahead_ms, 1);
  return list.Take();
}

std::vector<Setting> SettingsOf(const TagFields& tag) {
  // A ticket tag leases what claims wait for, a snowflake tag leases time.
  const bool has_range = !IsSnowflake(tag.mode);
  const bool has_prefetch = has_range && tag.mode != "ticket";
  TagSettings settings;
  settings.mode = tag.mode;
  settings.description = tag.description;
  settings.access = tag.access;
  if (has_range) settings.max_id = tag.max_id;
  if (has_prefetch) {
    settings.order = tag.order;
    settings.lane_block = tag.lane_block;
    settings.step = tag.step;
    settings.refill = tag.refill;
    settings.max_prefetch = tag.max_prefetch;
    settings.max_step = tag.max_step;
  }
  if (tag.mode != "ticket") settings.outage_tolerance_s = tag.outage_tolerance_s;
  if (tag.layout.has_value()) {
    settings.layout = tag.layout->layout;
    settings.unit_ms = tag.layout->unit_ms;
    settings.epoch = tag.layout->epoch;
    settings.clock = tag.layout->clock;
    settings.max_ahead_ms = tag.layout->max_ahead_ms;
  }
  return Given(settings);
}

std::vector<Difference> Differences(const TagFields& tag, const TagSettings& asked) {
  std::vector<Setting> has = SettingsOf(tag);
  if (asked.start.has_value() && !IsSnowflake(tag.mode)) {
    has.push_back({"start", std::to_string(std::min(tag.next_id, *asked.start)), true});
  }
  // Options that a mode lacks may be given with the only value that they can have there.
  if (tag.mode != "segment" && asked.order == "host") has.push_back({"order", "host"});
  if (tag.mode != "segment" && asked.lane_block == std::uint64_t{0}) {
    has.push_back({"lane_block", "0", true});
  }
  return Compare(has, Given(asked));
}

std::vector<Difference> Differences(const TagFields& before, const TagFields& after) {
  return Compare(SettingsOf(before), SettingsOf(after));
}

bool IsFixed(std::string_view setting) {
  constexpr std::array<std::string_view, 7> kFixed = {"mode",  "start", "layout",   "unit",
                                                      "epoch", "clock", "max_ahead"};
  return std::find(kFixed.begin(), kFixed.end(), setting) != kFixed.end();
}

}  // namespace idd::tools
