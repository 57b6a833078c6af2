// SPDX-License-Identifier: Apache-2.0
//
// Facts from /proc about processes whose pids idd knows.
#ifndef IDD_TOOLS_CLIENT_PROCESS_FACTS_H_
#define IDD_TOOLS_CLIENT_PROCESS_FACTS_H_

#include <cstdint>
#include <string>

#include "client/json_fields.h"

namespace idd::tools {

// Empty where unknown. Processes choose their own names: escape them before printing.
struct ProcessFacts {
  std::string unit;     // the systemd unit, from the process's control group
  std::string command;  // the kernel's name for it, at most 15 bytes
};

// A process as the daemon saw it when it connected.
struct KnownProcess {
  std::uint64_t pid = 0;
  std::uint64_t uid = 0;
  double connected_s = 0;  // seconds ago
};

// The facts of the process if it is still the one that connected: the kernel reuses pids, for a
// younger process or another user's. `proc`: the path of /proc.
[[nodiscard]] ProcessFacts ProbeProcess(const std::string& proc, const KnownProcess& process);

// The systemd unit in the text of a process's `cgroup` file; empty if there is none.
[[nodiscard]] std::string UnitOfControlGroup(const std::string& cgroup);

// Adds "unit" and "command", null where unknown, to the clients of a `client.list` document. All
// are null if the daemon is in another pid namespace than this process.
void AddProcessFacts(Json& document, const std::string& proc);

}  // namespace idd::tools

#endif  // IDD_TOOLS_CLIENT_PROCESS_FACTS_H_
