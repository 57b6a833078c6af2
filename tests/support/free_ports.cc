// SPDX-License-Identifier: Apache-2.0
#include "support/free_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <random>
#include <utility>

#include "idd/base/scoped_fd.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr int kFirstPort = 10000;

// The first port that the kernel assigns by itself.
int FirstEphemeralPort() {
  const int port = std::atoi(ReadFile("/proc/sys/net/ipv4/ip_local_port_range").c_str());
  Require(port > kFirstPort + 1000, "too few ports lie below the ephemeral ones");
  return port;
}

}  // namespace

std::vector<std::uint16_t> FreePorts(int count) {
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirstPort, FirstEphemeralPort() - 1);
  std::vector<ScopedFd> held;
  std::vector<std::uint16_t> ports;
  while (ports.size() < static_cast<std::size_t>(count)) {
    ScopedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    RequireErrno(fd.valid(), "socket");
    const auto port = static_cast<std::uint16_t>(any(random));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      held.push_back(std::move(fd));
      ports.push_back(port);
    } else {
      RequireErrno(errno == EADDRINUSE, "bind");
    }
  }
  return ports;
}

}  // namespace idd::harness
