// SPDX-License-Identifier: Apache-2.0
#include "platform/host_id.h"

#ifdef IDD_WITH_SYSTEMD
#include <systemd/sd-id128.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>

namespace idd::daemon {

std::optional<std::string> HostIdFromMachineId() {
#ifdef IDD_WITH_SYSTEMD
  // idd's application id: machine-id(5) asks that the id itself is not published.
  constexpr sd_id128_t kApplication =
      SD_ID128_ARRAY(6e, 1d, 5f, 0b, 93, 7c, 4a, 28, b0, 41, 8f, 2d, 55, c3, 7e, 19);
  sd_id128_t id{};
  if (sd_id128_get_machine_app_specific(kApplication, &id) < 0) return std::nullopt;
  std::array<char, SD_ID128_STRING_MAX> text{};
  return std::string(sd_id128_to_string(id, text.data()));
#else
  return std::nullopt;
#endif
}

namespace {

bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

}  // namespace

std::string MachineName() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  std::string text(name.data());
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !IsPrintable(c); }, '?');
  return text;
}

Status CheckHostAddress(const std::string& address) {
  constexpr std::size_t kMaxBytes = 253;  // as long as a name in the DNS
  const bool is_printable = std::all_of(address.begin(), address.end(), IsPrintable);
  if (is_printable && address.size() <= kMaxBytes) return Status::Ok();
  return {Code::kInvalid, "a host address has at most " + std::to_string(kMaxBytes) +
                              " printable ASCII characters, got " +
                              (is_printable ? std::to_string(address.size()) : "another one")};
}

Status CheckHostId(const std::string& host_id) {
  constexpr std::size_t kMaxBytes = 64;
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
  if (host_id.empty() || host_id.size() > kMaxBytes ||
      host_id.find_first_not_of(kAllowed) != std::string::npos) {
    return {Code::kInvalid,
            "a host id has 1 to 64 letters, digits, '.', '-' and '_', got " +
                (host_id.size() > kMaxBytes ? std::to_string(host_id.size()) + ": " : "") + "'" +
                host_id + "'"};
  }
  return Status::Ok();
}

}  // namespace idd::daemon
