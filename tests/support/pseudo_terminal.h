// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_PSEUDO_TERMINAL_H_
#define IDD_TESTS_SUPPORT_PSEUDO_TERMINAL_H_

#include <string>
#include <thread>
#include <vector>

#include "idd/base/scoped_fd.h"

namespace idd::harness {

// A terminal that keeps its output. Thread safety: none for the owner.
class PseudoTerminal {
 public:
  PseudoTerminal(unsigned short columns, unsigned short rows);
  ~PseudoTerminal();
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  // For a program's output.
  [[nodiscard]] int fd() const noexcept { return program_.get(); }
  // The whole output. Call it when every program has ended; after it nothing can be written.
  [[nodiscard]] std::string Finish();

 private:
  void Collect();

  ScopedFd terminal_;
  ScopedFd program_;
  std::string seen_;
  std::thread reader_;
};

// The lines of what a terminal showed, without blanks at their ends.
[[nodiscard]] std::vector<std::string> ShownLines(const std::string& shown);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_PSEUDO_TERMINAL_H_
