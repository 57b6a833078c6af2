// SPDX-License-Identifier: Apache-2.0
//
// What comes between opening the store and the first job on it.
#ifndef IDD_DAEMON_LEASING_RECOVERY_H_
#define IDD_DAEMON_LEASING_RECOVERY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/fence.h"
#include "leasing/high_water.h"
#include "metrics/store_meter.h"
#include "store/store.h"

namespace idd::daemon {

// StoreSession::data_set as the leases that were inherited have it: one that is as it was when the
// earlier idd leased from it has this number, any other a greater one.
inline constexpr std::uint64_t kInheritedDataSet = 1;

// What the lease worker keeps over all re-openings of a run. Thread safety: none; the worker's
// thread only.
struct StoreSession {
  // Leases of this run that may be in a ring, or on their way to one or to being closed, by token.
  std::map<std::string, Lease, std::less<>> held;
  // Tokens of leases that an earlier run asked for and never used: they go back whole.
  std::set<std::string, std::less<>> unanswered;
  // Rises when what is open is another data set, another file or an older copy. What it says of a
  // lease from under an earlier number, or of that lease's tag, may be from before the lease.
  std::uint64_t data_set = 0;
  // Without a fence: nothing is leased before, as the other hosts are still pushing their marks.
  MonotonicTime lease_from{};
  Fence fence;
  std::uint64_t generation = 0;  // of the store, at the last recovery
  StoreMeter* meter = nullptr;   // if set, what is done is counted there; outlives the session
};

// For every store that was opened, before any job: pushes this host's marks and the leases it holds
// into the data set (Store::Reconcile), journals what it does not hold as abandoned, and compares
// the incarnation with the one remembered. Another data set, another file in place of the one that
// was open, or one that has forgotten leases, is alarmed, and begins the grace where the store has
// no fence. Where it has one, the fence says whether its ceilings are pushed as marks. Idempotent;
// a failure leaves what was found out in `session`, and the next try goes on from there.
[[nodiscard]] Status Recover(Store& store, HighWaterMarks& marks, StoreSession& session);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_RECOVERY_H_
