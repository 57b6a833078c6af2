// SPDX-License-Identifier: Apache-2.0
#include "server/peer_turns.h"

#include <chrono>
#include <utility>

namespace idd::daemon {

// While no user waits, a frame is read at once, which spares a quiet daemon a turn of the loop for
// each. That ends with a turn, because the loop may have found many readable connections at once.
void PeerTurns::Add(uid_t uid, std::uint64_t connection) {
  if (order_.empty() && !IsTurnOver() && !users_.contains(uid)) {
    const MonotonicTime now = MonotonicClock::now();
    if (may_read_(uid, now) <= now) {
      ReadOne(connection);
      return;
    }
  }
  std::deque<std::uint64_t>& connections = users_[uid];
  connections.push_back(connection);
  ++waiting_;
  if (connections.size() == 1) order_.push_back(uid);
  Schedule();
}

void PeerTurns::Schedule() {
  if (is_scheduled_ || order_.empty()) return;
  is_scheduled_ = true;
  turn_timer_.After(std::chrono::nanoseconds(0), [this] { TakeTurns(); });
}

void PeerTurns::TakeTurns() {
  is_scheduled_ = false;
  BeginTurn();
  while (!IsTurnOver() && ReadNext()) {
  }
  BeginTurn();
  Schedule();
}

bool PeerTurns::ReadOne(std::uint64_t connection) {
  const std::optional<MonotonicClock::duration> used = read_(connection);
  if (!used.has_value()) return false;
  ++frames_;
  used_ += *used;
  return true;
}

bool PeerTurns::ReadNext() {
  while (!order_.empty()) {
    const uid_t uid = order_.front();
    order_.pop_front();
    const MonotonicTime now = MonotonicClock::now();
    const MonotonicTime at = may_read_(uid, now);
    if (at > now) {
      Limit(uid, at);
      continue;
    }
    const auto user = users_.find(uid);
    const std::uint64_t connection = user->second.front();
    user->second.pop_front();
    --waiting_;
    if (user->second.empty()) {
      users_.erase(user);
    } else {
      order_.push_back(uid);
    }
    if (ReadOne(connection)) return true;
  }
  return false;
}

void PeerTurns::Limit(uid_t uid, MonotonicTime until) {
  const auto it = limited_.emplace(until, uid);
  if (it == limited_.begin()) {
    timer_.At(until, [this] { Release(MonotonicClock::now()); });
  }
}

void PeerTurns::Reconsider() { Release(MonotonicTime::max()); }

void PeerTurns::Release(MonotonicTime now) {
  while (!limited_.empty() && limited_.begin()->first <= now) {
    const uid_t uid = limited_.begin()->second;
    limited_.erase(limited_.begin());
    order_.push_back(uid);
  }
  if (limited_.empty()) {
    timer_.Cancel();
  } else {
    timer_.At(limited_.begin()->first, [this] { Release(MonotonicClock::now()); });
  }
  Schedule();
}

}  // namespace idd::daemon
