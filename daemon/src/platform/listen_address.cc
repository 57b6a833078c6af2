// SPDX-License-Identifier: Apache-2.0
#include "platform/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstdint>
#include <system_error>

namespace idd::daemon {
namespace {

bool IsPort(std::string_view text) {
  std::uint16_t port = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), port);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size() && port != 0;
}

bool IsHost(std::string_view host) {
  if (host == kLocalhost) return true;
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string text(is_bracketed ? host.substr(1, host.size() - 2) : host);
  in6_addr ignored{};
  return ::inet_pton(is_bracketed ? AF_INET6 : AF_INET, text.c_str(), &ignored) == 1;
}

}  // namespace

HostAndPort SplitListenAddress(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return {};
  return {.host = address.substr(0, colon), .port = address.substr(colon + 1)};
}

Status CheckListenAddress(const std::string& address) {
  const HostAndPort parts = SplitListenAddress(address);
  if (IsHost(parts.host) && IsPort(parts.port)) return Status::Ok();
  return {Code::kInvalid,
          "metrics-listen must be an address and a port, as 127.0.0.1:9742, "
          "[::1]:9742 or, for all interfaces, 0.0.0.0:9742; not '" +
              address + "'"};
}

}  // namespace idd::daemon
