// SPDX-License-Identifier: Apache-2.0
//
// What idd and the service manager (systemd) tell each other, and nothing when there is none.
#ifndef IDD_DAEMON_PLATFORM_SERVICE_MANAGER_H_
#define IDD_DAEMON_PLATFORM_SERVICE_MANAGER_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Where descriptors outlive the process.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;
  DescriptorStore(const DescriptorStore&) = delete;
  DescriptorStore& operator=(const DescriptorStore&) = delete;

  // From here on the next idd gets it under this name; the descriptor stays the caller's as well.
  virtual void Keep(const std::string& name, int fd) = 0;
  virtual void Drop(const std::string& name) = 0;
  // Calls `done` on the loop as soon as everything asked for so far has been done. One call at a
  // time. While nothing else is asked for, the next few calls of Keep() and Drop() then return at
  // once.
  virtual void WhenHandled(std::function<void()> done) = 0;
  // Whether anything is kept at all, as far as can be known.
  [[nodiscard]] virtual bool keeps() const noexcept = 0;

 protected:
  DescriptorStore() = default;
};

struct PassedDescriptor {
  std::string name;
  ScopedFd fd;
};

// Thread safety: none; event loop. A manager that does not read delays the caller once its queue
// (ten messages by the kernel's default) is full; it is trusted.
class ServiceManager : public DescriptorStore {
 public:
  explicit ServiceManager(EventLoop& loop);

  // What the manager has passed at the start: listening sockets, and what an earlier idd has left
  // with it. The second call finds nothing. Child processes inherit none of it.
  [[nodiscard]] static std::vector<PassedDescriptor> TakePassed();

  // "READY=1" and the like.
  void Notify(const std::string& state) const;
  // How often the manager wants to hear WATCHDOG=1 at least; nothing: it does not watch.
  [[nodiscard]] static std::optional<std::chrono::microseconds> WatchdogPeriod();

  void Keep(const std::string& name, int fd) override;
  void Drop(const std::string& name) override;
  void WhenHandled(std::function<void()> done) override;
  [[nodiscard]] bool keeps() const noexcept override { return listens_; }

 private:
  EventLoop& loop_;
  const bool listens_;  // there is a manager that takes notifications
  DescriptorWatch barrier_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_SERVICE_MANAGER_H_
