// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_REFILL_TICKET_POLICY_H_
#define IDD_DAEMON_REFILL_TICKET_POLICY_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "idd/shm/abi.h"
#include "refill/refill_policy.h"

namespace idd::daemon {

// The policy of a tag of mode `ticket`: a lease brings exactly the ids that claims wait for, and
// nothing is held.
class TicketPolicy : public RefillPolicy {
 public:
  void Configure(const RefillSettings& /*settings*/) override {}
  void Observe(const RefillView& /*view*/) override {}
  void OnLeased(const RefillView& /*view*/, std::uint64_t /*ids*/,
                std::chrono::nanoseconds /*took*/) override {}
  [[nodiscard]] std::uint64_t Wanted(const RefillView& view) const override {
    return std::min(view.waiting, kMaxStep);
  }
  [[nodiscard]] double RatePerSecond() const override { return 0; }
  [[nodiscard]] std::uint64_t MarkOf(shm::IdRange /*ids*/,
                                     const RefillView& /*view*/) const override {
    return shm::kNoMark;
  }
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_TICKET_POLICY_H_
