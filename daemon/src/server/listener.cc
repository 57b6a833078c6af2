// SPDX-License-Identifier: Apache-2.0
#include "server/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "idd/wire/channel.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

constexpr int kBacklog = 1024;
// Few, so that new connections do not delay the existing ones.
constexpr int kAcceptsPerTurn = 8;
constexpr std::chrono::microseconds kTurn(50);
constexpr std::chrono::milliseconds kAcceptPause(100);
// Anyone with access to the directory can connect: idd decides by the peer's credentials, so that
// it can say why not.
constexpr mode_t kSocketMode = 0666;

const sockaddr* AsSockaddr(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Whether a process listens there: it accepts, or its backlog is full (a stopped daemon is alive
// too).
bool IsLive(const sockaddr_un& address) {
  const ScopedFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), AsSockaddr(address), sizeof(address)) == 0) return true;
  // EPROTOTYPE: a listener of another socket type. Only a refusal proves that no one listens.
  return errno != ECONNREFUSED && errno != ENOENT;
}

Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status::Ok() : Status::FromErrno(errno, "looking at " + path);
  }
  if (Status status = Listener::CheckPath(path); !status.ok()) return status;
  if (IsLive(address)) {
    return {Code::kUnavailable, "another process listens at " + path + "; it is left alone"};
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Status::FromErrno(errno, "removing the stale socket " + path);
  }
  log::Info("socket.stale_removed", {{"path", path}});
  return Status::Ok();
}

}  // namespace

Status Listener::CheckPath(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || S_ISSOCK(info.st_mode)) return Status::Ok();
  return {Code::kUnavailable, path + " exists and is not a socket; it is left alone"};
}

Result<FileLock> Listener::LockPath(const std::string& path) {
  const Result<sockaddr_un> address = wire::SocketAddress(path);
  if (!address.ok()) return address.status();
  // The lock keeps another idd from binding between the check of a stale file and its removal.
  Result<FileLock> lock = FileLock::Take(path + ".lock");
  if (lock.ok()) return lock;
  if (lock.status().code() != Code::kUnavailable) {
    return lock.status().WithContext("cannot listen at the socket " + path);
  }
  return lock.status().WithContext("another idd uses this socket");
}

bool Listener::IsListener(int fd) {
  int type = 0;
  int listens = 0;
  socklen_t type_bytes = sizeof(type);
  socklen_t listens_bytes = sizeof(listens);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 &&
         ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) == 0 &&
         type == SOCK_SEQPACKET && listens != 0;
}

bool Listener::ListensAt(int fd, const std::string& path) {
  sockaddr_un address{};
  socklen_t bytes = sizeof(address);
  const bool is_named = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
                        address.sun_family == AF_UNIX && bytes > offsetof(sockaddr_un, sun_path);
  if (!is_named) return false;
  return path == std::string(address.sun_path,
                             ::strnlen(address.sun_path, bytes - offsetof(sockaddr_un, sun_path)));
}

Status Listener::Listen(const std::string& path, ScopedFd passed) {
  if (!passed.valid()) {
    Result<ScopedFd> bound = Bind(path);
    if (!bound.ok()) return bound.status();
    passed = std::move(bound).value();
  } else if (::fcntl(passed.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Status::FromErrno(errno, "fcntl");
  }
  if (Status status = watch_.Open(std::move(passed)); !status.ok()) return status;
  WaitAcceptable();
  return Status::Ok();
}

Result<ScopedFd> Listener::Bind(const std::string& path) {
  const Result<sockaddr_un> address = wire::SocketAddress(path);
  if (!address.ok()) return address.status();
  if (Status status = RemoveStale(path, address.value()); !status.ok()) return status;
  ScopedFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::FromErrno(errno, "socket");
  if (::bind(fd.get(), AsSockaddr(address.value()), sizeof(sockaddr_un)) != 0) {
    return Status::FromErrno(errno, "cannot bind " + path);
  }
  // The mode is set before listen(2), so no process can connect while it is still the umask's.
  if (::chmod(path.c_str(), kSocketMode) != 0) return Status::FromErrno(errno, "chmod of " + path);
  if (::lstat(path.c_str(), &bound_) != 0) return Status::FromErrno(errno, "lstat of " + path);
  if (::listen(fd.get(), kBacklog) != 0) return Status::FromErrno(errno, "listen");
  path_ = path;
  return fd;
}

void Listener::Stop() {
  pause_.Cancel();
  watch_.Close();
  struct stat info {};
  if (path_.empty() || ::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == bound_.st_dev && info.st_ino == bound_.st_ino) ::unlink(path_.c_str());
  path_.clear();
}

void Listener::WaitAcceptable() {
  watch_.WhenReadable([this] { OnAcceptable(); });
}

void Listener::OnAcceptable() {
  const MonotonicTime end = MonotonicClock::now() + kTurn;
  for (int turn = 0; turn < kAcceptsPerTurn; ++turn) {
    if (turn > 0 && MonotonicClock::now() >= end) break;
    ScopedFd socket(::accept4(watch_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      on_accepted_(std::move(socket));
      continue;
    }
    if (errno == EAGAIN) break;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    const int error = errno;
    // A process that is out of descriptors gets that error even if there is nothing to accept.
    pollfd pending{.fd = watch_.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&pending, 1, 0) == 0) break;
    log::Error("accept.failed", {{"error", Status::FromErrno(error, "accept").message()}},
               log::Pace::kSeldom);
    const bool is_out = error == EMFILE || error == ENFILE;
    if (is_out && make_room_()) continue;
    // Without a pause the loop would spin on the backlog.
    pause_.After(kAcceptPause, [this] { WaitAcceptable(); });
    return;
  }
  WaitAcceptable();
}

}  // namespace idd::daemon
