// SPDX-License-Identifier: Apache-2.0
#include "platform/turns.h"

#include <chrono>
#include <utility>

namespace idd::daemon {

Turns::Turns(EventLoop& loop, Pause pause) : loop_(loop), pause_(std::move(pause)), timer_(loop) {}

void Turns::Begin(Step step) {
  Cancel();
  is_under_way_ = true;
  TakeTurn(std::move(step));
}

void Turns::Cancel() {
  ++work_;
  is_under_way_ = false;
  timer_.Cancel();
}

// The loop owns the step between two turns: a step that owns this object is destroyed with the
// loop, if its next turn never comes.
void Turns::TakeTurn(Step step) {
  const unsigned work = work_;
  Next next = Next::kStep;
  do {
    next = step();
    if (work != work_) return;  // the step has ended its work, or begun other work
    is_under_way_ = next != Next::kEnd;
    if (next == Next::kEnd) return;
  } while (next == Next::kStep && !loop_.IsTurnOver());
  auto go_on = [this, work, step = std::move(step)]() mutable {
    if (work == work_) TakeTurn(std::move(step));
  };
  if (next == Next::kTurn && pause_) return pause_(std::move(go_on));
  timer_.After(std::chrono::nanoseconds(0), std::move(go_on));
}

}  // namespace idd::daemon
