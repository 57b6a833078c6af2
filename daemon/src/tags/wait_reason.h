// SPDX-License-Identifier: Apache-2.0
//
// Why a claim got no ids. Pure, except that it reads the clock.
#ifndef IDD_DAEMON_TAGS_WAIT_REASON_H_
#define IDD_DAEMON_TAGS_WAIT_REASON_H_

#include <optional>
#include <string>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/lease_worker.h"

namespace idd::daemon {

struct WaitFacts {
  const std::string& tag;
  const StoreHealth& health;
  const std::string& last_error;                  // of the store, for this tag
  std::string clock{};                            // why a snowflake claim waits for the clock
  std::optional<MonotonicTime> asked_at{};        // of the request that the store has not answered
  std::optional<MonotonicTime> quarantined_at{};  // of the ring, if that was a moment ago
  bool awaits_ring = false;                       // NewRings::Awaits()
};

// For a claim whose deadline has passed.
[[nodiscard]] Status NoIdsBeforeDeadline(const WaitFacts& facts);
// For a claim of mode `ticket` while the store is down.
[[nodiscard]] Status NoTicketWithoutStore(const std::string& tag, const StoreHealth& health);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_WAIT_REASON_H_
