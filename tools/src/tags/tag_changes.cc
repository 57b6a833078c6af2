// SPDX-License-Identifier: Apache-2.0
#include "tags/tag_changes.h"

#include <algorithm>

#include "terminal/output.h"

namespace idd::tools {
namespace {

struct Look {
  const char* sign;
  const char* name;
  Tone tone;
};

Look LookOf(TagAction action) {
  switch (action) {
    case TagAction::kCreate:
      return {"+ ", "create", Tone::kGood};
    case TagAction::kChange:
      return {"~ ", "change", Tone::kWarning};
    case TagAction::kDelete:
      break;
  }
  return {"- ", "delete", Tone::kBad};
}

// A description is in quotation marks, because it may be empty.
std::string ValueText(const Difference& difference, const std::string& value) {
  return difference.name == "description" ? Quote(value) : EscapeText(value);
}

std::string SettingText(const Difference& difference, TagAction action, std::size_t width,
                        std::size_t columns) {
  constexpr std::size_t kIndent = 4;
  const std::string after = ValueText(difference, difference.after);
  const bool has_before = action == TagAction::kChange;
  const std::string before = has_before ? ValueText(difference, difference.before) : "";
  const std::string line = difference.name + std::string(width - difference.name.size() + 2, ' ') +
                           (has_before ? before + " -> " : "") + after;
  if (columns == 0 || kIndent + WidthInCharacters(line) <= columns) {
    return BreakTo(line, kIndent, 0);
  }
  std::string lines = BreakTo(difference.name, kIndent, columns);
  if (has_before) lines += BreakTo(before, kIndent + 2, columns);
  return lines + BreakTo((has_before ? "-> " : "") + after, kIndent + 2, columns);
}

std::string ChangeText(const TagChange& change, const Screen& screen) {
  const Look look = LookOf(change.action);
  std::string text = Toned(look.tone, look.sign + EscapeText(change.tag), screen) + "\n";
  std::size_t width = 0;
  for (const Difference& one : change.differences) width = std::max(width, one.name.size());
  for (const Difference& one : change.differences) {
    text += SettingText(one, change.action, width, screen.columns);
  }
  return text;
}

bool IsShown(const TagChanges& changes, const TagChange& change) {
  return changes.is_dry_run || change.is_done;
}

std::uint64_t CountOf(const TagChanges& changes, TagAction action) {
  return static_cast<std::uint64_t>(
      std::count_if(changes.changes.begin(), changes.changes.end(), [&](const TagChange& change) {
        return change.action == action && IsShown(changes, change);
      }));
}

}  // namespace

std::string RenderChanges(const TagChanges& changes, const Screen& screen) {
  std::string text;
  for (const TagChange& change : changes.changes) {
    if (IsShown(changes, change)) text += ChangeText(change, screen);
  }
  const auto count = [&changes](TagAction action) {
    return std::to_string(CountOf(changes, action));
  };
  std::string sums = count(TagAction::kCreate) + " created, " + count(TagAction::kChange) +
                     " changed, " + count(TagAction::kDelete) + " deleted, " +
                     std::to_string(changes.unchanged) + " unchanged";
  if (changes.is_dry_run) sums = "dry run, nothing is changed: " + sums;
  text += WrapTo(sums, screen.columns, 2) + "\n";
  if (changes.not_in_file != 0) {
    const bool is_one = changes.not_in_file == 1;
    text += WrapTo(Counted(changes.not_in_file, "tag") +
                       (is_one ? " is not in the file and stays" : " are not in the file and stay"),
                   screen.columns, 2) +
            "\n";
  }
  return text;
}

JsonDocument ChangesJson(const TagChanges& changes) {
  std::vector<JsonDocument> tags;
  for (const TagChange& change : changes.changes) {
    std::vector<JsonDocument> settings;
    for (const Difference& one : change.differences) {
      JsonDocument& setting = settings.emplace_back();
      setting.Set("name", one.name);
      if (change.action == TagAction::kCreate) {
        setting.Set("before", nullptr);
      } else {
        setting.Set("before", one.before);
      }
      setting.Set("after", one.after);
    }
    tags.emplace_back()
        .Set("tag", change.tag)
        .Set("action", LookOf(change.action).name)
        .Set("done", change.is_done)
        .Set("settings", settings);
  }
  JsonDocument document;
  document.Set("dry_run", changes.is_dry_run)
      .Set("created", CountOf(changes, TagAction::kCreate))
      .Set("changed", CountOf(changes, TagAction::kChange))
      .Set("deleted", CountOf(changes, TagAction::kDelete))
      .Set("unchanged", std::uint64_t{changes.unchanged})
      .Set("not_in_file", std::uint64_t{changes.not_in_file})
      .Set("tags", tags);
  return document;
}

}  // namespace idd::tools
