// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "idd/base/standard_descriptors.h"
#include "idd/wire/channel.h"

namespace idd::wire {
namespace {

constexpr const char* kDefaultSocketPath = "/run/idd/idd.sock";
constexpr const char* kServiceUser = "idd";
// The longest single sleep in a receive; the deadline is checked in between.
constexpr std::chrono::milliseconds kReceiveSlice(100);

bool IsOtherFile(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode);
}

Status ConnectError(int error, const std::string& path) {
  const std::string what = "cannot connect to " + path + ": ";
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
      return {Code::kUnavailable, what + "no such socket, so idd does not run here"};
    case ECONNREFUSED:  // also for any other kind of file
      if (IsOtherFile(path)) return {Code::kUnavailable, what + "it is not a socket"};
      return {Code::kUnavailable, what + "no process listens, idd has stopped"};
    case EAGAIN:
    case EINPROGRESS:
      return {Code::kUnavailable, what + "idd did not accept before the deadline"};
    case EACCES:
    case EPERM:
      return {Code::kDenied, what + "permission denied; may this user use idd's socket?"};
    case EPROTOTYPE:
      return {Code::kIncompatible, what + "not a SOCK_SEQPACKET socket, so not idd's"};
    default:
      return Status::FromErrno(error, what.substr(0, what.size() - 2));
  }
}

// A connect(2) to a full backlog sleeps in the kernel for at most the send timeout (unix(7)); a
// non-blocking one would fail at once and leave nothing to poll for.
Status ConnectBefore(int fd, const sockaddr_un& address, Deadline deadline,
                     const std::string& path) {
  while (true) {
    const auto left = std::max(deadline.remaining(), std::chrono::milliseconds(1));
    const timeval timeout{.tv_sec = static_cast<time_t>(left.count() / 1000),
                          .tv_usec = static_cast<suseconds_t>(left.count() % 1000 * 1000)};
    if (::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) != 0) {
      return Status::FromErrno(errno, "setsockopt(SO_SNDTIMEO)");
    }
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return Status::Ok();
    }
    if (errno != EINTR || deadline.passed()) return ConnectError(errno, path);
  }
}

std::optional<uid_t> UidOf(const char* user) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return std::nullopt;
  }
  return found->pw_uid;
}

// A listener could hand us any memory as a ring, so it must run as a user that we trust anyway.
Status CheckPeer(int fd, const std::string& path, std::optional<uid_t> trusted_uid) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return Status::FromErrno(errno, "getsockopt(SO_PEERCRED)");
  }
  if (peer.uid == 0 || peer.uid == ::geteuid() || peer.uid == trusted_uid) return Status::Ok();
  if (peer.uid == UidOf(kServiceUser)) return Status::Ok();
  return {Code::kDenied, "the listener at " + path + " runs as uid " + std::to_string(peer.uid) +
                             ", which is neither root, this user nor " + kServiceUser +
                             "; refusing to trust it"};
}

// Takes every descriptor out of the control data; what does not fit Message::fds is closed.
void CollectFds(msghdr& header, std::array<ScopedFd, 2>& fds) {
  std::size_t count = 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t passed = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < passed; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      ScopedFd owned = MoveAboveStandard(ScopedFd(fd));
      if (count < fds.size()) fds[count++] = std::move(owned);
    }
  }
}

}  // namespace

std::string DefaultSocketPath() {
  const char* path = std::getenv("IDD_SOCKET");  // NOLINT(concurrency-mt-unsafe): read only.
  return path != nullptr && *path != '\0' ? path : kDefaultSocketPath;
}

Result<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Status(Code::kInvalid, "the socket's path must have 1 to " +
                                      std::to_string(sizeof(address.sun_path) - 1) +
                                      " bytes, got " + std::to_string(path.size()) + ": " + path);
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

Result<Channel> Channel::Connect(const std::string& path, Deadline deadline,
                                 std::optional<uid_t> trusted_uid) {
  const Result<sockaddr_un> address = SocketAddress(path);
  if (!address.ok()) return address.status();
  ScopedFd fd = MoveAboveStandard(ScopedFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
  if (!fd.valid()) return Status::FromErrno(errno, "socket");
  if (Status status = ConnectBefore(fd.get(), address.value(), deadline, path); !status.ok())
    return status;
  if (Status status = CheckPeer(fd.get(), path, trusted_uid); !status.ok()) return status;
  const timeval slice{.tv_sec = 0, .tv_usec = kReceiveSlice.count() * 1000};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)) != 0) {
    return Status::FromErrno(errno, "setsockopt(SO_RCVTIMEO)");
  }
  return Channel(std::move(fd));
}

Status Channel::WaitFor(short events, Deadline deadline, const char* what) const {
  while (true) {
    pollfd entry{.fd = fd_.get(), .events = events, .revents = 0};
    const auto left = std::min<std::int64_t>(deadline.remaining().count(), kMaxTimeoutMs);
    const int ready = ::poll(&entry, 1, static_cast<int>(left));
    if (ready > 0) return Status::Ok();
    if (ready < 0 && errno != EINTR) return Status::FromErrno(errno, "poll");
    if (deadline.passed()) return {Code::kTimeout, std::string("idd did not ") + what + " in time"};
  }
}

Status Channel::Send(std::span<const std::byte> frame, Deadline deadline) {
  while (true) {
    if (TrySend(frame)) return Status::Ok();
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return {Code::kUnavailable,
              "the connection to idd broke: " + Status::FromErrno(errno, "send").message()};
    }
    if (Status status = WaitFor(POLLOUT, deadline, "read the request"); !status.ok()) return status;
  }
}

bool Channel::TrySend(std::span<const std::byte> frame) noexcept {
  if (!fd_.IsOurs()) {
    errno = EBADF;
    return false;
  }
  return ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

// Takes the next frame of what was received. If the rest does not begin with a frame, takes all of
// it: the caller's ParseFrame() then reports what is wrong.
std::vector<std::byte> Channel::TakeFrame() {
  const std::span<const std::byte> rest(buffer_.get() + taken_, received_ - taken_);
  const std::size_t bytes = LeadingFrameBytes(rest);
  taken_ += bytes;
  return {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

Result<Message> Channel::Receive(Deadline deadline) {
  Message message;
  if (taken_ < received_) {
    message.bytes = TakeFrame();
    return message;
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 2)> control{};
  bool was_reset = false;
  // Sending the request has checked the descriptor; it is checked again after a wait.
  for (bool has_waited = false;; has_waited = true) {
    // A receive that sleeps saves a poll. It sleeps at most one slice, so that the last wait ends
    // exactly at the deadline.
    const bool sleeps = deadline.remaining() > kReceiveSlice;
    if (!sleeps) {
      if (Status status = WaitFor(POLLIN, deadline, "answer"); !status.ok()) return status;
    }
    if ((has_waited || !sleeps) && !fd_.IsOurs()) {
      return Status(Code::kUnavailable, "the program has closed the connection to idd");
    }
    iovec part{.iov_base = buffer_.get(), .iov_len = kMaxFrameBytes};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t bytes =
        ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC | (sleeps ? 0 : MSG_DONTWAIT));
    if (bytes > 0) {
      CollectFds(header, message.fds);
      // If both descriptors have arrived, the kernel cut off only others, which idd never passes.
      if ((header.msg_flags & MSG_CTRUNC) != 0 && !message.fds[1].valid()) {
        return Status(Code::kSystem,
                      "no free descriptor for what idd passed; raise this process's RLIMIT_NOFILE");
      }
      if ((header.msg_flags & MSG_TRUNC) != 0) {
        return Status(Code::kInvalid, "idd sent a frame that is too long");
      }
      taken_ = 0;
      received_ = static_cast<std::size_t>(bytes);
      message.bytes = TakeFrame();
      return message;
    }
    if (bytes == 0) return Status(Code::kUnavailable, "idd closed the connection");
    // idd closed the connection before it read our request. The kernel says so once, before what
    // idd had sent: its reason may be there to read.
    if (errno == ECONNRESET && !was_reset) {
      was_reset = true;
      continue;
    }
    if (errno != EINTR && errno != EAGAIN) {
      return Status(Code::kUnavailable, "the connection to idd broke: " +
                                            Status::FromErrno(errno, "recvmsg").message());
    }
  }
}

Result<Message> Channel::Exchange(std::span<const std::byte> frame, Deadline deadline) {
  const Result<FrameView> request = ParseFrame(frame);
  if (!request.ok()) return request.status();
  // A daemon that closed the connection may have sent its reason first, so what it sent is still
  // read.
  const Status sent = Send(frame, deadline);
  if (!sent.ok() && sent.code() != Code::kUnavailable) return sent;
  while (true) {
    Result<Message> message = Receive(deadline);
    if (!message.ok()) return sent.ok() ? message.status() : sent;
    const Result<FrameView> reply = ParseFrame(message.value().bytes);
    if (!reply.ok()) return reply.status();
    const FrameHeader& header = reply.value().header;
    if (header.type == (static_cast<std::uint16_t>(FrameType::kError) | kReplyBit)) {
      return ParseError(reply.value());
    }
    if (header.request_id != request.value().header.request_id) {
      // A late reply to an earlier request; a flood of them must not outlast the deadline.
      if (deadline.passed()) return Status(Code::kTimeout, "idd did not answer in time");
      continue;
    }
    const auto type = static_cast<FrameType>(request.value().header.type);
    if (Status status = CheckReplyType(reply.value(), type); !status.ok()) return status;
    return message;
  }
}

bool Channel::PeerClosed() const noexcept {
  if (!fd_.IsOurs()) return true;
  pollfd entry{.fd = fd_.get(), .events = 0, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace idd::wire
