// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_WIRE_CHANNEL_H_
#define IDD_WIRE_CHANNEL_H_

#include <sys/types.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/guarded_fd.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/wire/frames.h"

namespace idd::wire {

// A received frame with the descriptors that came with it.
struct Message {
  std::vector<std::byte> bytes;
  std::array<ScopedFd, 2> fds;  // filled from the front
};

// A client's blocking connection to the daemon's socket: every call ends by its deadline.
//
// The program may have closed the descriptor and opened another file under its number. Then the
// connection counts as broken, and that file is neither written, read nor closed.
//
// Thread safety: Send and Receive may run concurrently with each other, but neither with itself.
class Channel {
 public:
  // Connects, even to a daemon that is stopped with a full backlog, within the deadline, and checks
  // that the listener's process runs as root, as this process's user, as `trusted_uid` if given, or
  // as the user `idd`. kUnavailable (no process listens, deadline), kDenied (permission, wrong
  // owner), kInvalid (path empty or too long), kIncompatible (another type of socket), kSystem.
  [[nodiscard]] static Result<Channel> Connect(const std::string& path, Deadline deadline,
                                               std::optional<uid_t> trusted_uid);

  // kUnavailable when the peer is gone, kTimeout when it does not read.
  [[nodiscard]] Status Send(std::span<const std::byte> frame, Deadline deadline);
  // One non-blocking try, for notices that may be lost.
  [[nodiscard]] bool TrySend(std::span<const std::byte> frame) noexcept;
  // The next frame, of a message that may hold several. kUnavailable when the peer closed,
  // kTimeout, kInvalid (longer than a message may be), kSystem (no free descriptor).
  [[nodiscard]] Result<Message> Receive(Deadline deadline);

  // Sends `frame` and returns the reply with its request id and type, skipping late replies to
  // earlier requests. A kError frame of the daemon comes back as its Status.
  [[nodiscard]] Result<Message> Exchange(std::span<const std::byte> frame, Deadline deadline);

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const FileIdentity& identity() const noexcept { return fd_.identity(); }
  // False once the program has closed the descriptor.
  [[nodiscard]] bool IsOurs() const noexcept { return fd_.IsOurs(); }

  // True when the peer has closed, or the program has; no wait.
  [[nodiscard]] bool PeerClosed() const noexcept;

 private:
  explicit Channel(ScopedFd fd)
      : fd_(std::move(fd)), buffer_(std::make_unique_for_overwrite<std::byte[]>(kMaxFrameBytes)) {}
  [[nodiscard]] Status WaitFor(short events, Deadline deadline, const char* what) const;
  [[nodiscard]] std::vector<std::byte> TakeFrame();

  GuardedFd fd_;
  std::unique_ptr<std::byte[]> buffer_;  // of Receive: a message as long as any may be
  std::size_t taken_ = 0;                // bytes of it that were returned
  std::size_t received_ = 0;             // bytes in it
};

// $IDD_SOCKET or /run/idd/idd.sock.
[[nodiscard]] std::string DefaultSocketPath();
// kInvalid when the path is empty or longer than an address has room for.
[[nodiscard]] Result<sockaddr_un> SocketAddress(const std::string& path);

}  // namespace idd::wire

#endif  // IDD_WIRE_CHANNEL_H_
