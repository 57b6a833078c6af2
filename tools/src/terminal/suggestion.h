// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_TERMINAL_SUGGESTION_H_
#define IDD_TOOLS_TERMINAL_SUGGESTION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace idd::tools {

// The number of bytes to insert, delete, replace or swap with their neighbours to make one text of
// the other. Texts longer than 256 bytes are not compared: their distance is the longer length.
[[nodiscard]] std::size_t EditDistance(std::string_view a, std::string_view b);

// The known word that the user most likely meant, the first of several. Nothing if none is close:
// at most a third of the word may differ, and one byte of a word of two or three.
[[nodiscard]] std::optional<std::string> Nearest(std::string_view word,
                                                 const std::vector<std::string>& known);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_SUGGESTION_H_
