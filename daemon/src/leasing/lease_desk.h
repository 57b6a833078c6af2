// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_LEASE_DESK_H_
#define IDD_DAEMON_LEASING_LEASE_DESK_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "leasing/lease_worker.h"
#include "leasing/take_leases.h"

namespace idd::daemon {

// Takes orders for leases to the worker: what comes while it is busy goes together, in one
// transaction of the store.
//
// Thread safety: none; event loop.
class LeaseDesk {
 public:
  using Done = std::function<void(Result<LeaseOutcome>)>;

  explicit LeaseDesk(LeaseWorker& worker) : worker_(worker) {}
  LeaseDesk(const LeaseDesk&) = delete;
  LeaseDesk& operator=(const LeaseDesk&) = delete;

  void Place(LeaseOrder order, Done done);

 private:
  void SendNext();

  LeaseWorker& worker_;
  std::deque<LeaseOrder> orders_;
  std::deque<Done> dones_;  // of orders_
  bool is_under_way_ = false;
  // Orders that go together: one after a failure, so that what is wrong with one tag's row (a lock
  // that somebody holds) fails no other's; twice as many after each success.
  std::size_t most_ = kMaxAtOnce;

  static constexpr std::size_t kMaxAtOnce = 64;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_DESK_H_
