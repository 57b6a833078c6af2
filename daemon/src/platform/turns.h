// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_TURNS_H_
#define IDD_DAEMON_PLATFORM_TURNS_H_

#include <functional>

#include "platform/event_loop.h"

namespace idd::daemon {

// Does long work in turns of the event loop. The work is a step that is repeated: when the turn is
// over (EventLoop::IsTurnOver()), the next step waits until the loop has served what else is due.
// So the state that the steps work on may change between any two of them.
//
// Thread safety: none; event loop.
class Turns {
 public:
  enum class Next {
    kEnd,   // nothing is left
    kStep,  // another step may follow at once
    kTurn,  // another step must wait for another turn, and for the pause before it
  };
  // Does a small part of the work. It may call Begin() and Cancel(), but must not destroy the
  // Turns.
  using Step = std::function<Next()>;
  // Calls `go_on` later on the loop, when the next turn may begin. Turns that only took long enough
  // need no pause.
  using Pause = std::function<void(std::function<void()> go_on)>;

  // With a `pause`, this object must live as long as the loop runs.
  explicit Turns(EventLoop& loop, Pause pause = {});
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Begins with the first step in this call. Replaces work that is under way.
  void Begin(Step step);
  // Ends the work where it is.
  void Cancel();
  [[nodiscard]] bool is_under_way() const noexcept { return is_under_way_; }

 private:
  void TakeTurn(Step step);

  EventLoop& loop_;
  const Pause pause_;
  Timer timer_;
  bool is_under_way_ = false;
  unsigned work_ = 0;  // the number of Begin() and Cancel() calls
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_TURNS_H_
