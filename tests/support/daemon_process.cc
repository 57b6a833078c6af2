// SPDX-License-Identifier: Apache-2.0
#include "support/daemon_process.h"

#include <gtest/gtest.h>
#include <regex.h>

#include <csignal>
#include <sstream>

#include "support/raw_connection.h"
#include "support/test_environment.h"

namespace idd::harness {

using std::chrono_literals::operator""s;

namespace {

// regex(3), because gcc 12 warns about std::regex itself when sanitizers are on.
class Expression {
 public:
  explicit Expression(const std::string& text) {
    const int error = ::regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_ICASE | REG_NOSUB);
    Require(error == 0, "not a regular expression: " + text);
  }
  ~Expression() { ::regfree(&compiled_); }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;

  [[nodiscard]] bool Finds(const std::string& line) const {
    return ::regexec(&compiled_, line.c_str(), 0, nullptr, 0) == 0;
  }

 private:
  regex_t compiled_{};
};

}  // namespace

std::vector<std::string> Sandbox() {
#ifdef IDD_TEST_SANDBOX
  return {IDD_TEST_SANDBOX, IDD_TEST_ALLOWED_CALLS};
#else
  return {};
#endif
}

std::string IddBinary() { return IDD_TEST_IDD_BINARY; }
std::string IdctlBinary() { return IDD_TEST_IDCTL_BINARY; }

DaemonOptions DaemonOptions::In(const TempDir& dir, const std::string& host) {
  DaemonOptions options;
  options.database = dir.File("idd.db");
  options.socket = dir.File(host + ".sock");
  options.state_dir = dir.File(host + ".state");
  options.host_id = host;
  options.log = dir.File(host + ".log");
  options.config = dir.File(host + ".toml");
  WriteFile(options.config, "");
  WriteFile(options.log, "");
  return options;
}

void DaemonProcess::Launch() {
  ChildOptions child;
  child.argv = Sandbox();
  child.argv.insert(child.argv.end(), {IddBinary(), "--config", options_.config});
  const auto add = [&child](const char* option, const std::string& value) {
    if (value.empty()) return;
    child.argv.emplace_back(option);
    child.argv.push_back(value);
  };
  const bool is_url = options_.database.starts_with("mysql://");
  const bool is_path = !options_.database.empty() && !is_url;
  add("--database", is_path ? "sqlite:" + options_.database : options_.database);
  add("--socket", options_.socket);
  add("--state-dir", options_.state_dir);
  add("--host-id", options_.host_id);
  add("--log-level", options_.log_level);
  child.argv.insert(child.argv.end(), options_.more_arguments.begin(),
                    options_.more_arguments.end());
  child.environment = options_.environment;
  child.stderr_path = options_.log;
  if (options_.manager != nullptr) options_.manager->Equip(child);
  if (options_.manager != nullptr) readies_before_ = options_.manager->readies();
  ExpectNoCrash();
  process_.emplace(child);
}

void DaemonProcess::ExpectNoCrash() {
  if (!process_.has_value()) return;
  const int status = process_->UnnoticedEnd().value_or(0);
  const bool was_ended = status == 0 || status == 128 + SIGKILL;
  EXPECT_TRUE(was_ended) << "idd had ended with " << status << "; its log:\n" << Log();
}

bool DaemonProcess::WaitReady(std::chrono::milliseconds timeout) {
  return WaitUntil(timeout,
                   [this] {
                     return !process().Running() ||
                            (IsNotified() && RawConnection::AnswersHello(options_.socket));
                   }) &&
         process().Running();
}

// With inherited rings it serves before it is ready.
bool DaemonProcess::IsNotified() const {
  return options_.manager == nullptr || options_.manager->readies() != readies_before_;
}

void DaemonProcess::Start() {
  Launch();
  const bool is_ready = WaitReady(Patience(10s));  // before the log is read
  Require(is_ready, "idd did not get ready; its log:\n" + Log());
}

std::optional<int> DaemonProcess::LaunchAndWait(std::chrono::milliseconds timeout) {
  Launch();
  const std::optional<int> status = process().WaitFor(timeout);
  Kill();
  return status;
}

void DaemonProcess::Stop() { EndBy(SIGTERM); }

void DaemonProcess::StopIfRunning() {
  ExpectNoCrash();
  if (process_.has_value() && process_->Running()) Stop();
}

void DaemonProcess::Leave() { EndBy(SIGUSR2); }

void DaemonProcess::EndBy(int signal) {
  process().Signal(signal);
  const std::optional<int> status = process().WaitFor(Patience(10s));
  if (!status.has_value()) Kill();
  EXPECT_EQ(status.value_or(-1), 0) << "idd did not end cleanly; its log:\n" << Log();
}

void DaemonProcess::Kill() { process().Kill(); }

void DaemonProcess::Restart() {
  Stop();
  Start();
}

std::string DaemonProcess::Log() const { return ReadFile(options_.log); }

bool DaemonProcess::WaitForLogLine(const std::string& expression, std::size_t mark,
                                   std::chrono::milliseconds timeout) const {
  const Expression pattern(expression);
  return WaitUntil(timeout, [this, mark, &pattern] {
    std::istringstream lines(LogSince(mark));
    for (std::string line; std::getline(lines, line);) {
      if (pattern.Finds(line)) return true;
    }
    return false;
  });
}

}  // namespace idd::harness
