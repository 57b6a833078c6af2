// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_FREE_PORTS_H_
#define IDD_TESTS_SUPPORT_FREE_PORTS_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "support/test_environment.h"

namespace idd::harness {

// Ports of loopback that nobody listens at now; all different.
[[nodiscard]] inline std::vector<std::uint16_t> FreePorts(int count) {
  std::vector<ScopedFd> held;
  std::vector<std::uint16_t> ports;
  for (int i = 0; i < count; ++i) {
    held.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    RequireErrno(::bind(held.back().get(), generic, bytes) == 0, "bind");
    RequireErrno(::getsockname(held.back().get(), generic, &bytes) == 0, "getsockname");
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_FREE_PORTS_H_
