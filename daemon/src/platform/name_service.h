// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_NAME_SERVICE_H_
#define IDD_DAEMON_PLATFORM_NAME_SERVICE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "idd/base/status.h"

namespace idd::daemon {

// The ids of users and groups, and whether a host has an address, as the system's databases and its
// resolver say. These may be servers that do not answer, so each look-up has two seconds.
// kUnavailable: it was not answered.
[[nodiscard]] Result<std::optional<std::uint32_t>> FindUser(const std::string& name);
[[nodiscard]] Result<std::optional<std::uint32_t>> FindGroup(const std::string& name);
// Also kUnavailable if the host has no address.
[[nodiscard]] Status FindHost(const std::string& name);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_NAME_SERVICE_H_
