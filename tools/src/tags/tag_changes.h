// SPDX-License-Identifier: Apache-2.0
//
// What 'idctl apply' does to tags, as text for people and as JSON. Pure.
#ifndef IDD_TOOLS_TAGS_TAG_CHANGES_H_
#define IDD_TOOLS_TAGS_TAG_CHANGES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "client/json_document.h"
#include "tags/tag_settings.h"
#include "terminal/terminal.h"

namespace idd::tools {

enum class TagAction { kCreate, kChange, kDelete };

struct TagChange {
  TagAction action = TagAction::kCreate;
  std::string tag;
  std::vector<Difference> differences;  // none if the tag is deleted
  bool is_done = false;
};

struct TagChanges {
  bool is_dry_run = false;
  std::vector<TagChange> changes;
  std::size_t unchanged = 0;
  std::size_t not_in_file = 0;  // tags of idd that the file lacks and that stay
};

// "+ orders" with its settings, "~ orders" with old -> new, "- orders", then the counts. Without a
// dry run, only the changes that are done. No line is wider than the screen, except for a word.
[[nodiscard]] std::string RenderChanges(const TagChanges& changes, const Screen& screen);
[[nodiscard]] JsonDocument ChangesJson(const TagChanges& changes);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TAGS_TAG_CHANGES_H_
