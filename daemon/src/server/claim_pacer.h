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

// Claims that have to wait until their uid may have more ids, with one timer for all.
//
// Thread safety: none; event loop. Memory: as many as connections may have under way.
class ClaimPacer {
 public:
  using Due = std::function<void(ClaimOrder order)>;

  ClaimPacer(EventLoop& loop, Due due) : timer_(loop), due_(std::move(due)) {}
  ClaimPacer(const ClaimPacer&) = delete;
  ClaimPacer& operator=(const ClaimPacer&) = delete;

  // Calls Due with it then.
  void Add(MonotonicTime at, ClaimOrder order);
  // Takes out those of a connection that is gone.
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
