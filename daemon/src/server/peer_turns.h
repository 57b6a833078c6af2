// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SERVER_PEER_TURNS_H_
#define IDD_DAEMON_SERVER_PEER_TURNS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "idd/base/clock.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Decides which connection's frame is read next. The users take turns: in a user's turn one frame
// is read, from its connection that has waited longest, so a user with a thousand connections
// delays the others no more than a user with one. A user over its limit gets no turn until it is
// below the limit again; meanwhile its clients' frames stay in the sockets.
//
// At most kFramesAtOnce frames are read before the event loop serves other events; fewer if they
// take long.
//
// Thread safety: none; event loop. Memory: an entry for each connection that waits.
class PeerTurns {
 public:
  // Reads one frame of the connection. False: there is no such connection any more.
  using Read = std::function<bool(std::uint64_t connection)>;
  // When the user's next frame may be read. A time that is not in the future means at once.
  using MayRead = std::function<MonotonicTime(uid_t uid, MonotonicTime now)>;

  static constexpr int kFramesAtOnce = 8;

  PeerTurns(EventLoop& loop, Read read, MayRead may_read)
      : loop_(loop),
        turn_timer_(loop),
        timer_(loop),
        read_(std::move(read)),
        may_read_(std::move(may_read)) {}
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
  // Reads one frame of the next user; false: there is none.
  [[nodiscard]] bool ReadNext();
  void Limit(uid_t uid, MonotonicTime until);
  void Release(MonotonicTime now);

  EventLoop& loop_;
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
  int read_at_once_ = 0;  // frames since the loop last served other events
  bool is_scheduled_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_PEER_TURNS_H_
