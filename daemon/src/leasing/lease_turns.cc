// SPDX-License-Identifier: Apache-2.0
#include "leasing/lease_turns.h"

#include <utility>

namespace idd::daemon {

void LeaseTurns::Ask(const std::string& tag) {
  if (!waiting_.insert(tag).second) return;
  turns_.push_back(tag);
  if (turns_.size() == 1) Serve();
}

// The first ones, as many as the budget has; the timer sees to the rest.
void LeaseTurns::Serve() {
  while (!turns_.empty()) {
    const std::uint64_t wanted = wanted_(turns_.front());
    const MonotonicTime now = MonotonicClock::now();
    if (wanted != 0 && !budget_.Take(now)) {
      timer_.At(budget_.NextAt(now), [this] { Serve(); });
      return;
    }
    const std::string tag = std::move(turns_.front());
    turns_.pop_front();
    waiting_.erase(tag);
    if (wanted != 0) start_(tag, wanted);
  }
}

void LeaseTurns::Stop() {
  turns_.clear();
  waiting_.clear();
  timer_.Cancel();
}

}  // namespace idd::daemon
