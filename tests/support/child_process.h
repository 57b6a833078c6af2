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
  std::vector<std::string> environment;  // "NAME=value", added to ours without IDD_*
  // Become the child's descriptors 3, 4, ..., as sd_listen_fds(3) expects, with LISTEN_FDS and
  // LISTEN_PID.
  std::vector<int> passed_fds{};
  int stdout_fd = -1;                  // the caller's; -1: kept for stdout_text()
  int stderr_fd = -1;                  // the caller's; -1: stderr_path
  std::string stderr_path{};           // appended to; empty: kept for stderr_text()
  std::optional<Identity> identity{};  // run as; needs root
};

// One child process. It is ended by its own pid, never by a name.
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
  // False once it has ended; then also reaps it.
  [[nodiscard]] bool Running();
  // How it ended, if it ended by itself and no call has reported that yet; then also reaps it.
  [[nodiscard]] std::optional<int> UnnoticedEnd();
  // No effect on a reaped process.
  void Signal(int signal) noexcept;
  // The exit status (128 + signal for a killed one), or nothing if it still runs at the end of the
  // timeout.
  [[nodiscard]] std::optional<int> WaitFor(std::chrono::milliseconds timeout);
  // Sends SIGKILL and reaps.
  void Kill() noexcept;

  // Its output so far. stderr_text() is empty if stderr goes to a file.
  [[nodiscard]] std::string stdout_text() const;
  [[nodiscard]] std::string stderr_text() const;

 private:
  void Reap(int options) noexcept;

  pid_t pid_ = -1;
  bool reaped_ = true;
  int exit_status_ = -1;
  ScopedFd pidfd_;
  ScopedFd stdout_;  // memfds: a child with much output never waits for a reader
  ScopedFd stderr_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_CHILD_PROCESS_H_
