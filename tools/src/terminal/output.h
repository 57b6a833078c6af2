// SPDX-License-Identifier: Apache-2.0
//
// How idctl writes: a buffered writer that remembers its error, tables, and the text of values.
#ifndef IDD_TOOLS_TERMINAL_OUTPUT_H_
#define IDD_TOOLS_TERMINAL_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace idd::tools {

// A buffered writer on a descriptor that it does not own. The first error sticks and later output
// is dropped, so a long command can check ok() now and then and stop. Expects that SIGPIPE is
// ignored. Not thread-safe.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Write(std::string_view text);
  // Decimal digits.
  void WriteNumber(std::uint64_t value);
  [[nodiscard]] int fd() const noexcept { return fd_; }
  // Writes the buffer to the descriptor. Returns ok(). Unflushed text is lost with the object.
  bool Flush();

  [[nodiscard]] bool ok() const noexcept { return error_ == 0; }
  // The errno value of the first failed write, or 0.
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  static constexpr std::size_t kBufferBytes = 64 * 1024;

  int fd_;
  int error_ = 0;
  std::string buffer_;
};

enum class Align { kLeft, kRight };

struct Column {
  std::string_view title;
  Align align = Align::kLeft;
  int spare = 0;  // if room is short, the highest is left out first; 0: never
};

// Aligned text: a line of titles, then the rows, with two blanks between columns and none at the
// end of a line.
class Table {
 public:
  explicit Table(std::initializer_list<Column> columns);

  // Precondition: one cell for each column. Control characters in cells are escaped; an empty cell
  // is shown as "-", so that every line has the same number of fields.
  void AddRow(std::vector<std::string> cells);
  // `columns`: the width of the screen; 0: no limit. Columns that cannot be left out may exceed it.
  [[nodiscard]] std::string Format(std::size_t columns = 0) const;
  // As above, with `paint` applied to each cell except the titles; it must not change the width.
  using Paint = std::function<std::string(std::size_t column, const std::string& cell)>;
  [[nodiscard]] std::string Format(std::size_t columns, const Paint& paint) const;

 private:
  [[nodiscard]] std::vector<std::size_t> Widths() const;
  // False for the columns that are left out.
  [[nodiscard]] std::vector<bool> Shown(const std::vector<std::size_t>& widths,
                                        std::size_t columns) const;

  std::vector<Align> aligns_;
  std::vector<int> spares_;
  std::vector<std::vector<std::string>> rows_;  // the first one holds the titles
};

// `text` with every character that could move a terminal's cursor, start a new line or reverse the
// reading direction written as \xNN or \uNNNN, and bytes that are not UTF-8 as \xNN.
[[nodiscard]] std::string EscapeText(std::string_view text);

// 'text', escaped, in single quotes.
[[nodiscard]] std::string Quote(std::string_view text);

// "1 tag", "3 tags": for the noun "tag".
[[nodiscard]] std::string Counted(std::size_t count, std::string_view noun);

// The columns of the text on a terminal: a wide character takes two, if the locale knows it.
[[nodiscard]] std::size_t WidthInCharacters(std::string_view text);
// The longest prefix that fits that many columns.
[[nodiscard]] std::string_view FirstCharacters(std::string_view text, std::size_t count);

// True for well-formed UTF-8 (no overlong forms, no surrogates).
[[nodiscard]] bool IsUtf8(std::string_view text) noexcept;

// The two largest units, whole seconds at the finest: "0s", "45s", "12m 3s", "2h", "3d 4h".
// Negative counts as 0.
[[nodiscard]] std::string FormatDuration(double seconds);

// Ids per second: one decimal below 10, whole numbers above, never an exponent.
[[nodiscard]] std::string FormatRate(double per_second);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_OUTPUT_H_
