// SPDX-License-Identifier: Apache-2.0
#include "support/child_process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "idd/base/clock.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

ScopedFd MakeCapture(const char* name) {
  ScopedFd fd(::memfd_create(name, MFD_CLOEXEC));
  RequireErrno(fd.valid(), "memfd_create");
  return fd;
}

std::vector<std::string> Environment(const std::vector<std::string>& added) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    // A developer's IDD_SOCKET must not connect a test to the developer's daemon.
    if (!std::string_view(*entry).starts_with("IDD_")) variables.emplace_back(*entry);
  }
  variables.insert(variables.end(), added.begin(), added.end());
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that the child needs between fork and exec, where it must not allocate.
struct ExecPlan {
  char* const* argv;
  char* const* envp;
  int stdout_fd;
  int stderr_fd;
  int report_fd;
  pid_t parent;
  std::vector<int>* passed;
  std::vector<int>* holders;
  const Identity* identity;  // null: unchanged
  char* listen_pid;          // receives the child's pid, kPidDigits long; null: nothing is passed
};

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
constexpr int kPidDigits = 10;

// Without leading zeros, because they would make the number octal.
void WriteOwnPid(char* to) noexcept {
  char digits[kPidDigits];
  int count = 0;
  for (pid_t pid = ::getpid(); pid != 0; pid /= 10) {
    digits[count++] = static_cast<char>('0' + pid % 10);
  }
  while (count > 0) *to++ = digits[--count];
  *to = '\0';
}

// Gives the descriptors the numbers from kFirstPassed on. One that has the number of another one
// moves away first, so that never more than one of them is there twice: there may be as many as
// the limit of descriptors allows. `holders` has room for each of those numbers.
void PassDescriptors(std::vector<int>& fds, std::vector<int>& holders, int& report_fd) noexcept {
  const int end = kFirstPassed + static_cast<int>(fds.size());
  report_fd = ::fcntl(report_fd, F_DUPFD_CLOEXEC, end);
  constexpr int kNone = -1;
  std::fill(holders.begin(), holders.end(), kNone);
  const auto hold = [&](int fd, int place) {
    if (fd >= 0 && fd < end) holders[static_cast<std::size_t>(fd)] = place;
  };
  for (std::size_t i = 0; i < fds.size(); ++i) hold(fds[i], static_cast<int>(i));
  for (std::size_t i = 0; i < fds.size(); ++i) {
    const int target = kFirstPassed + static_cast<int>(i);
    if (fds[i] == target) {
      ::fcntl(target, F_SETFD, 0);
      continue;
    }
    if (const int holder = holders[static_cast<std::size_t>(target)]; holder != kNone) {
      int& moved = fds[static_cast<std::size_t>(holder)];
      moved = ::fcntl(target, F_DUPFD_CLOEXEC, kFirstPassed);
      hold(moved, holder);
    }
    ::dup2(fds[i], target);
    ::close(fds[i]);
    hold(fds[i], kNone);
  }
}

bool BecomeNow(const Identity& identity) noexcept {
  return ::setgroups(identity.groups.size(), identity.groups.data()) == 0 &&
         ::setresgid(identity.gid, identity.gid, identity.gid) == 0 &&
         ::setresuid(identity.uid, identity.uid, identity.uid) == 0;
}

[[noreturn]] void RunChild(ExecPlan plan) noexcept {
  const bool is_somebody = plan.identity == nullptr || BecomeNow(*plan.identity);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // last, because a change of ids clears it
  if (::getppid() != plan.parent) ::_exit(127);
  const int null_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null_fd, STDIN_FILENO);
  ::dup2(plan.stdout_fd, STDOUT_FILENO);
  ::dup2(plan.stderr_fd, STDERR_FILENO);
  if (plan.listen_pid != nullptr) {
    PassDescriptors(*plan.passed, *plan.holders, plan.report_fd);
    WriteOwnPid(plan.listen_pid);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (is_somebody) ::execve(plan.argv[0], plan.argv, plan.envp);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(plan.report_fd, &error, sizeof error);
  ::_exit(127);
}

std::string ReadAll(int fd) {
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) return {};
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
  std::vector<std::string> arguments = options.argv;
  std::vector<std::string> variables = Environment(options.environment);
  std::vector<int> passed = options.passed_fds;
  std::vector<int> holders(kFirstPassed + passed.size());
  char* listen_pid = nullptr;
  if (!passed.empty()) {
    variables.push_back("LISTEN_FDS=" + std::to_string(passed.size()));
    std::string& variable = variables.emplace_back("LISTEN_PID=");
    const std::size_t name_bytes = variable.size();
    variable.append(kPidDigits, '0');
    listen_pid = variable.data() + name_bytes;
  }
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(variables);
  stdout_ = MakeCapture("stdout");
  ScopedFd stderr_file;
  if (options.stderr_path.empty()) {
    stderr_ = MakeCapture("stderr");
  } else {
    stderr_file.reset(
        ::open(options.stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    RequireErrno(stderr_file.valid(), "open " + options.stderr_path);
  }
  int report[2];
  RequireErrno(::pipe2(report, O_CLOEXEC) == 0, "pipe2");
  const ScopedFd report_in(report[0]);
  ScopedFd report_out(report[1]);
  const int kept_err = stderr_file.valid() ? stderr_file.get() : stderr_.get();
  const ExecPlan plan{.argv = argv.data(),
                      .envp = envp.data(),
                      .stdout_fd = options.stdout_fd >= 0 ? options.stdout_fd : stdout_.get(),
                      .stderr_fd = options.stderr_fd >= 0 ? options.stderr_fd : kept_err,
                      .report_fd = report_out.get(),
                      .parent = ::getpid(),
                      .passed = &passed,
                      .holders = &holders,
                      .identity = options.identity.has_value() ? &*options.identity : nullptr,
                      .listen_pid = listen_pid};
  pid_ = ::fork();
  if (pid_ == 0) RunChild(plan);
  RequireErrno(pid_ > 0, "fork");
  reaped_ = false;
  report_out.reset();
  // Not pidfd_open(): the header of glibc 2.36 declares it without extern "C".
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  int error = 0;
  if (::read(report_in.get(), &error, sizeof error) == static_cast<ssize_t>(sizeof error)) {
    Kill();
    throw HarnessError("exec " + arguments[0] + ": " + std::strerror(error));
  }
}

ChildProcess::~ChildProcess() { Kill(); }

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  Kill();
  pid_ = std::exchange(other.pid_, -1);
  reaped_ = std::exchange(other.reaped_, true);
  exit_status_ = other.exit_status_;
  pidfd_ = std::move(other.pidfd_);
  stdout_ = std::move(other.stdout_);
  stderr_ = std::move(other.stderr_);
  return *this;
}

void ChildProcess::Reap(int options) noexcept {
  if (reaped_) return;
  int status = 0;
  pid_t got = 0;
  do {
    got = ::waitpid(pid_, &status, options);
  } while (got < 0 && errno == EINTR);
  if (got != pid_) return;
  reaped_ = true;
  exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ChildProcess::Running() {
  Reap(WNOHANG);
  return !reaped_;
}

void ChildProcess::Signal(int signal) noexcept {
  // The pid is ours until it is reaped, so no other process can have it.
  if (!reaped_) ::kill(pid_, signal);
}

std::optional<int> ChildProcess::WaitFor(std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::After(timeout);
  while (Running()) {
    if (deadline.passed()) return std::nullopt;
    // In short waits, for kernels where pidfd_open did not work.
    const auto piece = std::min(deadline.remaining(), std::chrono::milliseconds(50));
    pollfd ended{pidfd_.get(), POLLIN, 0};
    ::poll(&ended, 1, static_cast<int>(piece.count()));
  }
  return exit_status_;
}

std::optional<int> ChildProcess::UnnoticedEnd() {
  return reaped_ || Running() ? std::nullopt : std::optional(exit_status_);
}

void ChildProcess::Kill() noexcept {
  if (reaped_) return;
  ::kill(pid_, SIGKILL);
  Reap(0);
}

std::string ChildProcess::stdout_text() const { return ReadAll(stdout_.get()); }
std::string ChildProcess::stderr_text() const { return ReadAll(stderr_.get()); }

}  // namespace idd::harness
