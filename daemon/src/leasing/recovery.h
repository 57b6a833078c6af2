// SPDX-License-Identifier: Apache-2.0
//
// The steps between opening the store and the first job on it.
#ifndef IDD_DAEMON_LEASING_RECOVERY_H_
#define IDD_DAEMON_LEASING_RECOVERY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "agreement/agreement.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "metrics/store_meter.h"
#include "store/store.h"

namespace idd::daemon {

// StoreSession::data_set of inherited leases: the number of a data set that is unchanged since the
// earlier idd leased from it. Any other data set has a greater number.
inline constexpr std::uint64_t kInheritedDataSet = 1;

// The state that the lease worker keeps over all re-openings of a run. Thread safety: none; the
// worker's thread only.
struct StoreSession {
  // Leases of this run that may be in a ring, or on their way to one or to being closed, by token.
  std::map<std::string, Lease, std::less<>> held;
  // Tokens of leases that an earlier run asked for and never used: they go back whole.
  std::set<std::string, std::less<>> unanswered;
  // Incremented when another data set, another file or an older copy is opened. What that store
  // reports about a lease with a smaller number, or about that lease's tag, may be from before the
  // lease.
  std::uint64_t data_set = 0;
  // Without terms, nothing is leased before this time, because other hosts are still pushing their
  // marks.
  MonotonicTime lease_from{};
  Agreement agreement;
  std::uint64_t generation = 0;  // of the store, at the last recovery
  bool is_replaced = false;      // the store, since then
  std::string identity;          // of the data set then; empty: the store has no terms
  StoreMeter* meter = nullptr;   // if set, counts what is done; outlives the session
};

// Runs on every store that was opened, before any job. Pushes this host's marks and held leases
// into the data set (Store::Reconcile), journals as abandoned those active leases of this host that
// this run does not hold, and compares the incarnation with the remembered one. Another data set,
// another term or file, or a data set that has forgotten leases raises an alarm. If the store has
// no terms, it also begins the grace period. Idempotent: a failure leaves what was found out in
// `session`, and the next try goes on from there.
[[nodiscard]] Status Recover(Store& store, HighWaterMarks& marks, StoreSession& session);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_RECOVERY_H_
