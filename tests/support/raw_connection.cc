// SPDX-License-Identifier: Apache-2.0
#include "support/raw_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "idd/base/clock.h"
#include "idd/shm/abi.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

void CloseDescriptors(msghdr& message) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
      ::close(fd);
    }
  }
}

ScopedFd ConnectNow(const std::string& path) {
  ScopedFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  RequireErrno(fd.valid(), "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Require(path.size() < sizeof address.sun_path, "path too long: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  const void* generic = &address;
  if (::connect(fd.get(), static_cast<const sockaddr*>(generic), sizeof address) != 0) fd.reset();
  return fd;
}

}  // namespace

Bytes MakeFrame(wire::FrameType type, std::uint64_t request_id,
                std::span<const std::byte> payload) {
  wire::FrameHeader header;
  header.type = static_cast<std::uint16_t>(type);
  header.frame_bytes = static_cast<std::uint32_t>(sizeof header + payload.size());
  header.request_id = request_id;
  Bytes frame(header.frame_bytes);
  std::memcpy(frame.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), frame.begin() + sizeof header);
  return frame;
}

wire::TagName MakeTag(const std::string& tag) {
  wire::TagName name;
  name.bytes = static_cast<std::uint16_t>(tag.size());
  std::memcpy(name.text, tag.data(), std::min(tag.size(), sizeof name.text));
  return name;
}

Bytes MakeHello() {
  wire::HelloRequest hello;
  hello.abi_version = shm::kAbiVersion;
  std::memcpy(hello.client_version, "raw", 3);
  return MakeRequest(wire::FrameType::kHello, 1, hello);
}

Bytes MakeClaim(const std::string& tag, std::uint64_t request_id, std::uint64_t count,
                std::uint32_t timeout_ms) {
  wire::ClaimRequest claim;
  claim.tag = MakeTag(tag);
  claim.count = count;
  claim.timeout_ms = timeout_ms;
  return MakeRequest(wire::FrameType::kClaim, request_id, claim);
}

Bytes MakeAttach(const std::string& tag, std::uint64_t request_id) {
  wire::AttachRequest attach;
  attach.tag = MakeTag(tag);
  attach.timeout_ms = 30'000;
  return MakeRequest(wire::FrameType::kAttach, request_id, attach);
}

void Reply::CopyPayload(void* out, std::size_t bytes) const {
  Require(payload.size() >= bytes, "a reply of type " + std::to_string(header.type) + " with " +
                                       std::to_string(payload.size()) + " bytes of payload");
  std::memcpy(out, payload.data(), bytes);
}

std::string Reply::TextFrom(std::size_t offset) const {
  std::string text;
  for (std::size_t i = offset; i < payload.size(); ++i) {
    text.push_back(static_cast<char>(payload[i]));
  }
  return text;
}

RawConnection::RawConnection(const std::string& path) : fd_(ConnectNow(path)) {
  RequireErrno(fd_.valid(), "connect " + path);
}

std::optional<RawConnection> RawConnection::TryConnect(const std::string& path) {
  ScopedFd fd = ConnectNow(path);
  if (!fd.valid()) return std::nullopt;
  return RawConnection(std::move(fd));
}

bool RawConnection::AnswersHello(const std::string& path) {
  std::optional<RawConnection> connection = TryConnect(path);
  if (!connection.has_value() || !connection->Send(MakeHello())) return false;
  const std::optional<Reply> reply = connection->Receive(Patience(std::chrono::seconds(1)));
  return reply.has_value() && reply->payload.size() >= sizeof(wire::HelloReply) &&
         reply->As<wire::HelloReply>().status == 0;
}

bool RawConnection::Send(std::span<const std::byte> message) {
  const ssize_t sent = ::send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(message.size());
}

bool RawConnection::SendWithin(std::chrono::milliseconds timeout,
                               std::span<const std::byte> message) {
  // Not poll(POLLOUT), which checks our own buffer and not the length of the peer's queue.
  bool refused = false;
  const bool sent = WaitUntil(timeout, [this, message, &refused] {
    if (Send(message)) return true;
    refused = errno != EAGAIN;
    return refused;
  });
  return sent && !refused;
}

std::optional<Reply> RawConnection::Receive(std::chrono::milliseconds timeout) {
  if (!rest_.empty()) return TakeFrame();
  pollfd readable{fd_.get(), POLLIN, 0};
  if (closed_ || ::poll(&readable, 1, static_cast<int>(timeout.count())) <= 0) return std::nullopt;
  std::array<std::byte, wire::kMaxFrameBytes + 1> buffer;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(8 * sizeof(int))> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) {
    closed_ = true;
    return std::nullopt;
  }
  CloseDescriptors(message);
  ++messages_;
  rest_.assign(buffer.begin(), buffer.begin() + got);
  return TakeFrame();
}

Reply RawConnection::TakeFrame() {
  Reply reply;
  Require(rest_.size() >= sizeof reply.header,
          "a reply of " + std::to_string(rest_.size()) + " bytes");
  std::memcpy(&reply.header, rest_.data(), sizeof reply.header);
  const std::size_t bytes = reply.header.frame_bytes;
  Require(bytes >= sizeof reply.header && bytes <= rest_.size(),
          "a frame of " + std::to_string(bytes) + " bytes in a message of " +
              std::to_string(rest_.size()));
  const auto end = rest_.begin() + static_cast<std::ptrdiff_t>(bytes);
  reply.payload.assign(rest_.begin() + sizeof reply.header, end);
  rest_.erase(rest_.begin(), end);
  return reply;
}

bool RawConnection::WaitClosed(std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::After(timeout);
  while (!closed_ && !deadline.passed()) {
    [[maybe_unused]] const std::optional<Reply> skipped = Receive(deadline.remaining());
  }
  return closed_;
}

void RawConnection::Hello() {
  Require(Send(MakeHello()), "HELLO: the daemon has closed");
  const std::optional<Reply> reply = Receive(Patience(std::chrono::seconds(5)));
  Require(reply.has_value(), "HELLO: no answer");
  Require(reply->As<wire::HelloReply>().status == 0, "HELLO: refused");
}

ScopedFd ListenAt(const std::string& path, int type) {
  ScopedFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  RequireErrno(fd.valid(), "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Require(path.size() < sizeof address.sun_path, "path too long: " + path);
  std::copy(path.begin(), path.end(), address.sun_path);
  const void* generic = &address;
  RequireErrno(::bind(fd.get(), static_cast<const sockaddr*>(generic), sizeof address) == 0,
               "bind");
  RequireErrno(::listen(fd.get(), 5) == 0, "listen");
  return fd;
}

}  // namespace idd::harness
