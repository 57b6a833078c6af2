// SPDX-License-Identifier: Apache-2.0
//
// What idctl knows of the terminal that it writes to, if it is one.
#ifndef IDD_TOOLS_TERMINAL_TERMINAL_H_
#define IDD_TOOLS_TERMINAL_TERMINAL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "terminal/output.h"

namespace idd::tools {

// How what is written will be seen. The default is that of a pipe or a file: as wide as need be,
// without colour, and text as it is.
struct Screen {
  bool is_terminal = false;
  std::size_t columns = 0;  // 0: no limit
  std::size_t rows = 0;     // 0: no limit
  bool has_color = false;   // a terminal, unless NO_COLOR is set or TERM is dumb or not set
  bool has_utf8 = false;    // the locale's character set, which may draw bars and sparklines
};

// Of this descriptor. A terminal that does not tell its size has 80x24.
[[nodiscard]] Screen ProbeScreen(int fd);

// Once, before anything is written: takes the character set of the locale and nothing else of it. A
// locale that does not exist is as good as C.
void AdoptCharacterSet();

enum class Tone { kPlain, kGood, kWarning, kBad, kFaint, kStrong };
// `text` in that tone where there is colour. Its width does not change. The text must not come from
// elsewhere unescaped.
[[nodiscard]] std::string Toned(Tone tone, std::string_view text, const Screen& screen);

// At most `columns` characters, with "..." at the end if some are left out; 0: all of it.
[[nodiscard]] std::string FitTo(std::string_view text, std::size_t columns);

// `text` on as many lines as it needs, broken at blanks, all but the first begun with `indent` of
// them; 0 columns: one line. A word that is longer than a line goes beyond it.
[[nodiscard]] std::string WrapTo(std::string_view text, std::size_t columns, std::size_t indent);

// A line on a terminal that says how far long work is, written over again and wiped at the end; on
// anything else nothing at all. On standard error, so that it never mixes with the result.
//
// Not thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(int fd);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // At most ten times a second; what comes in between is dropped.
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
