// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_HOST_ID_H_
#define IDD_DAEMON_PLATFORM_HOST_ID_H_

#include <cstdint>
#include <optional>
#include <string>

#include "idd/base/status.h"

namespace idd::daemon {

// This host: its name in the journal, values that differ from those of another host with the same
// name, and one that rises with each run.
struct HostIdentity {
  std::string id;
  std::string boot_id;   // of the running kernel
  std::string instance;  // random, of the state dir
  std::string disk{};    // random, of the state dir as a witness (WitnessState)
  // Of this process: higher than those of all earlier runs on the state dir. 0: it has none.
  std::uint64_t run_number = 0;
};

// A stable name of this host, derived from /etc/machine-id without disclosing it; nothing when the
// machine has none (or this build is without libsystemd).
[[nodiscard]] std::optional<std::string> HostIdFromMachineId();

// The name that the machine has for people; any character that is not printable ASCII is a '?'.
// Empty: it cannot be found out.
[[nodiscard]] std::string MachineName();

// At most 253 printable characters of ASCII; may be empty. kInvalid says what is wrong.
[[nodiscard]] Status CheckHostAddress(const std::string& address);

// 1 to 64 letters, digits, '.', '-' and '_'. kInvalid says what is wrong.
[[nodiscard]] Status CheckHostId(const std::string& host_id);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_HOST_ID_H_
