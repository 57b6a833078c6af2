// SPDX-License-Identifier: Apache-2.0
//
// What /proc says of processes that idd knows by their numbers.
#ifndef IDD_TOOLS_CLIENT_PROCESS_FACTS_H_
#define IDD_TOOLS_CLIENT_PROCESS_FACTS_H_

#include <cstdint>
#include <string>

#include "client/json_fields.h"

namespace idd::tools {

// Empty where it is not known. Names are the processes' own choice: escape them for people.
struct ProcessFacts {
  std::string unit;     // systemd's, by the process's control group
  std::string command;  // as the kernel has it, at most 15 bytes
};

// A process as the daemon saw it when it connected.
struct KnownProcess {
  std::uint64_t pid = 0;
  std::uint64_t uid = 0;
  double connected_s = 0;  // ago
};

// Of the process if it is still the one that connected: a number is given again, to a younger
// process or to another user's. `proc`: where /proc is.
[[nodiscard]] ProcessFacts ProbeProcess(const std::string& proc, const KnownProcess& process);

// The unit in the text of a process's `cgroup`; empty if it is in none.
[[nodiscard]] std::string UnitOfControlGroup(const std::string& cgroup);

// Adds "unit" and "command", null where not known, to the clients of a `client.list` document.
// Where this process has other numbers for processes than the daemon, all are null.
void AddProcessFacts(Json& document, const std::string& proc);

}  // namespace idd::tools

#endif  // IDD_TOOLS_CLIENT_PROCESS_FACTS_H_
