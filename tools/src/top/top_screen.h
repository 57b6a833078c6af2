// SPDX-License-Identifier: Apache-2.0
//
// A full screen on the terminal: shows lines, tells keys, and leaves the terminal as it was.
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
  std::string text;  // of kText: one character
};

enum class ScreenEvent {
  kTimeout,
  kKeys,
  kChanged,     // another size, or back from a stop: draw again
  kInterrupt,   // Ctrl-C
  kTerminated,  // another signal: see signal()
  kHungUp,      // the terminal is gone
};

// At most one at a time. Signals that end or stop a program are blocked as long as it lives and
// come as events, so that the terminal is restored first, whatever happens.
//
// Not thread-safe.
class TopScreen {
 public:
  // Nothing when this terminal cannot do it: its type is not known.
  [[nodiscard]] static std::unique_ptr<TopScreen> Open(int out_fd);
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  // As it is now.
  [[nodiscard]] Screen Look() const;
  void Draw(const std::vector<StyledLine>& lines);
  // Waits for keys or for something else until then.
  [[nodiscard]] ScreenEvent Wait(MonotonicTime until);
  [[nodiscard]] std::vector<Key> TakeKeys();
  // That ended it.
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
