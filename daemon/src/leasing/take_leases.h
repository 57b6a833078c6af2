// SPDX-License-Identifier: Apache-2.0
//
// What the lease worker does for the refills that are due together: the work of a job, without the
// loop.
#ifndef IDD_DAEMON_LEASING_TAKE_LEASES_H_
#define IDD_DAEMON_LEASING_TAKE_LEASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "leasing/recovery.h"
#include "store/store.h"

namespace idd::daemon {

struct LeaseOrder {
  std::string tag;
  std::uint64_t instance = 0;   // tells a tag that was made again from its namesake
  std::string token;            // of the lease
  std::uint64_t wanted = 0;     // ids, by the settings that the daemon knows
  std::uint64_t step = 0;       // of those settings
  std::uint64_t available = 0;  // in the ring
  std::uint64_t floor = 0;      // of the ring: nothing below it is leased
  // Whether an answer that there is no such tag is about the tag that the ring has.
  bool has_leased = false;
  std::uint64_t data_set = 0;  // StoreSession::data_set of the newest lease
};

struct LeaseOutcome {
  TagRecord record;
  std::optional<Lease> lease;
  std::uint64_t data_set = 0;  // where the lease was taken
  // Without a lease: the tag is not in a data set that is not the one the ring was leased from ...
  Status missing;
  // ... or it is too early to lease from it.
  MonotonicTime not_before{};
  std::string reason;  // for people
};

// Reads the tags, so that a changed setting counts within a second, leases in one transaction, and
// keeps the marks before the leases are answered. In the order of `orders`, each of another
// tag; an outcome's error is its tag's. Errors: the store's or the marks'; then nothing is leased.
using LeaseOutcomes = std::vector<Result<LeaseOutcome>>;
[[nodiscard]] Result<LeaseOutcomes> TakeLeases(const std::vector<LeaseOrder>& orders, Store& store,
                                               HighWaterMarks& marks, StoreSession& session);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_TAKE_LEASES_H_
