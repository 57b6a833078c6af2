// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "commands/cli.h"
#include "idd/base/standard_descriptors.h"
#include "idd/base/url_password.h"
#include "terminal/terminal.h"

int main(int argc, char** argv) {
  idd::OccupyStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches its limit fails a write, and says so
  idd::tools::AdoptCharacterSet();
  const std::vector<std::string> arguments(argv, argv + argc);
  idd::HidePasswords(argc, argv);
  std::vector<const char*> copies;
  copies.reserve(arguments.size());
  for (const std::string& argument : arguments) copies.push_back(argument.c_str());
  return static_cast<int>(idd::tools::RunIdctl(argc, copies.data(), STDOUT_FILENO, STDERR_FILENO));
}
