// SPDX-License-Identifier: Apache-2.0
//
// Files of tags, TOML: a table [[tag]] for each tag, with its `name` and its settings.
#ifndef IDD_TOOLS_TAGS_TAG_FILE_H_
#define IDD_TOOLS_TAGS_TAG_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "client/json_document.h"
#include "idd/base/status.h"
#include "tags/tag_settings.h"

namespace idd::tools {

struct TagEntry {
  TagSettings settings;
  std::string where;  // "tags.toml:12: ", for error messages
};

// The tags in the order of the file. kInvalid with the file's name and the line: the text is not
// TOML, a key is unknown, a value is out of range, or a tag is there twice. What a tag of some mode
// may have is the daemon's to check. `name` is what messages call the file.
[[nodiscard]] Result<std::vector<TagEntry>> ParseTagFile(std::string_view text,
                                                         const std::string& name);

// A file with all settings of the tags. ParseTagFile() reads it.
[[nodiscard]] std::string FormatTagFile(const std::vector<TagFields>& tags);
// The same settings as {"tags": [{"name", ...}]}.
[[nodiscard]] JsonDocument TagFileJson(const std::vector<TagFields>& tags);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TAGS_TAG_FILE_H_
