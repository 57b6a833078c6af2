// SPDX-License-Identifier: Apache-2.0
//
// How the descriptors that RLIMIT_NOFILE allows are divided. A ring needs two as long as it is
// served, a connection one; without a reserve, rings would leave none for connections.
#ifndef IDD_DAEMON_PLATFORM_DESCRIPTOR_LIMIT_H_
#define IDD_DAEMON_PLATFORM_DESCRIPTOR_LIMIT_H_

#include <cstddef>
#include <string>

#include "idd/base/status.h"

namespace idd::daemon {

// idd's own: log, locks, store, marks, event loop, listeners, documents that are being written.
inline constexpr std::size_t kOwnDescriptors = 32;
inline constexpr std::size_t kDescriptorsOfRing = 2;
// Connections that idd has room for, whatever the limit.
inline constexpr std::size_t kFewestConnections = 8;

// Raises the soft limit to the hard one.
[[nodiscard]] Status RaiseDescriptorLimit();
// The soft limit; if it cannot be read, one that limits nothing.
[[nodiscard]] std::size_t DescriptorLimit();

// ErrorText() if this process cannot open a file now because of a limit; else "". For libraries
// that do not report the error.
[[nodiscard]] std::string DescriptorShortage();

// Ok if idd has room for its own files, some connections and new rings in place of those that it
// inherits with `passed` descriptors. kSystem says what to raise.
[[nodiscard]] Status CheckRoomToStart(std::size_t passed);

// Ok if idd still has room for connections beside a descriptor that has the number `fd`. A new
// descriptor gets the lowest free number, so all below it are in use. kSystem says what to raise.
[[nodiscard]] Status CheckRoomBeside(int fd);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_DESCRIPTOR_LIMIT_H_
