// SPDX-License-Identifier: Apache-2.0
#include "terminal/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>

namespace idd::tools {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kUsualRows = 24;
constexpr std::chrono::milliseconds kBetweenLines(100);

// Empty if it is not set.
std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only.
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool KnowsColor() {
  const std::string_view terminal = Variable("TERM");
  return Variable("NO_COLOR").empty() && !terminal.empty() && terminal != "dumb";
}

std::string_view ToneCode(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kWarning:
      return "\x1b[33m";
    case Tone::kBad:
      return "\x1b[1;31m";
    case Tone::kFaint:
      return "\x1b[2m";
    case Tone::kStrong:
      return "\x1b[1m";
  }
  return "";
}

}  // namespace

Screen ProbeScreen(int fd) {
  Screen screen;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the locale does not change after the start.
  screen.has_utf8 = std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
  screen.is_terminal = ::isatty(fd) == 1;
  if (!screen.is_terminal) return screen;
  winsize size{};
  const bool is_told = ::ioctl(fd, TIOCGWINSZ, &size) == 0;
  screen.columns = is_told && size.ws_col > 0 ? size.ws_col : kUsualColumns;
  screen.rows = is_told && size.ws_row > 0 ? size.ws_row : kUsualRows;
  screen.has_color = KnowsColor();
  return screen;
}

void AdoptCharacterSet() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before the first thread.
  static_cast<void>(std::setlocale(LC_CTYPE, ""));
}

std::string Toned(Tone tone, std::string_view text, const Screen& screen) {
  const std::string_view code = ToneCode(tone);
  if (!screen.has_color || code.empty()) return std::string(text);
  return std::string(code) + std::string(text) + "\x1b[0m";
}

std::string FitTo(std::string_view text, std::size_t columns) {
  if (columns == 0 || WidthInCharacters(text) <= columns) return std::string(text);
  constexpr std::string_view kEllipsis = "...";
  if (columns <= kEllipsis.size()) return std::string(FirstCharacters(text, columns));
  return std::string(FirstCharacters(text, columns - kEllipsis.size())) + std::string(kEllipsis);
}

std::string WrapTo(std::string_view text, std::size_t columns, std::size_t indent) {
  if (columns == 0) return std::string(text);
  std::string wrapped;
  std::size_t used = 0;
  bool is_first = true;
  while (!text.empty()) {
    // A word with the blanks before it; a new line drops these blanks.
    const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::size_t width = WidthInCharacters(text.substr(begin, end - begin));
    if (!is_first && used + begin + width > columns) {
      wrapped += "\n" + std::string(indent, ' ');
      used = indent;
    } else {
      wrapped += text.substr(0, begin);
      used += begin;
    }
    wrapped += text.substr(begin, end - begin);
    used += width;
    is_first = false;
    text.remove_prefix(end);
  }
  return wrapped;
}

std::string BreakTo(std::string_view text, std::size_t indent, std::size_t columns) {
  const std::size_t room = columns > indent ? columns - indent : 1;
  std::string lines;
  do {
    const std::string_view piece = columns == 0 ? text : FirstCharacters(text, room);
    // A character that is wider than the room takes a line of its own.
    const std::size_t bytes =
        piece.empty() && !text.empty() ? FirstCharacters(text, 2).size() : piece.size();
    lines += std::string(indent, ' ') + std::string(text.substr(0, bytes)) + "\n";
    text.remove_prefix(bytes);
  } while (!text.empty());
  return lines;
}

ProgressLine::ProgressLine(int fd) : screen_(ProbeScreen(fd)), out_(fd) {}

ProgressLine::~ProgressLine() { Clear(); }

void ProgressLine::Show(std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  if (!screen_.is_terminal || (is_dirty_ && now - shown_at_ < kBetweenLines)) return;
  shown_at_ = now;
  is_dirty_ = true;
  // One column stays free: a terminal may wrap when the last one is written.
  out_.Write("\r" + FitTo(EscapeText(text), screen_.columns - 1) + "\x1b[K");
  out_.Flush();
}

void ProgressLine::Clear() {
  if (!is_dirty_) return;
  is_dirty_ = false;
  out_.Write("\r\x1b[K");
  out_.Flush();
}

}  // namespace idd::tools
