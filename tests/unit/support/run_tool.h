// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_RUN_TOOL_H_
#define IDD_TESTS_UNIT_SUPPORT_RUN_TOOL_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "commands/cli.h"
#include "idd/base/scoped_fd.h"

namespace idd::tools {

// A file without a name, for what a program prints.
class PrintedFile {
 public:
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::string text() const {
    std::string text(static_cast<std::size_t>(::lseek(fd(), 0, SEEK_END)), '\0');
    EXPECT_EQ(::pread(fd(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  const ScopedFd fd_{::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
};

struct Ran {
  ExitStatus exit = ExitStatus::kDone;
  std::string out;
  std::string err;
};

inline Ran RunTool(std::vector<const char*> arguments) {
  const PrintedFile out;
  const PrintedFile err;
  arguments.insert(arguments.begin(), "idctl");
  const int count = static_cast<int>(arguments.size());
  const ExitStatus exit = RunIdctl(count, arguments.data(), out.fd(), err.fd());
  return {.exit = exit, .out = out.text(), .err = err.text()};
}

}  // namespace idd::tools

#endif  // IDD_TESTS_UNIT_SUPPORT_RUN_TOOL_H_
