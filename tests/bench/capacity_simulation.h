// SPDX-License-Identifier: Apache-2.0
//
// The load that a cluster of idd hosts puts on its store, by simulation: the daemon's own refill
// policy and lease budget, in simulated time.
#ifndef IDD_TESTS_BENCH_CAPACITY_SIMULATION_H_
#define IDD_TESTS_BENCH_CAPACITY_SIMULATION_H_

#include <cstdint>
#include <vector>

#include "config/options.h"
#include "leasing/lease_scheduler.h"
#include "refill/refill_settings.h"

namespace idd::capacity {

// The allocator: a few transactions at once, first come, first served. The times are those of a
// MariaDB with durable settings on a machine of two processors (lease_benchmark); what they decide
// is how long a store takes over what is asked of it at once, not how much is asked.
struct StoreModel {
  double transaction_s = 400e-6;  // of one lease, with the read before it
  double more_s = 80e-6;          // for each further lease in it
  double read_s = 100e-6;         // one read alone
  double answer_s = 500e-6;       // the network, there and back
  std::uint32_t lanes = 4;        // transactions at once
};

// The store answers nobody. With a grace nobody leases for so long after it has come back: idd's
// answer to a server that was restarted or replaced.
struct StoreOutage {
  double begin_s = 0;
  double end_s = 0;  // none while it is 0
  double grace_s = 0;
};

enum class Start {
  kRunning,  // each tag is somewhere between two leases
  kFresh,    // every daemon starts, with tags that it has served before; without an outage
};

// How much of what the daemon looks at is simulated.
enum class Looks {
  kEverySecond,  // as the daemon
  kChanges,      // without those seconds in which a policy sees what it saw in the ones before
};

struct Cluster {
  std::uint32_t hosts = 10'000;
  std::uint32_t tags_per_host = 100;
  double ids_per_s = 1e8;  // of all hosts and tags together, in the mean
  double spread = 1;  // sigma of the lognormal that each tag's rate is drawn from; 0: all alike
  daemon::RefillSettings refill{};
  std::uint32_t leases_per_s = daemon::kDefaultLeasesPerSecond;  // of a host, at most
  Start start = Start::kRunning;
  double starts_over_s = 0;  // kFresh: the daemons start one after the other in that time
  double duration_s = 3600;
  double settle_s = 0;  // left out of Load at the beginning
  StoreOutage outage{};
  StoreModel store{};
  Looks looks = Looks::kChanges;
  std::uint64_t seed = 1;
};

// What the store was asked for, from settle_s to duration_s.
struct Load {
  double claims = 0;
  double dry_claims = 0;  // that had to wait
  std::uint64_t leases = 0;
  std::uint64_t lease_transactions = 0;
  std::uint64_t closed = 0;  // journal rows that were closed
  std::uint64_t close_transactions = 0;
  std::uint64_t beats = 0;  // signs of life, a transaction each
  std::uint64_t opens = 0;  // connections that were opened, a transaction each
  std::uint64_t reads = 0;  // round trips without a COMMIT
  std::uint64_t refused_connects = 0;
  double store_busy_s = 0;          // of all lanes together
  std::uint32_t largest_batch = 0;  // leases in a transaction
  double longest_answer_s = 0;      // from asking the store, without what its host had before it

  [[nodiscard]] std::uint64_t Commits() const {
    return lease_transactions + close_transactions + beats + opens;
  }
};

struct Outcome {
  Load load;
  double formula_leases_per_s = 0;     // LeasesPerSecond() of all tags
  std::vector<std::uint32_t> leases;   // granted, by second of the simulation
  std::vector<std::uint32_t> commits;  // likewise
  double ready_s = 0;                  // kFresh: the longest start of a host, until it is ready
  double leases_before_ready = 0;      // kFresh: of all hosts
  // The longest that a tag waited for a lease, counted from the start of its host, or from the end
  // of the outage if it fell due before.
  double covered_s = 0;
};

// What the policy comes to for a tag of a steady rate: a lease is half the reserve of
// rate x tolerance x 1.1, or a step if that is more; near max_prefetch it is what there is room
// for.
[[nodiscard]] double LeasesPerSecond(double ids_per_s, const daemon::RefillSettings& refill);

// Claims flow as rates, so that what happens costs events, not ids: a lease falls due, a
// transaction ends, a segment is used up. The same cluster gives the same outcome. About 300 bytes
// of memory a tag.
[[nodiscard]] Outcome Simulate(const Cluster& cluster);

}  // namespace idd::capacity

#endif  // IDD_TESTS_BENCH_CAPACITY_SIMULATION_H_
