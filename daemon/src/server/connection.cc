// SPDX-License-Identifier: Apache-2.0
#include "server/connection.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/logging.h"

namespace idd::daemon {
namespace {

// The limit of unsent frames for a peer: one for each request that it may have under way, and some
// replies that it did not wait for. Descriptors are scarcer.
constexpr std::size_t kMaxQueuedFrames = kMaxUnanswered + 64;
constexpr std::size_t kMaxQueuedDescriptors = 128;
constexpr int kMaxDropped = 64;

// 0, or the errno of the failure.
int SendNow(int socket, std::span<const std::byte> frame, const std::array<int, 2>& fds) {
  const auto count = static_cast<std::size_t>(
      std::count_if(fds.begin(), fds.end(), [](int fd) { return fd >= 0; }));
  // const_cast: sendmsg(2) takes what it only reads as non-const.
  iovec part{.iov_base = const_cast<std::byte*>(frame.data()), .iov_len = frame.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 2)> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (count > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * count);
  }
  while (::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Closing a socket with unread messages resets the peer's end, and the peer would get that error
// instead of the reason. After the shutdown no more messages can come. A peer that has sent many
// more gets the error: a socket holds hundreds, and to drop them one by one takes longer than a
// turn.
void DropUnread(int socket) {
  if (::shutdown(socket, SHUT_RD) != 0) return;
  std::byte byte{};
  for (int left = kMaxDropped; left > 0 && ::recv(socket, &byte, 1, MSG_DONTWAIT) > 0; --left) {
  }
}

}  // namespace

Connection::Connection(EventLoop& loop, ScopedFd socket, std::uint64_t id, Peer peer)
    : loop_(loop), socket_(loop), id_(id), peer_(std::move(peer)) {
  is_watched_ = socket_.Open(std::move(socket)).ok();
}

Connection::~Connection() = default;

void Connection::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  if (!is_watched_) return Close();  // the kernel has no room for one more
  WaitReadable();
}

void Connection::WaitReadable() {
  socket_.WhenReadable([this] { handlers_.on_readable(*this); });
}

// Reads one frame, then leaves the turn to others. The next wait reports at once if there are more
// frames, and a peer that sends one request at a time costs no second read.
bool Connection::ReadOne() {
  if (closed_) return false;
  std::array<std::byte, wire::kMaxFrameBytes + 1> buffer;  // one more: a longer frame shows
  // No control buffer: descriptors that a client sends along are dropped by the kernel.
  const ssize_t bytes = ::recv(socket_.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (bytes > 0) {
    handlers_.on_message(*this, std::span(buffer).first(static_cast<std::size_t>(bytes)));
  } else if (bytes == 0 || (errno != EINTR && errno != EAGAIN)) {
    Close();  // the peer is gone; an empty message looks the same and is treated the same
  }
  if (!closed_) WaitReadable();
  return bytes > 0;
}

void Connection::Send(std::span<const std::byte> frame, std::array<int, 2> fds) {
  if (closed_) return;
  const auto descriptors = static_cast<std::size_t>(
      std::count_if(fds.begin(), fds.end(), [](int fd) { return fd >= 0; }));
  if (descriptors > 0) {
    CheckArrived();
    if (!handlers_.pass(peer_, descriptors)) {
      return CloseWith({Code::kUnavailable, "too many descriptors are under way to this user"});
    }
    under_way_ += descriptors;
  }
  if (queue_.empty()) {
    const int error = SendNow(socket_.fd(), frame, fds);
    if (error == 0) return;
    if (error == ETOOMANYREFS) {
      CloseWith({Code::kUnavailable, "too many descriptors are under way to slow readers"});
      return;
    }
    if (error != EAGAIN) {
      Close();
      return;
    }
    WaitWritable();
  }
  Enqueue(frame, fds);
  Flush();
}

void Connection::CheckArrived() {
  if (under_way_ == 0 || queued_descriptors_ > 0) return;
  int unread_bytes = 0;
  if (::ioctl(socket_.fd(), SIOCOUTQ, &unread_bytes) != 0 || unread_bytes > 0) return;
  handlers_.arrived(peer_, std::exchange(under_way_, 0));
  if (closed_) socket_.Close();
}

void Connection::SendWithNext(std::span<const std::byte> frame) {
  if (!closed_) Enqueue(frame, {-1, -1});
}

void Connection::Enqueue(std::span<const std::byte> frame, const std::array<int, 2>& fds) {
  const auto descriptors = static_cast<std::size_t>(
      std::count_if(fds.begin(), fds.end(), [](int fd) { return fd >= 0; }));
  if (queue_.size() >= kMaxQueuedFrames ||
      queued_descriptors_ + descriptors > kMaxQueuedDescriptors ||
      (descriptors > 0 && !handlers_.hold(peer_, descriptors))) {
    CloseWith({Code::kInvalid, "the peer does not read its replies"});
    return;
  }
  queued_descriptors_ += descriptors;
  QueuedFrame queued;
  queued.bytes.assign(frame.begin(), frame.end());
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (fds[i] < 0) continue;
    queued.fds[i].reset(::fcntl(fds[i], F_DUPFD_CLOEXEC, 0));
    if (!queued.fds[i].valid()) {
      CloseWith(Status::FromErrno(errno, "duplicating a descriptor"));
      return;
    }
  }
  queue_.push_back(std::move(queued));
}

void Connection::WaitWritable() {
  is_blocked_ = true;
  socket_.WhenWritable([this] {
    is_blocked_ = false;
    Flush();
  });
}

// Sends the queued frames, as far as the peer has room.
void Connection::Flush() {
  std::vector<std::byte> message;
  while (!queue_.empty() && !is_blocked_ && !closed_) {
    const std::size_t frames = GatherMessage(message);
    const std::array<ScopedFd, 2>& fds = queue_.front().fds;
    const int error = SendNow(socket_.fd(), message, {fds[0].get(), fds[1].get()});
    if (error == EAGAIN) {
      WaitWritable();
      return;
    }
    if (error != 0) {
      Close();
      return;
    }
    const auto sent = static_cast<std::size_t>(
        std::count_if(fds.begin(), fds.end(), [](const ScopedFd& fd) { return fd.valid(); }));
    if (sent > 0) ReleaseDescriptors(sent);
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(frames));
  }
}

// Gathers the first frames of the queue that go in one message; a frame with descriptors goes
// alone. Returns how many frames it took. Precondition: the queue is not empty.
std::size_t Connection::GatherMessage(std::vector<std::byte>& message) const {
  message = queue_.front().bytes;
  std::size_t frames = 1;
  if (queue_.front().fds[0].valid()) return frames;
  for (; frames < queue_.size(); ++frames) {
    const QueuedFrame& next = queue_[frames];
    if (next.fds[0].valid() || message.size() + next.bytes.size() > wire::kMaxFrameBytes) break;
    message.insert(message.end(), next.bytes.begin(), next.bytes.end());
  }
  return frames;
}

void Connection::ReleaseDescriptors(std::size_t count) {
  queued_descriptors_ -= count;
  handlers_.release(peer_, count);
}

void Connection::CloseWith(const Status& reason, std::uint64_t request_id) {
  if (closed_) return;
  log::Warning("connection.refused", {{"pid", peer_.pid},
                                      {"uid", peer_.uid},
                                      {"code", CodeName(reason.code())},
                                      {"reason", reason.message()}});
  Flush();  // replies to what it asked before
  if (closed_) return;
  DropUnread(socket_.fd());
  const wire::StatusReply reply{.status = static_cast<std::uint32_t>(reason.code()), .reserved = 0};
  const auto frame = wire::BuildReply(wire::FrameType::kError, request_id, reply, reason.message());
  // If replies are still queued, the frame could not be sent in order; the log has the reason.
  if (queue_.empty()) static_cast<void>(SendNow(socket_.fd(), frame, {-1, -1}));
  Close();
}

void Connection::DropQueue() {
  queue_.clear();
  if (queued_descriptors_ == 0) return;
  const std::size_t dropped = queued_descriptors_;
  ReleaseDescriptors(dropped);
  under_way_ -= dropped;
  handlers_.arrived(peer_, dropped);
}

void Connection::Close() {
  if (closed_) return;
  closed_ = true;
  DropQueue();
  CheckArrived();
  if (under_way_ > 0) {
    socket_.Cancel();
    static_cast<void>(::shutdown(socket_.fd(), SHUT_RDWR));
  } else {
    socket_.Close();
  }
  // Posted: the caller may be inside a loop over state that on_close changes.
  loop_.Post([on_close = handlers_.on_close, id = id_] { on_close(id); });
}

}  // namespace idd::daemon
