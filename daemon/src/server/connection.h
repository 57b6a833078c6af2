// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SERVER_CONNECTION_H_
#define IDD_DAEMON_SERVER_CONNECTION_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "access/peer.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/wire/frames.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Requests that one connection may have under way; one more is answered at once that there are too
// many.
inline constexpr std::size_t kMaxUnanswered = 1024;

// One accepted connection: says when there is something to be read, reads one frame each time that
// it is asked to, sends frames with descriptors, and ends on the first fault.
//
// What it has sent stays in the peer's queue when it is closed, and the descriptors in there count
// against a limit of the kernel for all that idd sends (RLIMIT_NOFILE). So a closed connection
// keeps its socket, shut down, until CheckArrived() has found them read or dropped.
//
// Thread safety: none; event loop. It never deletes itself: `on_close` is posted to the loop once,
// and nothing of it runs re-entrantly from Send().
class Connection {
 public:
  // There is something to be read: ReadOne() is to be called once, now or later.
  using OnReadable = std::function<void(Connection&)>;
  // The message is a whole one, not yet parsed; it is valid during the call.
  using OnMessage = std::function<void(Connection&, std::span<const std::byte>)>;
  using OnClose = std::function<void(std::uint64_t id)>;

  Connection(EventLoop& loop, ScopedFd socket, std::uint64_t id, Peer peer);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  struct Handlers {
    OnReadable on_readable;
    OnMessage on_message;
    OnClose on_close;
    // Descriptors of replies that wait here for the peer to have room: whether so many more may be
    // held, and that they are not held any more.
    std::function<bool(const Peer&, std::size_t)> hold;
    std::function<void(const Peer&, std::size_t)> release;
    // The same for those that are under way: that were sent, or wait here, and the peer has not
    // read.
    std::function<bool(const Peer&, std::size_t)> pass;
    std::function<void(const Peer&, std::size_t)> arrived;
  };
  void Start(Handlers handlers);

  // Reads one frame, if there is still one, and hands it to on_message; then waits for the next.
  void ReadOne();

  // Sends, or queues while the peer does not read; a peer with too many unread frames is closed.
  // The descriptors (-1: none) are the caller's and may be closed after the call.
  void Send(std::span<const std::byte> frame, std::array<int, 2> fds = {-1, -1});

  // Looks whether the peer has read everything, so that no descriptor is under way to it any more.
  void CheckArrived();
  [[nodiscard]] bool has_descriptors_under_way() const noexcept { return under_way_ > 0; }

  // Sends together with what follows: right behind it comes another of these, or a Send(). As many
  // as fit go in one message: a client of many waiting threads is woken once.
  void SendWithNext(std::span<const std::byte> frame);

  // Logs why, tells the peer in an ERROR frame if that needs no wait, and closes.
  void CloseWith(const Status& reason, std::uint64_t request_id = 0);

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const Peer& peer() const noexcept { return peer_; }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }

  bool admitted = false;       // counted among what its peer may have
  bool greeted = false;        // HELLO was exchanged
  bool awaits_turn = false;    // something is there that was not read yet
  std::string client_version;  // as HELLO told it: untrusted, for people
  std::uint32_t abi_version = 0;
  std::size_t unanswered = 0;  // requests under way

 private:
  struct QueuedFrame {
    std::vector<std::byte> bytes;
    std::array<ScopedFd, 2> fds;
  };

  void Enqueue(std::span<const std::byte> frame, const std::array<int, 2>& fds);
  [[nodiscard]] std::size_t GatherMessage(std::vector<std::byte>& message) const;
  void WaitReadable();
  void WaitWritable();
  void ReleaseDescriptors(std::size_t count);
  void Flush();
  void Close();
  void DropQueue();

  EventLoop& loop_;
  DescriptorWatch socket_;
  const std::uint64_t id_;
  const Peer peer_;
  Handlers handlers_;
  std::deque<QueuedFrame> queue_;
  std::size_t queued_descriptors_ = 0;
  std::size_t under_way_ = 0;  // descriptors, the queued ones among them
  bool is_watched_ = false;    // else there is no socket
  bool is_blocked_ = false;    // the peer's queue is full: what is queued waits until it reads
  bool closed_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_CONNECTION_H_
