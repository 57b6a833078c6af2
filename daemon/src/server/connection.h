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

// How many requests one connection may have under way. A further request is refused at once.
inline constexpr std::size_t kMaxUnanswered = 1024;

// One accepted connection: reports when there is something to read, reads one frame per call of
// ReadOne(), sends frames with descriptors, and closes on the first error.
//
// Messages that were sent stay in the peer's queue after the close, and descriptors in them count
// against the kernel's limit for all descriptors that idd sends (RLIMIT_NOFILE). So a closed
// connection keeps its socket, shut down, until CheckArrived() has found them read or dropped.
//
// It has more members than a class should: it also holds what Server records about the peer, so
// that there is one table of connections.
//
// Thread safety: none; event loop. It never deletes itself: `on_close` is posted to the loop once,
// and neither `on_readable` nor `on_message` is called from within Send().
class Connection {
 public:
  // There is something to read: ReadOne() must be called once, now or later.
  using OnReadable = std::function<void(Connection&)>;
  // The message is complete and not yet parsed. It is valid during the call.
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
    // For descriptors of replies that wait here until the peer has room: `hold` asks whether so
    // many more may be held, `release` reports that they are no longer held.
    std::function<bool(const Peer&, std::size_t)> hold;
    std::function<void(const Peer&, std::size_t)> release;
    // The same for descriptors under way, which wait here or were sent and not yet read.
    std::function<bool(const Peer&, std::size_t)> pass;
    std::function<void(const Peer&, std::size_t)> arrived;
  };
  void Start(Handlers handlers);

  // Reads one frame, if there is still one, and hands it to on_message; then waits for the next.
  // False: there was none.
  bool ReadOne();

  // Sends, or queues while the peer does not read; a peer with too many unread frames is closed.
  // The descriptors (-1: none) are the caller's and may be closed after the call.
  void Send(std::span<const std::byte> frame, std::array<int, 2> fds = {-1, -1});

  // Checks whether the peer has read everything, so that no descriptor is under way to it any more.
  void CheckArrived();
  [[nodiscard]] bool has_descriptors_under_way() const noexcept { return under_way_ > 0; }

  // Sends the frame together with the next one: another SendWithNext() or a Send() must follow at
  // once. As many frames as fit go in one message, so that a client with many waiting threads is
  // woken once.
  void SendWithNext(std::span<const std::byte> frame);

  // Logs the reason, sends it to the peer in an ERROR frame if that needs no wait, and closes.
  void CloseWith(const Status& reason, std::uint64_t request_id = 0);

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const Peer& peer() const noexcept { return peer_; }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }

  bool admitted = false;       // counted against its peer's limits
  bool greeted = false;        // HELLO was exchanged
  bool awaits_turn = false;    // there is something that was not read yet
  std::string client_version;  // from HELLO: untrusted, for people
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
  std::size_t under_way_ = 0;  // descriptors, including the queued ones
  bool is_watched_ = false;    // else there is no socket
  bool is_blocked_ = false;    // the peer's queue is full: frames wait until the peer reads
  bool closed_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_CONNECTION_H_
