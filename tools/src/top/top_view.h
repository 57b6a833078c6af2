// SPDX-License-Identifier: Apache-2.0
//
// The layout of `idctl top`. Pure: the model in, lines out; top_screen.h displays them.
#ifndef IDD_TOOLS_TOP_TOP_VIEW_H_
#define IDD_TOOLS_TOP_TOP_VIEW_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/terminal.h"
#include "top/top_model.h"

namespace idd::tools {

// On a smaller screen top asks for more room.
inline constexpr std::size_t kLeastTopColumns = 40;
inline constexpr std::size_t kLeastTopRows = 8;

struct TopPage {
  TopHead head;
  TopSums sums;                     // over all tags
  std::vector<const TopTag*> tags;  // the visible tags, arranged
  TopArrangement arrangement;
  bool is_typing_filter = false;
  double interval_s = 1;
  std::size_t first = 0;  // index in `tags` of the first line
};

struct Span {
  Tone tone = Tone::kPlain;
  std::string text;  // printable characters that the screen supports
  friend bool operator==(const Span&, const Span&) = default;
};
using StyledLine = std::vector<Span>;
[[nodiscard]] std::string PlainText(const StyledLine& line);

// Exactly screen.rows lines of at most screen.columns columns each. Precondition: both are known.
[[nodiscard]] std::vector<StyledLine> RenderTop(const TopPage& page, const Screen& screen);
// The number of tags that fit the screen at once.
[[nodiscard]] std::size_t TopRowsOf(const Screen& screen);

// All tags as text, once.
[[nodiscard]] std::string RenderTopText(const TopPage& page, const Screen& screen);

// The newest values, the last one on the right, `width` columns wide; `full` is the value of a full
// bar.
[[nodiscard]] std::string Sparkline(const History& history, std::size_t width, double full,
                                    bool has_utf8);

// The terminal columns of the text: two for a wide character, none for a combining one. Uses the
// locale's character set.
[[nodiscard]] std::size_t DisplayWidth(std::string_view text);
// `text` in exactly `width` columns, cut with ".." or padded, without characters that the terminal
// could not show.
[[nodiscard]] std::string InColumns(std::string_view text, std::size_t width, Align align,
                                    bool has_utf8);

// At most `width` columns; k, M, G, T, P or E replaces excess digits.
[[nodiscard]] std::string ShortCount(double value, std::size_t width);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TOP_TOP_VIEW_H_
