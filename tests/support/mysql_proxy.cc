// SPDX-License-Identifier: Apache-2.0
#include "support/mysql_proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr int kLookMs = 20;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Require(path.size() < sizeof address.sun_path, "the path of a socket is too long");
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

ScopedFd Connect(const std::string& path) {
  ScopedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fd.reset();
  }
  return fd;
}

bool WaitReadable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, kLookMs) > 0;
}

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// The bytes that can be read now; none if the peer has closed.
std::string_view ReadSome(int fd, std::array<char, 65536>& buffer) {
  const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
  return got <= 0 ? std::string_view()
                  : std::string_view(buffer.data(), static_cast<std::size_t>(got));
}

// A packet with its header of four bytes; empty if the peer has closed.
std::string ReadPacket(int fd) {
  std::string packet(4, '\0');
  std::size_t have = 0;
  std::size_t want = packet.size();
  while (have < want) {
    const ssize_t got = ::recv(fd, packet.data() + have, want - have, 0);
    if (got <= 0) return "";
    have += static_cast<std::size_t>(got);
    if (have == 4 && want == 4) {
      const auto byte = [&packet](std::size_t i) {
        return static_cast<std::size_t>(static_cast<unsigned char>(packet[i]));
      };
      want += byte(0) + (byte(1) << 8) + (byte(2) << 16);
      packet.resize(want);
    }
  }
  return packet;
}

// Reads the answers to statements that change up to 250 rows and return none.
bool SkipOk(int fd) {
  constexpr unsigned char kMoreResults = 8;
  for (;;) {
    const std::string packet = ReadPacket(fd);
    if (packet.size() < 9 || packet[4] != 0) return false;
    if ((static_cast<unsigned char>(packet[7]) & kMoreResults) == 0) return true;
  }
}

// The client's packets that define its session.
struct ClientSession {
  std::string login;
  std::vector<std::string> settings;

  void Hear(std::string_view packet) {
    constexpr std::string_view kSet = "SET SESSION";
    if (login.empty()) {
      login = packet;
    } else if (packet.size() > 5 && packet.substr(5).starts_with(kSet)) {
      settings.emplace_back(packet);
    }
  }
  // Invalid if the connection failed.
  [[nodiscard]] ScopedFd RepeatAt(const std::string& path) const {
    ScopedFd server = Connect(path);
    if (!server.valid() || ReadPacket(server.get()).empty()) return {};
    bool is_in = SendAll(server.get(), login) && SkipOk(server.get());
    for (const std::string& setting : settings) {
      is_in = is_in && SendAll(server.get(), setting) && SkipOk(server.get());
    }
    if (!is_in) server.reset();
    return server;
  }
};

}  // namespace

MysqlProxy::MysqlProxy(const std::string& path, std::string server)
    : server_(std::move(server)), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_un address = AddressOf(path);
  RequireErrno(
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
      "bind");
  RequireErrno(::listen(listener_.get(), 64) == 0, "listen");
  acceptor_ = std::thread([this] { Accept(); });
}

MysqlProxy::~MysqlProxy() {
  stopping_.store(true);
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
}

void MysqlProxy::Accept() {
  while (!stopping_.load()) {
    if (!WaitReadable(listener_.get())) continue;
    ScopedFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client.valid()) continue;
    connections_.fetch_add(1);
    threads_.emplace_back([this, fd = client.release()] { Serve(ScopedFd(fd)); });
  }
}

std::string MysqlProxy::Server() const {
  const std::lock_guard lock(mutex_);
  return server_;
}

void MysqlProxy::Repoint(const std::string& server) {
  const std::lock_guard lock(mutex_);
  server_ = server;
}

void MysqlProxy::Strand(const std::string& server) {
  const std::lock_guard lock(mutex_);
  server_ = server;
  stranded_.fetch_add(1);
}

bool MysqlProxy::Answer(int client, std::string_view bytes) const {
  while (!bytes.empty() && !stopping_.load()) {
    const std::string_view part = bytes.substr(0, drips_.load() ? 1 : bytes.size());
    if (!SendAll(client, part)) return false;
    bytes.remove_prefix(part.size());
    for (int i = 0; i < 3 && drips_.load() && !stopping_.load(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }
  return true;
}

void MysqlProxy::Serve(ScopedFd client) {
  const int stranded = stranded_.load();
  std::string path = Server();
  ScopedFd server = Connect(path);
  if (!server.valid()) return;
  ClientSession session;
  bool is_answered = false;  // the client's last packet
  std::array<char, 65536> buffer;
  bool drops = false;
  while (!stopping_.load()) {
    std::array<pollfd, 2> both = {{{.fd = client.get(), .events = POLLIN, .revents = 0},
                                   {.fd = server.get(), .events = POLLIN, .revents = 0}}};
    const bool hangs = hangs_.load() || stranded_.load() != stranded;
    if (hangs || ::poll(both.data(), both.size(), kLookMs) <= 0) {
      if (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
      continue;
    }
    if (both[0].revents != 0) {
      const std::string_view bytes = ReadSome(client.get(), buffer);
      if (bytes.empty()) return;
      const int every = drop_every_.load();
      const bool commits = bytes.find("COMMIT") != std::string_view::npos;
      // A connection's packets come in a pattern, so each n-th of them could always be of one kind.
      const auto mixed = commits ? static_cast<unsigned>(commits_.fetch_add(1)) * 2654435761U : 0;
      drops = every > 0 && commits && (mixed >> 16U) % static_cast<unsigned>(every) == 0;
      if (commits && before_commits_) before_commits_();
      if (const std::string now = Server(); is_answered && !session.login.empty() && now != path) {
        path = now;
        server = session.RepeatAt(path);
        if (!server.valid()) return;
        repointed_.fetch_add(1);
      }
      if (is_answered) session.Hear(bytes);
      is_answered = false;
      if (!SendAll(server.get(), bytes)) return;
    }
    if (both[1].revents != 0) {
      const std::string_view bytes = ReadSome(server.get(), buffer);
      if (bytes.empty()) return;
      if (drops) {
        dropped_.fetch_add(1);
        return;
      }
      is_answered = true;
      if (!Answer(client.get(), bytes)) return;
    }
  }
}

}  // namespace idd::harness
