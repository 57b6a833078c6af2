// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "config/options.h"
#include "daemon.h"
#include "idd/base/standard_descriptors.h"
#include "idd/base/url_password.h"

int main(int argc, char** argv) {
  idd::OccupyStandardDescriptors();
  // A client that disconnects during a reply, or a file that reaches its limit, must cause a failed
  // call, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    idd::HidePasswords(argc, argv);
    const idd::daemon::ParsedOptions parsed = idd::daemon::ParseOptions(arguments);
    if (!parsed.options.has_value()) {
      std::fputs(parsed.output.c_str(), parsed.exit_status == 0 ? stdout : stderr);
      return parsed.exit_status;
    }
    if (parsed.options->check_config) {
      std::fputs(parsed.output.c_str(), stdout);
      return 0;
    }
    return idd::daemon::RunDaemon(*parsed.options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "idd: %s\n", error.what());
    return 1;
  }
}
