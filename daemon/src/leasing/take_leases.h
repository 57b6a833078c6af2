// SPDX-License-Identifier: Apache-2.0
//
// The lease worker's job for the refills that are due together, without the loop.
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
  // The row of leaf_alloc to lease from: the tag's, or, in mode snowflake, that of the worker id
  // that this host has had so far; empty: it has none.
  std::string counter{};
  std::uint64_t instance = 0;   // differs from that of an earlier tag of the same name
  std::string token;            // of the lease
  std::uint64_t wanted = 0;     // ids, computed from the settings that the daemon knows
  std::uint64_t step = 0;       // of those settings
  std::uint64_t available = 0;  // in the ring
  std::uint64_t floor = 0;      // the ring's: nothing below it is leased
  // Whether the tag has had a lease here; if so, "no such tag" may come from another data set.
  bool has_leased = false;
  std::uint64_t data_set = 0;  // StoreSession::data_set of the newest lease
};

struct LeaseOutcome {
  TagRecord record;
  std::optional<Lease> lease;
  std::uint64_t data_set = 0;  // where the lease was taken
  // Without a lease: the tag is missing in a data set other than the one that granted the ring's
  // ids ...
  Status missing;
  // ... or it is too early to lease from it.
  MonotonicTime not_before{};
  std::string reason;  // for people
  // In mode snowflake: this host owns another worker id now, and leases from its counter.
  std::string counter;
};

// Reads the tags, so that a changed setting counts within a second, leases in one transaction, and
// keeps the marks before it returns the leases. Outcomes are in the order of `orders`; each order
// is for another tag, and an outcome's error is about its tag. Errors: the store's or the marks';
// then nothing is leased.
using LeaseOutcomes = std::vector<Result<LeaseOutcome>>;
[[nodiscard]] Result<LeaseOutcomes> TakeLeases(const std::vector<LeaseOrder>& orders, Store& store,
                                               HighWaterMarks& marks, StoreSession& session);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_TAKE_LEASES_H_
