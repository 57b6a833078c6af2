// SPDX-License-Identifier: Apache-2.0
//
// The address that metrics are served at.
#ifndef IDD_DAEMON_PLATFORM_LISTEN_ADDRESS_H_
#define IDD_DAEMON_PLATFORM_LISTEN_ADDRESS_H_

#include <string>
#include <string_view>

#include "idd/base/status.h"

namespace idd::daemon {

inline constexpr std::string_view kLocalhost = "localhost";

struct HostAndPort {
  std::string_view host;
  std::string_view port;
};

// Both empty: there is no colon. An IPv6 address keeps its brackets.
[[nodiscard]] HostAndPort SplitListenAddress(std::string_view address);

// kInvalid unless it is IPV4:PORT, [IPV6]:PORT or localhost:PORT.
[[nodiscard]] Status CheckListenAddress(const std::string& address);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_LISTEN_ADDRESS_H_
