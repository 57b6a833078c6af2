// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SERVER_CLAIM_PACER_H_
#define IDD_DAEMON_SERVER_CLAIM_PACER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "access/claim_order.h"
#include "idd/base/clock.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Holds claims that must wait until their uid may have more ids, with one timer for all.
//
// Thread safety: none; event loop. Memory: at most as many claims as connections may have under
// way.
class ClaimPacer {
 public:
  using Due = std::function<void(ClaimOrder order)>;

  ClaimPacer(EventLoop& loop, Due due) : timer_(loop), due_(std::move(due)) {}
  ClaimPacer(const ClaimPacer&) = delete;
  ClaimPacer& operator=(const ClaimPacer&) = delete;

  // Calls Due with the order at that time.
  void Add(MonotonicTime at, ClaimOrder order);
  // Removes and returns the orders of a connection that is gone.
  [[nodiscard]] std::vector<ClaimOrder> Drop(std::uint64_t owner);

 private:
  void Arm();
  void ServeDue();

  Timer timer_;
  const Due due_;
  std::multimap<MonotonicTime, ClaimOrder> waiting_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_CLAIM_PACER_H_
