// SPDX-License-Identifier: Apache-2.0
//
// A daemon scripted by the test, on its own socket.
#ifndef IDD_TESTS_UNIT_SUPPORT_FAKE_DAEMON_H_
#define IDD_TESTS_UNIT_SUPPORT_FAKE_DAEMON_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "idd/shm/abi.h"
#include "idd/wire/frames.h"

namespace idd::testing_support {

[[nodiscard]] inline ScopedFd ListenAt(const std::string& path, int backlog = 64,
                                       int type = SOCK_SEQPACKET) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  ::unlink(path.c_str());
  ScopedFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    std::abort();
  }
  return fd;
}

// Sends one message with up to three descriptors; false if the peer is gone.
inline bool SendMessage(int socket, std::span<const std::byte> frame, std::vector<int> fds = {}) {
  std::vector<std::byte> copy(frame.begin(), frame.end());
  iovec part{.iov_base = copy.data(), .iov_len = copy.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 3)> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) >= 0;
}

// A frame that a client sent, and the connection over which it came.
struct Request {
  int connection = 0;  // 1 for the first one accepted, ...
  wire::FrameHeader header;
  std::vector<std::byte> payload;

  [[nodiscard]] wire::FrameType type() const { return static_cast<wire::FrameType>(header.type); }
  template <typename T>
  [[nodiscard]] T As() const {
    T value;
    if (payload.size() != sizeof(T)) std::abort();
    std::memcpy(&value, payload.data(), sizeof(T));
    return value;
  }
};

// One thread accepts and reads; the test gets the frames that the handler does not take from
// Next().
//
// Thread safety: all; the handler runs on the daemon's thread.
class FakeDaemon {
 public:
  // True: handled. The daemon itself answers HELLO unless the handler takes it.
  using Handler = std::function<bool(FakeDaemon&, const Request&)>;

  explicit FakeDaemon(std::string path, Handler handler = nullptr)
      : path_(std::move(path)), handler_(std::move(handler)), wake_(::eventfd(0, EFD_CLOEXEC)) {
    listener_ = ListenAt(path_);
    thread_ = std::thread([this] { Loop(); });
  }
  ~FakeDaemon() {
    stopping_ = true;
    const std::uint64_t one = 1;
    if (::write(wake_.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
    thread_.join();
  }
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  template <typename T>
  bool Reply(const Request& to, const T& payload, const std::string& reason = {},
             const std::vector<int>& fds = {}) {
    return Send(to.connection, wire::BuildReply(to.type(), to.header.request_id, payload, reason),
                fds);
  }
  bool Send(int connection, std::span<const std::byte> frame, const std::vector<int>& fds = {}) {
    const std::lock_guard lock(mutex_);
    const int fd = connections_[static_cast<std::size_t>(connection) - 1].get();
    return fd >= 0 && SendMessage(fd, frame, fds);
  }
  // Breaks the connection at once, in both directions.
  void Close(int connection) {
    const std::lock_guard lock(mutex_);
    ::shutdown(connections_[static_cast<std::size_t>(connection) - 1].get(), SHUT_RDWR);
  }

  // The next request that the handler left; nothing after a minute, which only a defect takes.
  [[nodiscard]] std::optional<Request> Next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::minutes(1), [this] { return !left_.empty(); })) {
      return std::nullopt;
    }
    Request request = std::move(left_.front());
    left_.pop_front();
    return request;
  }
  [[nodiscard]] int connections() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(connections_.size());
  }
  [[nodiscard]] int Count(wire::FrameType type) {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count(seen_.begin(), seen_.end(), type));
  }

 private:
  void Loop() {
    while (!stopping_) {
      std::vector<pollfd> entries{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      {
        const std::lock_guard lock(mutex_);
        for (const ScopedFd& fd : connections_) {
          entries.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
        }
      }
      if (::poll(entries.data(), entries.size(), -1) < 0) continue;
      if (entries[1].revents != 0) Accept();
      for (std::size_t i = 2; i < entries.size(); ++i) {
        if (entries[i].revents != 0) Read(static_cast<int>(i) - 1, entries[i].fd);
      }
    }
  }
  void Accept() {
    ScopedFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::lock_guard lock(mutex_);
    if (fd.valid()) connections_.push_back(std::move(fd));
  }
  void Read(int connection, int fd) {
    std::array<std::byte, wire::kMaxFrameBytes> buffer;
    const ssize_t bytes = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes <= 0) {
      const std::lock_guard lock(mutex_);
      connections_[static_cast<std::size_t>(connection) - 1].reset();
      return;
    }
    const auto frame = wire::ParseFrame(std::span(buffer).first(static_cast<std::size_t>(bytes)));
    if (!frame.ok()) std::abort();
    Request request{.connection = connection,
                    .header = frame.value().header,
                    .payload = {frame.value().payload.begin(), frame.value().payload.end()}};
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(request.type());
    }
    if (handler_ && handler_(*this, request)) return;
    if (request.type() == wire::FrameType::kHello) {
      wire::HelloReply reply;
      reply.abi_version = shm::kAbiVersion;
      Reply(request, reply);
      return;
    }
    const std::lock_guard lock(mutex_);
    left_.push_back(std::move(request));
    arrived_.notify_all();
  }

  const std::string path_;
  const Handler handler_;
  ScopedFd listener_;
  ScopedFd wake_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<ScopedFd> connections_;
  std::deque<Request> left_;
  std::vector<wire::FrameType> seen_;
  std::thread thread_;
};

}  // namespace idd::testing_support

#endif  // IDD_TESTS_UNIT_SUPPORT_FAKE_DAEMON_H_
