// SPDX-License-Identifier: Apache-2.0
//
// A full screen on the terminal: shows lines, reports keys, and restores the terminal at the end.
#ifndef IDD_TOOLS_TOP_TOP_SCREEN_H_
#define IDD_TOOLS_TOP_TOP_SCREEN_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "terminal/terminal.h"
#include "top/top_view.h"

namespace idd::tools {

enum class KeyKind { kText, kEnter, kEscape, kErase, kUp, kDown, kPageUp, kPageDown, kHome, kEnd };
struct Key {
  KeyKind kind = KeyKind::kText;
  std::string text;  // for kText: one character
};

enum class ScreenEvent {
  kTimeout,
  kKeys,
  kChanged,     // resized, or resumed after a stop: draw again
  kInterrupt,   // Ctrl-C
  kTerminated,  // another signal: see signal()
  kHungUp,      // the terminal is gone
};

// At most one object at a time. While it lives, signals that end or stop a program are blocked and
// arrive as events, so that the terminal is always restored first.
//
// Not thread-safe.
class TopScreen {
 public:
  // Nothing if the type of this terminal is unknown.
  [[nodiscard]] static std::unique_ptr<TopScreen> Open(int out_fd);
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  // The current screen.
  [[nodiscard]] Screen Probe() const;
  void Draw(const std::vector<StyledLine>& lines);
  // Waits for keys or another event, until that time at the latest.
  [[nodiscard]] ScreenEvent Wait(MonotonicTime until);
  [[nodiscard]] std::vector<Key> TakeKeys();
  // The signal that ended it.
  [[nodiscard]] int signal() const noexcept { return signal_; }

 private:
  struct Terminal;  // ncurses stays in top_screen.cc
  explicit TopScreen(std::unique_ptr<Terminal> terminal);

  [[nodiscard]] ScreenEvent TakeSignal();
  void StopUntilContinued() const;

  std::unique_ptr<Terminal> terminal_;
  int signal_ = 0;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_TOP_TOP_SCREEN_H_
