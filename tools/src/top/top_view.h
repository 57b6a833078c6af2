// SPDX-License-Identifier: Apache-2.0
//
// How `idctl top` looks. Pure: the model in, lines out; what shows them is top_screen.h.
#ifndef IDD_TOOLS_TOP_TOP_VIEW_H_
#define IDD_TOOLS_TOP_TOP_VIEW_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/terminal.h"
#include "top/top_model.h"

namespace idd::tools {

// Below this top says that it needs more room.
inline constexpr std::size_t kLeastTopColumns = 40;
inline constexpr std::size_t kLeastTopRows = 8;

struct TopPage {
  TopHead head;
  TopSums sums;                     // of all tags
  std::vector<const TopTag*> tags;  // those shown, arranged
  TopArrangement arrangement;
  bool is_typing_filter = false;
  double interval_s = 1;
  std::size_t first = 0;  // of `tags`, on the first line
};

struct Span {
  Tone tone = Tone::kPlain;
  std::string text;  // printable; of the characters that the screen has
  friend bool operator==(const Span&, const Span&) = default;
};
using StyledLine = std::vector<Span>;
[[nodiscard]] std::string PlainText(const StyledLine& line);

// Exactly screen.rows lines of at most screen.columns columns each. Precondition: both are known.
[[nodiscard]] std::vector<StyledLine> RenderTop(const TopPage& page, const Screen& screen);
// How many tags that shows at once.
[[nodiscard]] std::size_t TopRowsOf(const Screen& screen);

// All tags once, as text.
[[nodiscard]] std::string RenderTopText(const TopPage& page, const Screen& screen);

// The newest values, the last on the right, `width` columns wide; `full` is as high as it gets.
[[nodiscard]] std::string Sparkline(const History& history, std::size_t width, double full,
                                    bool has_utf8);

// Columns that a terminal gives the text: of wide characters two, of combining ones none. Uses the
// character set of the locale.
[[nodiscard]] std::size_t DisplayWidth(std::string_view text);
// `text` in exactly `width` columns, cut with ".." or filled; without what the terminal could not
// show.
[[nodiscard]] std::string InColumns(std::string_view text, std::size_t width, Align align,
                                    bool has_utf8);

// In at most `width` columns, with k, M, G, T, P or E where it has too many digits.
[[nodiscard]] std::string ShortCount(double value, std::size_t width);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TOP_TOP_VIEW_H_
