// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_SERVICE_MANAGER_STAND_IN_H_
#define IDD_TESTS_SUPPORT_SERVICE_MANAGER_STAND_IN_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace idd::harness {

// Stands in for the service manager, following sd_notify(3) and sd_listen_fds(3): takes
// notifications, keeps the descriptors that come with them, and passes them to the next idd.
//
// Thread safety: all; reads on a thread of its own.
class ServiceManagerStandIn {
 public:
  explicit ServiceManagerStandIn(const TempDir& dir);
  ~ServiceManagerStandIn();
  ServiceManagerStandIn(const ServiceManagerStandIn&) = delete;
  ServiceManagerStandIn& operator=(const ServiceManagerStandIn&) = delete;

  // From now on, listens at `path` and passes the socket to every idd (socket activation).
  void Listen(const std::string& path);
  // Requires WATCHDOG=1 from every idd within this time.
  void Watch(std::chrono::microseconds period) { watchdog_ = period; }

  // FileDescriptorStoreMax=: further descriptors are dropped without notice to idd.
  void Limit(std::size_t most) { most_ = most; }

  // Delays each message by this time, like a systemd that keeps thousands of descriptors.
  void SlowDown(std::chrono::microseconds each) { delay_us_ = each.count(); }

  // Adds what the next idd is started with: all that the previous one has left. That one must have
  // ended.
  void Equip(ChildOptions& child);
  // As on a full stop: drops everything that it keeps.
  void ForgetDescriptors();

  [[nodiscard]] std::vector<std::string> Names();  // of the kept descriptors, sorted
  // Removes the descriptor kept under a name; for faults.
  [[nodiscard]] ScopedFd Take(const std::string& name);
  void Put(const std::string& name, ScopedFd fd);

  [[nodiscard]] unsigned watchdog_pings() const noexcept { return watchdog_pings_; }
  [[nodiscard]] unsigned readies() const noexcept { return readies_; }
  // Requests for more time to start.
  [[nodiscard]] unsigned extensions() const noexcept { return extensions_; }

 private:
  struct Kept {
    std::string name;
    ScopedFd fd;
  };

  void Read();
  void Drain();
  void Handle(const std::string& message, std::vector<ScopedFd> fds);

  const std::string path_;
  ScopedFd socket_;
  ScopedFd listener_;
  std::optional<std::chrono::microseconds> watchdog_;
  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::atomic<std::size_t> most_{SIZE_MAX};
  std::atomic<std::int64_t> delay_us_{0};
  std::atomic<unsigned> watchdog_pings_{0};
  std::atomic<unsigned> readies_{0};
  std::atomic<unsigned> extensions_{0};
  std::atomic<bool> ending_{false};
  std::thread reader_;  // last
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_SERVICE_MANAGER_STAND_IN_H_
