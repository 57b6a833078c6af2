// SPDX-License-Identifier: Apache-2.0
#include "top/top_screen.h"

#include <curses.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cwchar>
#include <utility>

#include "terminal/terminal_type.h"

namespace idd::tools {
namespace {

constexpr int kEscapeDelayMs = 25;
constexpr short kGoodPair = 1;
constexpr short kWarningPair = 2;
constexpr short kBadPair = 3;

sigset_t HandledSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT}) {
    ::sigaddset(&signals, number);
  }
  return signals;
}

// Attributes for a terminal without colour, as far as it has them.
attr_t AttributesOf(Tone tone, bool has_color) {
  switch (tone) {
    case Tone::kPlain:
      break;
    case Tone::kGood:
      return has_color ? COLOR_PAIR(kGoodPair) : A_NORMAL;
    case Tone::kWarning:
      return has_color ? COLOR_PAIR(kWarningPair) : A_BOLD;
    case Tone::kBad:
      return A_BOLD | (has_color ? COLOR_PAIR(kBadPair) : A_REVERSE);
    case Tone::kFaint:
      return A_DIM;
    case Tone::kStrong:
      return A_BOLD;
  }
  return A_NORMAL;
}

// One character in UTF-8 or the locale's encoding; empty if the locale cannot encode it.
std::string TextOf(wint_t character) {
  std::array<char, MB_LEN_MAX> bytes{};
  std::mbstate_t state{};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the state is ours.
  const std::size_t count = std::wcrtomb(bytes.data(), static_cast<wchar_t>(character), &state);
  if (count == static_cast<std::size_t>(-1)) return {};
  return {bytes.data(), count};
}

// Nothing for keys without a meaning here.
std::vector<Key> KeyOf(int kind, wint_t code) {
  if (kind == KEY_CODE_YES) {
    switch (code) {
      case KEY_UP:
        return {{KeyKind::kUp, {}}};
      case KEY_DOWN:
        return {{KeyKind::kDown, {}}};
      case KEY_PPAGE:
        return {{KeyKind::kPageUp, {}}};
      case KEY_NPAGE:
        return {{KeyKind::kPageDown, {}}};
      case KEY_HOME:
        return {{KeyKind::kHome, {}}};
      case KEY_END:
        return {{KeyKind::kEnd, {}}};
      case KEY_ENTER:
        return {{KeyKind::kEnter, {}}};
      case KEY_BACKSPACE:
      case KEY_DC:
        return {{KeyKind::kErase, {}}};
      default:
        return {};
    }
  }
  if (code == '\n' || code == '\r') return {{KeyKind::kEnter, {}}};
  if (code == 0x1b) return {{KeyKind::kEscape, {}}};
  if (code == 0x7f || code == '\b') return {{KeyKind::kErase, {}}};
  if (code < 0x20) return {};
  return {{KeyKind::kText, TextOf(code)}};
}

}  // namespace

struct TopScreen::Terminal {
  SCREEN* screen = nullptr;
  sigset_t mask_before{};
  ScopedFd signals;
  int out_fd = -1;
  bool has_color = false;
};

std::unique_ptr<TopScreen> TopScreen::Open(int out_fd) {
  auto terminal = std::make_unique<Terminal>();
  terminal->out_fd = out_fd;
  // Before ncurses installs its handlers, which would end the program without running destructors.
  const sigset_t handled = HandledSignals();
  if (::pthread_sigmask(SIG_BLOCK, &handled, &terminal->mask_before) != 0) return nullptr;
  terminal->signals.reset(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  // Checked first: a newterm() that fails leaks its memory.
  if (terminal->signals.valid() && CanMoveCursor(out_fd)) {
    terminal->screen = ::newterm(nullptr, stdout, stdin);
  }
  if (terminal->screen == nullptr) {
    ::pthread_sigmask(SIG_SETMASK, &terminal->mask_before, nullptr);
    return nullptr;
  }
  terminal->has_color = ProbeScreen(out_fd).has_color && ::has_colors();
  return std::unique_ptr<TopScreen>(new TopScreen(std::move(terminal)));
}

TopScreen::TopScreen(std::unique_ptr<Terminal> terminal) : terminal_(std::move(terminal)) {
  ::set_escdelay(kEscapeDelayMs);
  ::cbreak();
  ::noecho();
  ::nonl();
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  if (!terminal_->has_color) return;
  ::start_color();
  ::use_default_colors();
  ::init_pair(kGoodPair, COLOR_GREEN, -1);
  ::init_pair(kWarningPair, COLOR_YELLOW, -1);
  ::init_pair(kBadPair, COLOR_RED, -1);
}

TopScreen::~TopScreen() {
  ::endwin();
  ::delscreen(terminal_->screen);
  ::pthread_sigmask(SIG_SETMASK, &terminal_->mask_before, nullptr);
}

Screen TopScreen::Probe() const { return ProbeScreen(terminal_->out_fd); }

void TopScreen::Draw(const std::vector<StyledLine>& lines) {
  ::werase(stdscr);
  for (std::size_t y = 0; y < std::min<std::size_t>(lines.size(), SHRT_MAX); ++y) {
    ::wmove(stdscr, static_cast<int>(y), 0);
    for (const Span& span : lines[y]) {
      ::wattrset(stdscr, static_cast<int>(AttributesOf(span.tone, terminal_->has_color)));
      ::waddnstr(stdscr, span.text.data(), static_cast<int>(span.text.size()));
    }
  }
  ::wattrset(stdscr, A_NORMAL);
  ::wrefresh(stdscr);
}

ScreenEvent TopScreen::Wait(MonotonicTime until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - MonotonicClock::now());
  std::array<pollfd, 2> sources = {
      {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
       {.fd = terminal_->signals.get(), .events = POLLIN, .revents = 0}}};
  const auto wait_ms = std::clamp<std::int64_t>(left.count(), 0, INT_MAX);
  if (::poll(sources.data(), sources.size(), static_cast<int>(wait_ms)) <= 0) {
    return ScreenEvent::kTimeout;
  }
  if (sources[1].revents != 0) return TakeSignal();
  if ((sources[0].revents & ~POLLIN) != 0) return ScreenEvent::kHungUp;
  return ScreenEvent::kKeys;
}

ScreenEvent TopScreen::TakeSignal() {
  signalfd_siginfo info{};
  if (::read(terminal_->signals.get(), &info, sizeof(info)) != sizeof(info)) {
    return ScreenEvent::kTimeout;
  }
  signal_ = static_cast<int>(info.ssi_signo);
  switch (signal_) {
    case SIGTSTP:
      StopUntilContinued();
      return ScreenEvent::kChanged;
    case SIGWINCH:
    case SIGCONT: {
      const Screen screen = Probe();
      ::resizeterm(static_cast<int>(std::min<std::size_t>(screen.rows, SHRT_MAX)),
                   static_cast<int>(std::min<std::size_t>(screen.columns, SHRT_MAX)));
      ::clearok(curscr, TRUE);
      return ScreenEvent::kChanged;
    }
    case SIGINT:
      return ScreenEvent::kInterrupt;
    default:
      return ScreenEvent::kTerminated;
  }
}

// The shell owns the terminal until it resumes this process; the size may have changed by then.
void TopScreen::StopUntilContinued() const {
  ::endwin();
  ::raise(SIGSTOP);
  const Screen screen = Probe();
  ::resizeterm(static_cast<int>(std::min<std::size_t>(screen.rows, SHRT_MAX)),
               static_cast<int>(std::min<std::size_t>(screen.columns, SHRT_MAX)));
  ::clearok(curscr, TRUE);
  ::wrefresh(stdscr);
}

std::vector<Key> TopScreen::TakeKeys() {
  constexpr std::size_t kMaxAtOnce = 256;
  std::vector<Key> keys;
  for (std::size_t i = 0; i < kMaxAtOnce; ++i) {
    wint_t code = 0;
    const int kind = ::wget_wch(stdscr, &code);
    if (kind == ERR) break;
    for (Key& key : KeyOf(kind, code)) keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace idd::tools
