// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATOR_SIMULATOR_H_
#define IDD_TESTS_SIMULATOR_SIMULATOR_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "refill/refill_policy.h"
#include "trace.h"

namespace idd::simulator {

struct Outage {
  double begin_s = 0;
  double end_s = 0;
};

// The allocator, and how the daemon talks to it.
struct StoreModel {
  double lease_s = 0.005;    // what a lease takes
  double retry_s = 1;        // how soon it is asked again while it is away
  double notice_s = 100e-6;  // from the claim of a mark to the daemon's look at the ring
  Outage outage{};           // none while empty
};

struct Result {
  double claims = 0;
  double dry_claims = 0;  // claims that had to wait
  double dry_s = 0;       // in all
  double longest_dry_s = 0;
  double outage_dry_claims = 0;  // of those that came during the outage
  std::uint64_t leases = 0;
  double held_mean = 0;  // ids published and unclaimed, over time
  double held_max = 0;
  double wasted = 0;                      // held at the end: what a kill would lose then
  std::uint64_t leases_after_outage = 0;  // in the second after its end
  // By how much a lease brought what is held above twice what was claimed in the busiest window of
  // the outage tolerance, or above two steps, at most; the claims are counted by the simulator.
  double over_rule = 0;

  void Add(const Result& other);  // another tag's
};

using MakePolicy =
    std::function<std::unique_ptr<daemon::RefillPolicy>(const daemon::RefillSettings&)>;

// One tag on one host: claims flow as the trace says; the policy is shown the ring as the daemon
// shows it (at publications, at marks, when the ring runs dry, once a second); a lease is published
// when the store has answered. The ring has one step at the beginning, as after a start. Claims
// that find the ring dry wait and are served first by the next publication. No trace is longer than
// a day, so that every window lies in the last one.
[[nodiscard]] Result Simulate(const Trace& trace, const daemon::RefillSettings& settings,
                              const MakePolicy& make_policy, const StoreModel& store);

}  // namespace idd::simulator

#endif  // IDD_TESTS_SIMULATOR_SIMULATOR_H_
