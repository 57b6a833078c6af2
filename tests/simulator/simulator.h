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

// The allocator, and the daemon's access to it.
struct StoreModel {
  double lease_s = 0.005;    // duration of a lease
  double retry_s = 1;        // how soon it is retried while unavailable
  double notice_s = 100e-6;  // from the claim of a mark to the daemon's look at the ring
  Outage outage{};           // none if empty
};

struct Result {
  double claims = 0;
  double dry_claims = 0;  // claims that had to wait
  double dry_s = 0;       // in total
  double longest_dry_s = 0;
  double outage_dry_claims = 0;  // of the claims during the outage
  std::uint64_t leases = 0;
  double held_mean = 0;  // published, unclaimed ids, averaged over time
  double held_max = 0;
  double wasted = 0;                      // held at the end: what a kill would lose
  std::uint64_t leases_after_outage = 0;  // in the second after it
  // The maximum by which a lease raised the held ids above twice the claims of the busiest window
  // of the outage tolerance, or above two steps. The simulator counts the claims.
  double over_rule = 0;

  void Add(const Result& other);  // adds another tag's result
};

using MakePolicy =
    std::function<std::unique_ptr<daemon::RefillPolicy>(const daemon::RefillSettings&)>;

// Simulates one tag on one host. Claims flow as the trace says. The policy sees the ring when the
// daemon would show it: at publications, at marks, when the ring runs dry, once a second. A lease
// is published when the store has answered. The ring has one step at the beginning, as after a
// start. Claims that find the ring dry wait; the next publication serves them first. No trace is
// longer than a day, so that every window lies in the last one.
[[nodiscard]] Result Simulate(const Trace& trace, const daemon::RefillSettings& settings,
                              const MakePolicy& make_policy, const StoreModel& store);

}  // namespace idd::simulator

#endif  // IDD_TESTS_SIMULATOR_SIMULATOR_H_
