// SPDX-License-Identifier: Apache-2.0
#include "server/claim_pacer.h"

#include <utility>

namespace idd::daemon {

void ClaimPacer::Add(MonotonicTime at, ClaimOrder order) {
  const auto it = waiting_.emplace(at, std::move(order));
  if (it == waiting_.begin()) Arm();
}

std::vector<ClaimOrder> ClaimPacer::Drop(std::uint64_t owner) {
  std::vector<ClaimOrder> dropped;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second.owner != owner) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second));
    it = waiting_.erase(it);
  }
  return dropped;
}

void ClaimPacer::Arm() {
  if (waiting_.empty()) return;
  timer_.At(waiting_.begin()->first, [this] { ServeDue(); });
}

void ClaimPacer::ServeDue() {
  const MonotonicTime now = MonotonicClock::now();
  std::vector<ClaimOrder> due;
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    due.push_back(std::move(waiting_.begin()->second));
    waiting_.erase(waiting_.begin());
  }
  Arm();
  for (ClaimOrder& order : due) due_(std::move(order));
}

}  // namespace idd::daemon
