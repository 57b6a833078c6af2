// SPDX-License-Identifier: Apache-2.0
//
// The only file of idctl that includes toml++.
#include "tags/tag_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "terminal/command_line.h"
#include "terminal/output.h"
#include "terminal/suggestion.h"

namespace idd::tools {
namespace {

constexpr std::string_view kTag = "tag";
constexpr std::string_view kName = "name";

// Reads a value's text into a setting. Returns what is wrong with it, or an empty string.
using ReadSetting = std::function<std::string(const std::string& text, TagSettings& settings)>;

// Whether the file may have the value without quotation marks.
enum class Form { kText, kNumber };

struct Key {
  std::string_view name;
  Form form;
  ReadSetting read;
};

ReadSetting Count(std::optional<std::uint64_t> TagSettings::*member, NumberRange range) {
  return [member, range](const std::string& text, TagSettings& settings) {
    return ParseCount(text, range, &(settings.*member).emplace());
  };
}

ReadSetting Choice(std::optional<std::string> TagSettings::*member, std::vector<std::string> of) {
  return [member, of = std::move(of)](const std::string& text, TagSettings& settings) {
    settings.*member = text;
    if (std::find(of.begin(), of.end(), text) != of.end()) return std::string();
    std::string list;
    for (const std::string& word : of) list += (list.empty() ? "" : ", ") + word;
    return Quote(text) + " is not one of " + list;
  };
}

ReadSetting Checked(std::optional<std::string> TagSettings::*member,
                    std::string (*check)(const std::string&)) {
  return [member, check](const std::string& text, TagSettings& settings) {
    settings.*member = text;
    return check(text);
  };
}

ReadSetting Parsed(std::optional<std::uint64_t> TagSettings::*member,
                   std::string (*parse)(const std::string&, std::uint64_t*)) {
  return [member, parse](const std::string& text, TagSettings& settings) {
    return parse(text, &(settings.*member).emplace());
  };
}

std::string ReadTolerance(const std::string& text, std::uint64_t* seconds) {
  return ParseTime(text, kToleranceRange, seconds);
}

std::string ReadName(const std::string& text, TagSettings& settings) {
  settings.tag = text;
  return CheckTagArgument(text);
}

const std::vector<Key>& Keys() {
  using S = TagSettings;
  static const std::vector<Key> keys = {
      {kName, Form::kText, ReadName},
      {"mode", Form::kText, Choice(&S::mode, {"segment", "snowflake", "ticket"})},
      {"description", Form::kText, Checked(&S::description, CheckTextArgument)},
      {"access", Form::kText, Choice(&S::access, {"ring", "socket"})},
      {"order", Form::kText, Choice(&S::order, {"host", "cpu"})},
      {"lane_block", Form::kNumber, Count(&S::lane_block, kLaneBlockRange)},
      {"step", Form::kNumber, Count(&S::step, kStepRange)},
      {"start", Form::kNumber, Count(&S::start, kIdRange)},
      {"max_id", Form::kNumber, Count(&S::max_id, kIdRange)},
      {"refill", Form::kText, Choice(&S::refill, {"promise", "leaf"})},
      {"outage_tolerance", Form::kNumber, Parsed(&S::outage_tolerance_s, ReadTolerance)},
      {"max_prefetch", Form::kNumber, Count(&S::max_prefetch, kIdRange)},
      {"max_step", Form::kNumber, Count(&S::max_step, kStepRange)},
      {"layout", Form::kText, Checked(&S::layout, CheckLayoutArgument)},
      {"unit", Form::kText, Parsed(&S::unit_ms, ParseUnitArgument)},
      {"epoch", Form::kText, Checked(&S::epoch, CheckEpochArgument)},
      {"clock", Form::kText, Choice(&S::clock, {"client", "daemon"})},
      {"max_ahead", Form::kNumber, Parsed(&S::max_ahead_ms, ParseAheadArgument)},
  };
  return keys;
}

std::string WhereOf(const std::string& file, const toml::source_region& source) {
  return file + ":" + std::to_string(source.begin.line) + ": ";
}

Status Invalid(const std::string& where, const std::string& why) {
  return {Code::kInvalid, where + why};
}

Status UnknownKey(const std::string& where, std::string_view name) {
  std::vector<std::string> known;
  for (const Key& key : Keys()) known.emplace_back(key.name);
  const std::optional<std::string> nearest = Nearest(name, known);
  return Invalid(where, "unknown setting " + Quote(name) +
                            (nearest ? "; did you mean " + Quote(*nearest) + "?" : ""));
}

// The text of the value, as an option would have it. Nothing: a value of another type.
std::optional<std::string> TextOf(const toml::node& node, Form form) {
  if (const auto number = node.value_exact<std::int64_t>(); number && form == Form::kNumber) {
    return std::to_string(*number);
  }
  return node.value_exact<std::string>();
}

Status ReadKey(const std::string& file, std::string_view name, const toml::node& node,
               TagSettings& settings) {
  const std::string where = WhereOf(file, node.source());
  const auto key = std::find_if(Keys().begin(), Keys().end(),
                                [name](const Key& known) { return known.name == name; });
  if (key == Keys().end()) return UnknownKey(where, name);
  const std::optional<std::string> text = TextOf(node, key->form);
  if (!text.has_value()) {
    const char* const wanted = key->form == Form::kText
                                   ? " must be a text in quotation marks"
                                   : " must be a whole number, or a text in quotation marks";
    return Invalid(where, std::string(name) + wanted);
  }
  const std::string why = key->read(*text, settings);
  return why.empty() ? Status::Ok() : Invalid(where, std::string(name) + ": " + why);
}

Result<TagEntry> ReadEntry(const std::string& file, const toml::table& table) {
  TagEntry entry{.settings = {}, .where = WhereOf(file, table.source())};
  for (const auto& [key, node] : table) {
    if (Status status = ReadKey(file, key.str(), node, entry.settings); !status.ok()) {
      return status;
    }
  }
  if (!table.contains(kName))
    return Invalid(entry.where, "the tag has no name; add name = \"...\"");
  return entry;
}

Status CheckTopLevel(const std::string& file, const toml::table& root) {
  for (const auto& [key, node] : root) {
    const std::string where = WhereOf(file, node.source());
    if (key != kTag) {
      return Invalid(
          where, "unknown key " + Quote(key.str()) + "; a file of tags has only tables [[tag]]");
    }
    if (!node.is_array_of_tables()) {
      return Invalid(where, "'tag' must be tables, each beginning with a line [[tag]]");
    }
  }
  return Status::Ok();
}

Result<std::vector<TagEntry>> ReadEntries(const std::string& file, const toml::table& root) {
  if (Status status = CheckTopLevel(file, root); !status.ok()) return status;
  std::vector<TagEntry> entries;
  const toml::array* const tags = root.get_as<toml::array>(kTag);
  if (tags == nullptr) return entries;
  std::map<std::string, toml::source_index> lines;
  for (const toml::node& node : *tags) {
    Result<TagEntry> entry = ReadEntry(file, *node.as_table());
    if (!entry.ok()) return entry.status();
    const std::string& name = entry.value().settings.tag;
    const auto [it, is_new] = lines.emplace(name, node.source().begin.line);
    if (!is_new) {
      return Invalid(entry.value().where,
                     "tag " + Quote(name) + " is already at line " + std::to_string(it->second));
    }
    entries.push_back(std::move(entry).value());
  }
  return entries;
}

// A basic string of TOML.
std::string TomlQuote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += std::string("\\") + c;
    } else if (code < 0x20 || code == 0x7f) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      quoted += std::string("\\u00") + kDigits[code >> 4U] + kDigits[code & 0xfU];
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

Result<std::vector<TagEntry>> ParseTagFile(std::string_view text, const std::string& name) {
  try {
    return ReadEntries(name, toml::parse(text, name));
  } catch (const toml::parse_error& error) {
    return Invalid(WhereOf(name, error.source()), std::string(error.description()));
  }
}

std::string FormatTagFile(const std::vector<TagFields>& tags) {
  std::string text = "# Tags of idd, for 'idctl apply -f FILE'.\n";
  for (const TagFields& tag : tags) {
    text += "\n[[tag]]\n" + std::string(kName) + " = " + TomlQuote(tag.tag) + "\n";
    for (const Setting& setting : SettingsOf(tag)) {
      text += setting.name + " = ";
      text += (setting.is_number ? setting.value : TomlQuote(setting.value)) + "\n";
    }
  }
  return text;
}

JsonDocument TagFileJson(const std::vector<TagFields>& tags) {
  std::vector<JsonDocument> tables;
  for (const TagFields& tag : tags) {
    JsonDocument& table = tables.emplace_back().Set("name", tag.tag);
    for (const Setting& setting : SettingsOf(tag)) {
      if (setting.is_number) {
        table.Set(setting.name.c_str(), std::uint64_t{std::stoull(setting.value)});
      } else {
        table.Set(setting.name.c_str(), setting.value);
      }
    }
  }
  JsonDocument document;
  document.Set("tags", tables);
  return document;
}

}  // namespace idd::tools
