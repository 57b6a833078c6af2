// SPDX-License-Identifier: Apache-2.0
#include "top/full_screen.h"

#include <csignal>
#include <memory>

namespace idd::tools {
namespace {

// Returns the signal that ended it, or 0.
Result<int> RunOn(TopScreen& terminal, const FullScreen& shown) {
  MonotonicTime next = shown.first_refresh;
  while (true) {
    if (MonotonicClock::now() >= next) {
      if (Status status = shown.refresh(); !status.ok()) return status;
      next = MonotonicClock::now() + shown.interval;
    }
    const Screen screen = terminal.Probe();
    terminal.Draw(shown.draw(screen));
    switch (terminal.Wait(next)) {
      case ScreenEvent::kTimeout:
      case ScreenEvent::kChanged:
        break;
      case ScreenEvent::kKeys:
        for (const Key& key : terminal.TakeKeys()) {
          if (!shown.press(key, screen)) return 0;
        }
        break;
      case ScreenEvent::kInterrupt:
      case ScreenEvent::kHungUp:
        return 0;
      case ScreenEvent::kTerminated:
        return terminal.signal();
    }
  }
}

}  // namespace

std::optional<Status> Show(const FullScreen& shown, int out_fd) {
  std::unique_ptr<TopScreen> terminal = TopScreen::Open(out_fd);
  if (terminal == nullptr) return std::nullopt;
  const Result<int> ended = RunOn(*terminal, shown);
  terminal.reset();  // restores the terminal first
  if (!ended.ok()) return ended.status();
  if (ended.value() != 0) {
    std::signal(ended.value(), SIG_DFL);
    ::raise(ended.value());
  }
  return Status::Ok();
}

}  // namespace idd::tools
