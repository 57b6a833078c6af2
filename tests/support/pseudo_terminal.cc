// SPDX-License-Identifier: Apache-2.0
#include "support/pseudo_terminal.h"

#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <utility>

#include "support/test_environment.h"

namespace idd::harness {

PseudoTerminal::PseudoTerminal(unsigned short columns, unsigned short rows) {
  winsize size{};
  size.ws_col = columns;
  size.ws_row = rows;
  int terminal = -1;
  int program = -1;
  RequireErrno(::openpty(&terminal, &program, nullptr, nullptr, &size) == 0, "openpty");
  terminal_ = ScopedFd(terminal);
  program_ = ScopedFd(program);
  for (const int fd : {terminal, program}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  reader_ = std::thread([this] { Collect(); });
}

PseudoTerminal::~PseudoTerminal() { static_cast<void>(Finish()); }

// Reads until no process has the other side open.
void PseudoTerminal::Collect() {
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t count = ::read(terminal_.get(), bytes.data(), bytes.size());
    if (count <= 0) return;
    seen_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

std::string PseudoTerminal::Finish() {
  program_.reset();
  if (reader_.joinable()) reader_.join();
  return seen_;
}

std::vector<std::string> ShownLines(const std::string& shown) {
  std::vector<std::string> lines;
  std::istringstream in(shown);
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of("\r ") + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace idd::harness
