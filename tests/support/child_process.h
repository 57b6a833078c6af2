// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_CHILD_PROCESS_H_
#define IDD_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "support/identity.h"

namespace idd::harness {

struct ChildOptions {
  std::vector<std::string> argv;         // argv[0] is the program's path
  std::vector<std::string> environment;  // "NAME=value", added to ours without its IDD_* variables
  // Become its descriptors 3, 4, ..., as sd_listen_fds(3) has them, LISTEN_FDS and LISTEN_PID with
  // them.
  std::vector<int> passed_fds{};
  int stdout_fd = -1;                  // the caller's; -1: kept for stdout_text()
  int stderr_fd = -1;                  // the caller's; -1: stderr_path
  std::string stderr_path{};           // appended to; empty: kept for stderr_text()
  std::optional<Identity> identity{};  // run as; needs root
};

// One child process, ended by its own pid and never by a name.
//
// It dies with the thread that started it (PR_SET_PDEATHSIG), so start it from a thread that
// outlives it. The destructor kills and reaps. Thread safety: none.
class ChildProcess {
 public:
  // Throws HarnessError when the fork or the exec fails.
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  // False once it has ended; reaps it then.
  [[nodiscard]] bool Running();
  // How it ended, if it did by itself and nobody has looked yet; reaps it then.
  [[nodiscard]] std::optional<int> UnnoticedEnd();
  // No effect on a process that was reaped.
  void Signal(int signal) noexcept;
  // The exit status (128 + signal for a killed one), or nothing when it is still running at the end
  // of the timeout.
  [[nodiscard]] std::optional<int> WaitFor(std::chrono::milliseconds timeout);
  // SIGKILL, and reaps.
  void Kill() noexcept;

  // What it has written so far. stderr_text() is empty when stderr went to a file.
  [[nodiscard]] std::string stdout_text() const;
  [[nodiscard]] std::string stderr_text() const;

 private:
  void Reap(int options) noexcept;

  pid_t pid_ = -1;
  bool reaped_ = true;
  int exit_status_ = -1;
  ScopedFd pidfd_;
  ScopedFd stdout_;  // memfds: a child that writes a lot never waits for a reader
  ScopedFd stderr_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_CHILD_PROCESS_H_
