// SPDX-License-Identifier: Apache-2.0
#include "support/service_manager_stand_in.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr std::size_t kMaxDescriptors = 253;  // in one message, SCM_MAX_FD

ScopedFd Bind(const std::string& path, int type) {
  ScopedFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  RequireErrno(fd.valid(), "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Require(path.size() < sizeof address.sun_path, "too long for a socket: " + path);
  std::copy(path.begin(), path.end(), address.sun_path);
  RequireErrno(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
               "bind " + path);
  return fd;
}

}  // namespace

ServiceManagerStandIn::ServiceManagerStandIn(const TempDir& dir)
    : path_(dir.File("notify.sock")), socket_(Bind(path_, SOCK_DGRAM)) {
  reader_ = std::thread([this] { Read(); });
}

ServiceManagerStandIn::~ServiceManagerStandIn() {
  ending_ = true;
  reader_.join();
}

void ServiceManagerStandIn::Listen(const std::string& path) {
  listener_ = Bind(path, SOCK_SEQPACKET);
  RequireErrno(::chmod(path.c_str(), 0666) == 0, "chmod");
  RequireErrno(::listen(listener_.get(), 128) == 0, "listen");
}

void ServiceManagerStandIn::Read() {
  while (!ending_) {
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 20) <= 0) continue;
    const std::lock_guard lock(mutex_);
    Drain();
  }
}

void ServiceManagerStandIn::Drain() {
  std::array<char, 4096> text{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control{};
  while (true) {
    iovec part{.iov_base = text.data(), .iov_len = text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes < 0) return;
    std::vector<ScopedFd> fds;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        fds.emplace_back(fd);
      }
    }
    if (delay_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us_));
    Handle({text.data(), static_cast<std::size_t>(bytes)}, std::move(fds));
  }
}

void ServiceManagerStandIn::Handle(const std::string& message, std::vector<ScopedFd> fds) {
  std::string name = "stored";
  bool store = false;
  bool remove = false;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    if (line == "READY=1") ++readies_;
    if (line == "WATCHDOG=1") ++watchdog_pings_;
    if (line.starts_with("EXTEND_TIMEOUT_USEC=")) ++extensions_;
    if (line == "FDSTORE=1") store = true;
    if (line == "FDSTOREREMOVE=1") remove = true;
    if (line.starts_with("FDNAME=")) name = line.substr(std::strlen("FDNAME="));
  }
  if (remove) std::erase_if(kept_, [&name](const Kept& kept) { return kept.name == name; });
  if (!store) return;
  for (ScopedFd& fd : fds) {
    if (kept_.size() < most_) kept_.push_back({.name = name, .fd = std::move(fd)});
  }
}

void ServiceManagerStandIn::Equip(ChildOptions& child) {
  const std::lock_guard lock(mutex_);
  Drain();
  std::string names;
  const auto pass = [&](const std::string& name, int fd) {
    if (!names.empty()) names += ':';
    names += name;
    child.passed_fds.push_back(fd);
  };
  if (listener_.valid()) pass("idd.socket", listener_.get());
  for (const Kept& kept : kept_) pass(kept.name, kept.fd.get());
  child.environment.push_back("NOTIFY_SOCKET=" + path_);
  child.environment.push_back("LISTEN_FDNAMES=" + names);
  if (watchdog_) {
    child.environment.push_back("WATCHDOG_USEC=" + std::to_string(watchdog_->count()));
  }
}

void ServiceManagerStandIn::ForgetDescriptors() {
  const std::lock_guard lock(mutex_);
  Drain();
  kept_.clear();
}

std::vector<std::string> ServiceManagerStandIn::Names() {
  const std::lock_guard lock(mutex_);
  Drain();
  std::vector<std::string> names;
  names.reserve(kept_.size());
  for (const Kept& kept : kept_) names.push_back(kept.name);
  std::sort(names.begin(), names.end());
  return names;
}

ScopedFd ServiceManagerStandIn::Take(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Drain();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (it->name != name) continue;
    ScopedFd fd = std::move(it->fd);
    kept_.erase(it);
    return fd;
  }
  return ScopedFd();
}

void ServiceManagerStandIn::Put(const std::string& name, ScopedFd fd) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({.name = name, .fd = std::move(fd)});
}

}  // namespace idd::harness
