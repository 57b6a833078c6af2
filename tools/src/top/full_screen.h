// SPDX-License-Identifier: Apache-2.0
//
// Shows pages on the whole terminal until the user quits.
#ifndef IDD_TOOLS_TOP_FULL_SCREEN_H_
#define IDD_TOOLS_TOP_FULL_SCREEN_H_

#include <functional>
#include <optional>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "terminal/terminal.h"
#include "top/top_screen.h"
#include "top/top_view.h"

namespace idd::tools {

struct FullScreen {
  MonotonicClock::duration interval{};  // between refreshes
  MonotonicTime first_refresh;          // its time
  std::function<Status()> refresh;      // an error ends the screen
  std::function<std::vector<StyledLine>(const Screen& screen)> draw;
  std::function<bool(const Key& key, const Screen& screen)> press;  // false: the user quits
};

// Returns the error of a refresh. Nothing: the terminal does not support a full screen. If a signal
// ends it, the signal's default action follows, so that its sender sees the effect.
[[nodiscard]] std::optional<Status> Show(const FullScreen& shown, int out_fd);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TOP_FULL_SCREEN_H_
