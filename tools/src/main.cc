// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "commands/cli.h"
#include "idd/base/url_password.h"
#include "terminal/terminal.h"

namespace {

// If the caller has closed a standard descriptor, the next socket would get its number and receive
// the output for people. So a file takes the number, open in the wrong direction: using the
// descriptor still fails.
void OccupyStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", flags) < 0) return;  // the lowest free number: fd
  }
}

}  // namespace

int main(int argc, char** argv) {
  OccupyStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  idd::tools::AdoptCharacterSet();
  const std::vector<std::string> arguments(argv, argv + argc);
  idd::HidePasswords(argc, argv);
  std::vector<const char*> copies;
  copies.reserve(arguments.size());
  for (const std::string& argument : arguments) copies.push_back(argument.c_str());
  return static_cast<int>(idd::tools::RunIdctl(argc, copies.data(), STDOUT_FILENO, STDERR_FILENO));
}
