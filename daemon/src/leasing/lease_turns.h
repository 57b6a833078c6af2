// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_LEASE_TURNS_H_
#define IDD_DAEMON_LEASING_LEASE_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>

#include "leasing/lease_budget.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Which tag leases next, within the host's budget: in turn, however often a tag asks, so that one
// that leases all the time keeps no other waiting for more than one lease.
//
// Thread safety: none; event loop.
class LeaseTurns {
 public:
  // Ids that the tag would lease if it were its turn; 0: none, or not now.
  using Wanted = std::function<std::uint64_t(const std::string& tag)>;
  using Start = std::function<void(const std::string& tag, std::uint64_t wanted)>;

  LeaseTurns(EventLoop& loop, std::uint32_t leases_per_s, Wanted wanted, Start start)
      : budget_(leases_per_s), timer_(loop), wanted_(std::move(wanted)), start_(std::move(start)) {}
  LeaseTurns(const LeaseTurns&) = delete;
  LeaseTurns& operator=(const LeaseTurns&) = delete;

  // Calls Start, now or when the budget has a lease and those who asked before had theirs, unless
  // the tag wants nothing any more.
  void Ask(const std::string& tag);
  [[nodiscard]] bool Awaits(const std::string& tag) const { return waiting_.contains(tag); }
  [[nodiscard]] std::size_t waiting() const noexcept { return turns_.size(); }
  // From now on.
  void SetLimit(std::uint32_t leases_per_s) { budget_ = LeaseBudget(leases_per_s); }
  // Nobody's turn comes any more.
  void Stop();

 private:
  void Serve();

  LeaseBudget budget_;
  Timer timer_;
  const Wanted wanted_;
  const Start start_;
  std::deque<std::string> turns_;
  std::set<std::string, std::less<>> waiting_;  // what is in turns_, each once
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_TURNS_H_
