// SPDX-License-Identifier: Apache-2.0
#include "platform/service_manager.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <utility>

#ifdef IDD_WITH_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "idd/base/status.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

#ifdef IDD_WITH_SYSTEMD
void LogFailure(const char* what, int result) {
  if (result >= 0) return;
  log::Warning("service_manager.failed",
               {{"call", what}, {"error", Status::FromErrno(-result, what).message()}});
}

// If the manager is busy, the call waits, and a signal may interrupt the wait.
template <typename Call>
void Send(const char* what, const Call& call) {
  int result = 0;
  do {
    result = call();
  } while (result == -EINTR);
  LogFailure(what, result);
}
#endif

}  // namespace

std::uint32_t DescriptorStore::TakeNumber() {
  std::uint32_t number = next_number_;
  for (std::uint32_t tries = 1; tries < kNumbers && in_use_.contains(number); ++tries) {
    number = (number + 1) % kNumbers;
  }
  next_number_ = (number + 1) % kNumbers;
  in_use_.insert(number);
  return number;
}

#ifdef IDD_WITH_SYSTEMD

ServiceManager::ServiceManager(EventLoop& loop)
    : loop_(loop),
      // NOLINTNEXTLINE(concurrency-mt-unsafe): before the first thread
      listens_(std::getenv("NOTIFY_SOCKET") != nullptr),
      barrier_(loop) {}

std::vector<PassedDescriptor> ServiceManager::TakePassed() {
  std::vector<PassedDescriptor> passed;
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(1, &names);
  LogFailure("sd_listen_fds_with_names", count);
  for (int i = 0; i < count; ++i) {
    PassedDescriptor& descriptor = passed.emplace_back();
    descriptor.fd.reset(SD_LISTEN_FDS_START + i);
    static_cast<void>(::fcntl(descriptor.fd.get(), F_SETFD, FD_CLOEXEC));
    if (names == nullptr || names[i] == nullptr) continue;
    descriptor.name = names[i];
    std::free(names[i]);  // NOLINT(cppcoreguidelines-no-malloc): libsystemd's, made with malloc
  }
  std::free(names);  // NOLINT(cppcoreguidelines-no-malloc): the same
  return passed;
}

void ServiceManager::Notify(const std::string& state) const {
  if (listens_) Send("sd_notify", [&state] { return ::sd_notify(0, state.c_str()); });
}

std::optional<std::chrono::microseconds> ServiceManager::WatchdogPeriod() {
  std::uint64_t microseconds = 0;
  const int result = ::sd_watchdog_enabled(0, &microseconds);
  LogFailure("sd_watchdog_enabled", result);
  if (result <= 0) return std::nullopt;
  return std::chrono::microseconds(microseconds);
}

void ServiceManager::Keep(const std::string& name, int fd) {
  if (!listens_) return;
  const std::string state = "FDSTORE=1\nFDNAME=" + name;
  Send("FDSTORE", [&state, fd] { return ::sd_pid_notify_with_fds(0, 0, state.c_str(), &fd, 1); });
}

void ServiceManager::Drop(const std::string& name) {
  if (!listens_) return;
  const std::string state = "FDSTOREREMOVE=1\nFDNAME=" + name;
  Send("FDSTOREREMOVE", [&state] { return ::sd_notify(0, state.c_str()); });
}

void ServiceManager::WhenHandled(std::function<void()> done) {
  waiting_.push_back(std::move(done));
  if (served_.empty()) SendBarrier();
}

// The manager closes a message's descriptors once it has handled that message and the earlier ones.
// If the message cannot be sent, they are closed at once.
void ServiceManager::SendBarrier() {
  served_ = std::exchange(waiting_, {});
  std::array<int, 2> ends{-1, -1};
  if (!listens_ || ::pipe2(ends.data(), O_CLOEXEC) != 0) return loop_.Post([this] { OnHandled(); });
  barrier_.Close();
  Status status = barrier_.Open(ScopedFd(ends[0]));
  const ScopedFd held_by_manager(ends[1]);
  if (!status.ok()) return loop_.Post([this] { OnHandled(); });
  Send("BARRIER", [fd = held_by_manager.get()] {
    return ::sd_pid_notify_with_fds(0, 0, "BARRIER=1", &fd, 1);
  });
  barrier_.WhenReadable([this] {
    barrier_.Close();
    OnHandled();
  });
}

// Each of them may ask again.
void ServiceManager::OnHandled() {
  for (const std::function<void()>& done : std::exchange(served_, {})) done();
  if (served_.empty() && !waiting_.empty()) SendBarrier();
}

#else

ServiceManager::ServiceManager(EventLoop& loop) : loop_(loop), listens_(false), barrier_(loop) {}
std::vector<PassedDescriptor> ServiceManager::TakePassed() { return {}; }
void ServiceManager::Notify(const std::string&) const {}
std::optional<std::chrono::microseconds> ServiceManager::WatchdogPeriod() { return std::nullopt; }
void ServiceManager::Keep(const std::string&, int) {}
void ServiceManager::Drop(const std::string&) {}
void ServiceManager::WhenHandled(std::function<void()> done) { loop_.Post(std::move(done)); }

#endif

}  // namespace idd::daemon
