// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_DAEMON_PROCESS_H_
#define IDD_TESTS_SUPPORT_DAEMON_PROCESS_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/service_manager_stand_in.h"
#include "support/temp_dir.h"

namespace idd::harness {

struct DaemonOptions {
  std::string database;  // a path, which becomes sqlite:PATH, or mysql://...
  std::string socket;
  std::string state_dir;
  std::string host_id;
  std::string log;     // receives the stderr of all runs
  std::string config;  // an empty file unless a test fills it
  std::string log_level = "info";
  std::vector<std::string> more_arguments;
  std::vector<std::string> environment;
  ServiceManagerStandIn* manager = nullptr;  // if set, starts every run; must outlive them

  // Everything is in `dir` and named after `host`, except for `dir`/idd.db, which hosts share.
  [[nodiscard]] static DaemonOptions In(const TempDir& dir, const std::string& host = "host-a");
};

// The real idd as a child process, which a test may end and start again any number of times.
class DaemonProcess {
 public:
  explicit DaemonProcess(DaemonOptions options) : options_(std::move(options)) {}
  // Kills it; the running test fails if it had crashed, for example because of a sanitizer's
  // finding.
  ~DaemonProcess() { ExpectNoCrash(); }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  [[nodiscard]] const DaemonOptions& options() const noexcept { return options_; }
  [[nodiscard]] DaemonOptions& options() noexcept { return options_; }
  [[nodiscard]] const std::string& socket() const noexcept { return options_.socket; }
  [[nodiscard]] pid_t pid() const noexcept { return process_ ? process_->pid() : -1; }
  [[nodiscard]] ChildProcess& process() { return process_.value(); }

  // Starts it and waits until it answers HELLO and, with a manager, has sent READY=1; otherwise
  // throws HarnessError with its log.
  void Start();
  // Starts it and returns at once.
  void Launch();
  [[nodiscard]] bool WaitReady(std::chrono::milliseconds timeout);
  // For a start that must fail: its exit status, or nothing if it still runs at the timeout (then
  // it is killed).
  [[nodiscard]] std::optional<int> LaunchAndWait(std::chrono::milliseconds timeout);

  // Sends SIGTERM; fails the running test unless it ends with exit status 0 in time.
  void Stop();
  // For the end of a test: Stop(), unless the test has ended it.
  void StopIfRunning();
  // Sends SIGUSR2, as for a restart; fails the running test as Stop() does.
  void Leave();
  // Sends SIGKILL; reaped on return.
  void Kill();
  void Signal(int signal) { process().Signal(signal); }
  void Restart();

  // The whole log, or the part since a LogMark().
  [[nodiscard]] std::string Log() const;
  [[nodiscard]] std::size_t LogMark() const { return Log().size(); }
  [[nodiscard]] std::string LogSince(std::size_t mark) const { return Log().substr(mark); }
  // Waits for a line, logged since `mark`, that matches the extended regular expression, ignoring
  // case.
  [[nodiscard]] bool WaitForLogLine(const std::string& expression, std::size_t mark,
                                    std::chrono::milliseconds timeout) const;

 private:
  void ExpectNoCrash();
  void EndBy(int signal);
  [[nodiscard]] bool IsNotified() const;

  DaemonOptions options_;
  std::optional<ChildProcess> process_;
  unsigned readies_before_ = 0;
};

// The command prefix that puts a daemon under the restrictions of idd.service; empty on a machine
// without libseccomp or systemd-analyze, and in a sanitizer build.
[[nodiscard]] std::vector<std::string> Sandbox();

// The built programs.
[[nodiscard]] std::string IddBinary();
[[nodiscard]] std::string IdctlBinary();

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_DAEMON_PROCESS_H_
