// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_LEASE_SCHEDULER_H_
#define IDD_DAEMON_LEASING_LEASE_SCHEDULER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "leasing/lease_worker.h"
#include "leasing/take_leases.h"
#include "platform/event_loop.h"
#include "platform/rate_bucket.h"

namespace idd::daemon {

// Decides which tag leases next: the tags take turns within the host's budget, however often each
// asks, so a tag that leases all the time delays another by at most one lease. Orders that are made
// while the worker is busy go together in one transaction of the store.
//
// Thread safety: none; event loop.
class LeaseScheduler {
 public:
  // Makes the order of the tag whose turn it is; nothing: it needs no lease now.
  using MakeOrder = std::function<std::optional<LeaseOrder>(const std::string& tag)>;
  // Called once for each order.
  using Done = std::function<void(const LeaseOrder& order, Result<LeaseOutcome> outcome)>;

  // `leases_per_s`: the limit for all tags together; a tenth of it may come at once.
  LeaseScheduler(EventLoop& loop, LeaseWorker& worker, std::uint32_t leases_per_s,
                 MakeOrder make_order, Done done);
  LeaseScheduler(const LeaseScheduler&) = delete;
  LeaseScheduler& operator=(const LeaseScheduler&) = delete;

  // The tag's turn comes now, or when the budget allows a lease and the tags that asked earlier had
  // their turns.
  void Ask(const std::string& tag);
  // Goes on with the tag's turn: its last order only made the lease possible. Costs nothing.
  void GoOn(const std::string& tag);
  [[nodiscard]] bool Awaits(const std::string& tag) const { return waiting_.contains(tag); }
  [[nodiscard]] std::size_t waiting() const noexcept { return turns_.size(); }
  // Sets the limit from now on.
  void SetLimit(std::uint32_t leases_per_s);
  // Ends all turns; orders that were made are carried out.
  void Stop();

  static constexpr std::size_t kMaxAtOnce = 64;

 private:
  void ServeTurns();
  [[nodiscard]] bool MakeOrderOf(const std::string& tag);
  void SendBatch();

  LeaseWorker& worker_;
  const MakeOrder make_order_;
  const Done done_;
  RateBucket::Rate rate_;
  RateBucket budget_;
  Timer timer_;
  std::deque<std::string> turns_;
  std::set<std::string, std::less<>> waiting_;  // the tags in turns_, each once
  std::deque<LeaseOrder> orders_;
  bool is_under_way_ = false;
  // How many orders go together: one after a failure, so that a problem with one tag's row (another
  // session's lock on it) fails no other tag; twice as many after each success.
  std::size_t batch_size_ = kMaxAtOnce;
};

// The budget of `leases_per_s`.
[[nodiscard]] inline RateBucket::Rate LeaseRate(std::uint32_t leases_per_s) {
  return {.per_s = std::max<std::uint32_t>(leases_per_s, 1),
          .burst = std::max<std::uint32_t>(leases_per_s / 10, 1)};
}

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_SCHEDULER_H_
