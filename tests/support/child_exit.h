// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_CHILD_EXIT_H_
#define IDD_TESTS_SUPPORT_CHILD_EXIT_H_

#include <sys/wait.h>

namespace idd::harness {

// Waits for a forked child. Its exit status; below zero if a signal ended it or there is none.
[[nodiscard]] inline int ExitOf(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_CHILD_EXIT_H_
