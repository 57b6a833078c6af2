// SPDX-License-Identifier: Apache-2.0
#include "terminal/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cwchar>
#include <utility>

#include "idd/base/check.h"
#include "idd/base/utf8.h"

namespace idd::tools {
namespace {

// Between two columns of a table.
constexpr std::string_view kGap = "  ";

std::uint32_t ByteAt(std::string_view text, std::size_t index) {
  return static_cast<unsigned char>(text[index]);
}

// Control characters, line and paragraph separators, and marks that change the reading direction.
bool IsUnprintable(std::uint32_t code) {
  return IsControl(code) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string EscapeCode(std::uint32_t code) {
  std::array<char, 16> text{};
  if (code < 0x100) {
    std::snprintf(text.data(), text.size(), "\\x%02x", code);
  } else {
    std::snprintf(text.data(), text.size(), "\\u%04x", code);
  }
  return text.data();
}

// The length of the first character, or 1 for a byte that is not one.
std::size_t BytesOf(std::string_view text) {
  return std::max<std::size_t>(FirstUtf8Character(text).bytes, 1);
}

// The columns that a terminal uses: two for a wide character, none for a combining one, one for a
// character that the locale does not know.
std::size_t ColumnsOf(std::string_view text) {
  const Utf8Character character = FirstUtf8Character(text);
  if (character.bytes <= 1) return 1;
  const int columns = ::wcwidth(static_cast<wchar_t>(character.code));
  return columns < 0 ? 1 : static_cast<std::size_t>(columns);
}

// Writes all bytes. Returns 0 or an errno value.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    // Another program has made the shared terminal or pipe non-blocking.
    pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
    if (::poll(&writable, 1, -1) < 0 && errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

void Output::Write(std::string_view text) {
  if (!ok()) return;
  buffer_.append(text);
  if (buffer_.size() >= kBufferBytes) Flush();
}

void Output::WriteNumber(std::uint64_t value) {
  std::array<char, 20> digits{};
  const auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  Write(std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data())));
}

bool Output::Flush() {
  if (ok()) error_ = WriteAll(fd_, buffer_);
  buffer_.clear();
  return ok();
}

Table::Table(std::initializer_list<Column> columns) {
  std::vector<std::string> titles;
  for (const Column& column : columns) {
    titles.emplace_back(column.title);
    aligns_.push_back(column.align);
    spares_.push_back(column.spare);
  }
  rows_.push_back(std::move(titles));
}

void Table::AddRow(std::vector<std::string> cells) {
  IDD_CHECK(cells.size() == aligns_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : EscapeText(cell);
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::Widths() const {
  std::vector<std::size_t> widths(aligns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], WidthInCharacters(row[i]));
    }
  }
  return widths;
}

std::vector<bool> Table::Shown(const std::vector<std::size_t>& widths, std::size_t columns) const {
  std::vector<bool> shown(widths.size(), true);
  std::size_t total = 0;
  for (const std::size_t width : widths) total += width + kGap.size();
  while (columns > 0 && total > columns + kGap.size()) {
    std::size_t sparest = 0;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (shown[i] && spares_[i] > (shown[sparest] ? spares_[sparest] : 0)) sparest = i;
    }
    if (!shown[sparest] || spares_[sparest] == 0) break;
    shown[sparest] = false;
    total -= widths[sparest] + kGap.size();
  }
  return shown;
}

std::string Table::Format(std::size_t columns) const { return Format(columns, nullptr); }

std::string Table::Format(std::size_t columns, const Paint& paint) const {
  const std::vector<std::size_t> widths = Widths();
  const std::vector<bool> shown = Shown(widths, columns);
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!shown[i]) continue;
      const std::string padding(widths[i] - WidthInCharacters(row[i]), ' ');
      const std::string cell = paint && &row != &rows_.front() ? paint(i, row[i]) : row[i];
      if (!line.empty()) line += kGap;
      line += aligns_[i] == Align::kRight ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::size_t WidthInCharacters(std::string_view text) {
  std::size_t width = 0;
  for (; !text.empty(); text.remove_prefix(BytesOf(text))) width += ColumnsOf(text);
  return width;
}

std::string_view FirstCharacters(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  std::size_t columns = 0;
  for (std::string_view rest = text; !rest.empty(); rest = text.substr(end)) {
    columns += ColumnsOf(rest);
    if (columns > count) break;
    end += BytesOf(rest);
  }
  return text.substr(0, end);
}

std::string EscapeText(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = FirstUtf8Character(text);
    const std::size_t bytes = std::max<std::size_t>(character.bytes, 1);
    if (character.bytes == 0) {
      escaped += EscapeCode(ByteAt(text, 0));
    } else if (IsUnprintable(character.code)) {
      escaped += EscapeCode(character.code);
    } else {
      escaped += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return escaped;
}

std::string Quote(std::string_view text) { return "'" + EscapeText(text) + "'"; }

std::string Counted(std::size_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

bool IsUtf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const Utf8Character character = FirstUtf8Character(text);
    if (character.bytes == 0) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string FormatDuration(double seconds) {
  constexpr double kLongest = 1e15;  // far beyond any uptime, far below the end of uint64_t
  constexpr std::array<std::pair<std::uint64_t, char>, 4> kUnits = {
      {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}}};
  if (!(seconds >= 1)) return "0s";
  auto left = static_cast<std::uint64_t>(std::min(seconds, kLongest));
  std::size_t unit = 0;
  while (left < kUnits[unit].first) ++unit;
  std::string text = std::to_string(left / kUnits[unit].first) + kUnits[unit].second;
  left %= kUnits[unit].first;
  if (++unit < kUnits.size() && left >= kUnits[unit].first) {
    text += " " + std::to_string(left / kUnits[unit].first) + kUnits[unit].second;
  }
  return text;
}

std::string FormatRate(double per_second) {
  constexpr double kLargest = 1e18;
  if (!(per_second > 0)) return "0";
  if (per_second >= 9.95) {
    return std::to_string(std::llround(std::min(per_second, kLargest)));
  }
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%.1f", per_second);
  return text.data();
}

}  // namespace idd::tools
