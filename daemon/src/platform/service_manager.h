// SPDX-License-Identifier: Apache-2.0
//
// The messages between idd and the service manager (systemd); without a manager the calls do
// nothing.
#ifndef IDD_DAEMON_PLATFORM_SERVICE_MANAGER_H_
#define IDD_DAEMON_PLATFORM_SERVICE_MANAGER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Keeps descriptors beyond the life of the process.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;
  DescriptorStore(const DescriptorStore&) = delete;
  DescriptorStore& operator=(const DescriptorStore&) = delete;

  // From here on the next idd inherits `fd` under this name. The caller also keeps it.
  virtual void Keep(const std::string& name, int fd) = 0;
  virtual void Drop(const std::string& name) = 0;
  // Calls `done` on the loop as soon as all earlier requests have been handled.
  // The next few calls of Keep() and Drop() after it return without a wait.
  virtual void WhenHandled(std::function<void()> done) = 0;
  // Whether descriptors are kept at all, as far as is known.
  [[nodiscard]] virtual bool keeps() const noexcept = 0;

  // Numbers for short names: takes one that is not in use. Those that were freed last are used
  // last. If all are in use, any.
  static constexpr std::uint32_t kNumbers = 1U << 18;
  [[nodiscard]] std::uint32_t TakeNumber();
  void ReserveNumber(std::uint32_t number) { in_use_.insert(number); }
  void FreeNumber(std::uint32_t number) { in_use_.erase(number); }

 protected:
  DescriptorStore() = default;

 private:
  std::set<std::uint32_t> in_use_;
  std::uint32_t next_number_ = 0;
};

struct PassedDescriptor {
  std::string name;
  ScopedFd fd;
};

// Thread safety: none; event loop. The manager is trusted: if it does not read, calls wait once its
// queue (ten messages by the kernel's default) is full.
class ServiceManager : public DescriptorStore {
 public:
  explicit ServiceManager(EventLoop& loop);

  // Takes the descriptors that the manager passed at the start: listening sockets, and those that
  // an earlier idd left with it. A second call finds none. Child processes inherit none.
  [[nodiscard]] static std::vector<PassedDescriptor> TakePassed();

  // "READY=1" and the like.
  void Notify(const std::string& state) const;
  // The longest time between two WATCHDOG=1 that the manager accepts; nothing: it does not watch.
  [[nodiscard]] static std::optional<std::chrono::microseconds> WatchdogPeriod();

  void Keep(const std::string& name, int fd) override;
  void Drop(const std::string& name) override;
  void WhenHandled(std::function<void()> done) override;
  [[nodiscard]] bool keeps() const noexcept override { return listens_; }

 private:
  void SendBarrier();
  void OnHandled();

  EventLoop& loop_;
  const bool listens_;  // there is a manager that takes notifications
  DescriptorWatch barrier_;
  std::vector<std::function<void()>> served_;   // by the barrier that is under way
  std::vector<std::function<void()>> waiting_;  // for the next one
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_SERVICE_MANAGER_H_
