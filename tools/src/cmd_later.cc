// SPDX-License-Identifier: Apache-2.0
//
// Commands that later versions have. They are known, so that a script gets a clear answer and
// --help shows where idctl is going.
#include <string>

#include "commands.h"

namespace idd::tools {

void RegisterLaterCommands(CLI::App& app, Invocation& invocation) {
  struct Later {
    const char* name;
    const char* summary;
    const char* example;
  };
  constexpr Later kCommands[] = {
      {"top", "Live view of the tags", "idctl top"},
      {"doctor", "Check the set-up", "idctl doctor"},
      {"metrics", "Print Prometheus metrics", "idctl metrics"},
  };
  for (const Later& later : kCommands) {
    CLI::App* command =
        AddCommand(app, later.name, (std::string(later.summary) + " (not in this version)").c_str(),
                   later.example);
    command->fallthrough(false)->allow_extras();  // whatever arguments it will have
    command->callback([&invocation, name = later.name] {
      invocation.action = [name](Output&) -> Outcome {
        return Failure{ExitStatus::kFailed, name, "not available in this version", ""};
      };
    });
  }
}

}  // namespace idd::tools
