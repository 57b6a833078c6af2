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
  std::string log;     // where its stderr goes, all runs one after the other
  std::string config;  // an empty file unless a test writes something into it
  std::string log_level = "info";
  std::vector<std::string> more_arguments;
  std::vector<std::string> environment;
  ServiceManagerStandIn* manager = nullptr;  // if set, it starts every run; outlives them

  // Everything in `dir`, named after `host`, but for the database, which hosts share: `dir`/idd.db.
  [[nodiscard]] static DaemonOptions In(const TempDir& dir, const std::string& host = "host-a");
};

// The real idd as a child process, which may be ended and started again any number of times.
class DaemonProcess {
 public:
  explicit DaemonProcess(DaemonOptions options) : options_(std::move(options)) {}
  // Kills it; the running test fails if it had crashed before, by a sanitizer's finding for one.
  ~DaemonProcess() { ExpectNoCrash(); }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  [[nodiscard]] const DaemonOptions& options() const noexcept { return options_; }
  [[nodiscard]] DaemonOptions& options() noexcept { return options_; }
  [[nodiscard]] const std::string& socket() const noexcept { return options_.socket; }
  [[nodiscard]] pid_t pid() const noexcept { return process_ ? process_->pid() : -1; }
  [[nodiscard]] ChildProcess& process() { return process_.value(); }

  // Starts it and waits until it answers HELLO and, with a manager, has said READY=1; throws
  // HarnessError with its log otherwise.
  void Start();
  // Starts it and returns at once.
  void Launch();
  [[nodiscard]] bool WaitReady(std::chrono::milliseconds timeout);
  // For a start that must fail: its exit status, or nothing when it still runs after the timeout
  // (it is killed then).
  [[nodiscard]] std::optional<int> LaunchAndWait(std::chrono::milliseconds timeout);

  // SIGTERM; fails the running test unless it ends with exit status 0 in time.
  void Stop();
  // SIGUSR2, as for a restart; fails the running test as Stop() does.
  void Leave();
  // SIGKILL, reaped on return.
  void Kill();
  void Signal(int signal) { process().Signal(signal); }
  void Restart();

  // All it has logged, and what it logged since a LogMark().
  [[nodiscard]] std::string Log() const;
  [[nodiscard]] std::size_t LogMark() const { return Log().size(); }
  [[nodiscard]] std::string LogSince(std::size_t mark) const { return Log().substr(mark); }
  // Waits for a line, logged since `mark`, that matches the extended regular expression, whatever
  // the case.
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

// The words before a daemon's command that put it under the restrictions of idd.service; none where
// the machine has no libseccomp or no systemd-analyze, and in a sanitizer build.
[[nodiscard]] std::vector<std::string> Sandbox();

// The built programs.
[[nodiscard]] std::string IddBinary();
[[nodiscard]] std::string IdctlBinary();

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_DAEMON_PROCESS_H_
