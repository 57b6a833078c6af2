// SPDX-License-Identifier: Apache-2.0
//
// Properties of the terminal that idctl writes to, if it is one.
#ifndef IDD_TOOLS_TERMINAL_TERMINAL_H_
#define IDD_TOOLS_TERMINAL_TERMINAL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "terminal/output.h"

namespace idd::tools {

// How the output will be displayed. The defaults are for a pipe or a file: unlimited width, no
// colour, plain text.
struct Screen {
  bool is_terminal = false;
  std::size_t columns = 0;  // 0: no limit
  std::size_t rows = 0;     // 0: no limit
  bool has_color = false;   // a terminal, unless NO_COLOR is set or TERM is dumb or unset
  bool has_utf8 = false;    // the locale's character set, for bars and sparklines
};

// The screen of this descriptor. A terminal that does not report its size counts as 80x24.
[[nodiscard]] Screen ProbeScreen(int fd);

// Call once, before any output: adopts the locale's character set and nothing else of it. A missing
// locale counts as C.
void AdoptCharacterSet();

enum class Tone { kPlain, kGood, kWarning, kBad, kFaint, kStrong };
// `text` in that tone where colour is available. Its width does not change. Escape text of other
// origin first.
[[nodiscard]] std::string Toned(Tone tone, std::string_view text, const Screen& screen);

// At most `columns` characters, with "..." at the end if some are left out; 0: all of it.
[[nodiscard]] std::string FitTo(std::string_view text, std::size_t columns);

// `text` on as many lines as needed, broken at blanks; all but the first start with `indent`
// blanks. 0 columns: one line. A word longer than a line exceeds it.
[[nodiscard]] std::string WrapTo(std::string_view text, std::size_t columns, std::size_t indent);

// `text` on lines of at most `columns` characters (0: one line), broken anywhere. Each line starts
// with `indent` blanks and ends with a newline.
[[nodiscard]] std::string BreakTo(std::string_view text, std::size_t indent, std::size_t columns);

// A line on a terminal that shows the progress of long work; it is rewritten in place and erased at
// the end. On anything else, nothing. On standard error, so that it never mixes with the result.
//
// Not thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(int fd);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Redraws at most ten times a second; calls in between are dropped.
  void Show(std::string_view text);
  void Clear();
  [[nodiscard]] bool is_shown() const noexcept { return screen_.is_terminal; }

 private:
  const Screen screen_;
  Output out_;
  bool is_dirty_ = false;
  std::chrono::steady_clock::time_point shown_at_{};
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_TERMINAL_H_
