// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_COMMANDS_CMD_CLUSTER_H_
#define IDD_TOOLS_COMMANDS_CMD_CLUSTER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "commands/cli.h"
#include "terminal/exit_status.h"
#include "terminal/output.h"

namespace idd::tools {

struct ClusterArguments {
  std::string tag;                       // empty: all
  std::optional<std::uint64_t> limit{};  // of hosts, and of tags
};

// What `status` and `top` do with --all-hosts.
[[nodiscard]] Outcome ShowCluster(const GlobalOptions& global, const ClusterArguments& arguments,
                                  Output& out);
[[nodiscard]] Outcome TopOfCluster(const GlobalOptions& global, const TopArguments& arguments,
                                   Output& out);

}  // namespace idd::tools

#endif  // IDD_TOOLS_COMMANDS_CMD_CLUSTER_H_
