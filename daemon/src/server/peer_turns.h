// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SERVER_PEER_TURNS_H_
#define IDD_DAEMON_SERVER_PEER_TURNS_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "idd/base/clock.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Decides which connection's frame is read next. The users take turns: in a user's turn one frame
// is read, from its connection that has waited longest, so a user with a thousand connections
// delays the others no more than a user with one. A user over its limit gets no turn until it is
// below the limit again; meanwhile its clients' frames stay in the sockets.
//
// Before the event loop serves other events, at most kFramesAtOnce frames are read, and none after
// kTurn: a frame that is cheap to send may be expensive to serve.
//
// Thread safety: none; event loop. Memory: an entry for each connection that waits.
class PeerTurns {
 public:
  // Reads one frame of the connection; returns how long that took, or nothing: there is no such
  // connection any more.
  using Read = std::function<std::optional<MonotonicClock::duration>(std::uint64_t connection)>;
  // When the user's next frame may be read. A time that is not in the future means at once.
  using MayRead = std::function<MonotonicTime(uid_t uid, MonotonicTime now)>;

  static constexpr int kFramesAtOnce = 8;
  static constexpr std::chrono::microseconds kTurn{50};

  PeerTurns(EventLoop& loop, Read read, MayRead may_read)
      : turn_timer_(loop), timer_(loop), read_(std::move(read)), may_read_(std::move(may_read)) {}
  PeerTurns(const PeerTurns&) = delete;
  PeerTurns& operator=(const PeerTurns&) = delete;

  // The connection has something to read: it is read once, now or in its user's turn.
  void Add(uid_t uid, std::uint64_t connection);
  // The limits have changed: checks again the users that wait for them.
  void Reconsider();

  // Connections that wait.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

 private:
  void Schedule();
  void TakeTurns();
  void BeginTurn() {
    frames_ = 0;
    used_ = {};
  }
  [[nodiscard]] bool IsTurnOver() const { return frames_ >= kFramesAtOnce || used_ >= kTurn; }
  // Reads one frame; false: the connection is gone.
  bool ReadOne(std::uint64_t connection);
  // Reads one frame of the next user; false: there is none.
  [[nodiscard]] bool ReadNext();
  void Limit(uid_t uid, MonotonicTime until);
  void Release(MonotonicTime now);

  Timer turn_timer_;
  Timer timer_;  // for the first of limited_
  const Read read_;
  const MayRead may_read_;
  // The waiting connections of each user that has any. Such a user is either in order_ or in
  // limited_.
  std::map<uid_t, std::deque<std::uint64_t>> users_;
  std::deque<uid_t> order_;
  std::multimap<MonotonicTime, uid_t> limited_;
  std::size_t waiting_ = 0;
  // Since the loop last served other events: frames that were read, and the time that they took.
  int frames_ = 0;
  MonotonicClock::duration used_{};
  bool is_scheduled_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_PEER_TURNS_H_
