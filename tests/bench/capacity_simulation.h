// SPDX-License-Identifier: Apache-2.0
//
// A simulation of the load that a cluster of idd hosts puts on its store. It runs the daemon's
// refill policy and lease budget in simulated time.
#ifndef IDD_TESTS_BENCH_CAPACITY_SIMULATION_H_
#define IDD_TESTS_BENCH_CAPACITY_SIMULATION_H_

#include <cstdint>
#include <vector>

#include "config/options.h"
#include "leasing/lease_scheduler.h"
#include "refill/refill_settings.h"

namespace idd::capacity {

// The allocator. A request needs processor time, first come, first served, and a COMMIT then waits
// for the disk: all COMMITs that come while one write is under way share the next one. Not
// modelled: locks of rows, timeouts. The times are those of store_load_benchmark in
// docs/capacity.md. They decide how long the store takes, not how many requests it gets.
struct StoreModel {
  double transaction_s = 400e-6;  // one lease, including the read before it
  double more_s = 80e-6;          // each further lease in the transaction
  double read_s = 100e-6;         // a single read
  double look_s = 200e-6;         // a look at the term; a witness's row takes a transaction more
  double sync_s = 1e-3;           // a synchronous write
  double answer_s = 500e-6;       // one network round trip
  std::uint32_t processors = 2;
};

// The store does not answer. With a grace, no host leases for that long after the store is back, as
// idd does after a server was restarted or replaced.
struct StoreOutage {
  double begin_s = 0;
  double end_s = 0;  // 0: no outage
  double grace_s = 0;
};

enum class Start {
  kRunning,  // each tag is somewhere between two leases
  kFresh,    // every daemon starts, with tags that it has served before; no outage
};

// Which of the daemon's looks at a tag are simulated.
enum class Looks {
  kEverySecond,  // all, as in the daemon
  kChanges,      // all but the seconds in which a policy sees the same as before
};

struct Cluster {
  std::uint32_t hosts = 10'000;
  std::uint32_t tags_per_host = 100;
  double ids_per_s = 1e8;  // the mean, over all hosts and tags together
  double spread = 1;       // sigma of the lognormal distribution of the tags' rates; 0: all equal
  daemon::RefillSettings refill{};
  std::uint32_t leases_per_s = daemon::kDefaultLeasesPerSecond;  // maximum of each host
  Start start = Start::kRunning;
  double starts_over_s = 0;  // kFresh: the starts are spread over this time
  double duration_s = 3600;
  double settle_s = 0;      // excluded from Load at the beginning
  bool hosts_look = false;  // a witness every second, any other host every two
  StoreOutage outage{};
  StoreModel store{};
  Looks looks = Looks::kChanges;
  bool keeps_requests = false;  // Outcome::requests and ::waits_s
  std::uint64_t seed = 1;
};

// A host finds that a tag wants a lease, or that a segment of it is used up.
struct Request {
  double at = 0;
  std::uint32_t host = 0;
  std::uint32_t tag = 0;  // of this host, from 0
  bool is_end = false;
};

// The requests to the store, from settle_s to duration_s.
struct Load {
  double claims = 0;
  double dry_claims = 0;  // those that had to wait
  std::uint64_t leases = 0;
  std::uint64_t lease_transactions = 0;
  std::uint64_t closed = 0;  // journal rows closed
  std::uint64_t close_transactions = 0;
  std::uint64_t beats = 0;  // heartbeats, a transaction each
  std::uint64_t opens = 0;  // connections opened, a transaction each
  std::uint64_t looks = 0;  // at the term, without a COMMIT
  std::uint64_t notes = 0;  // of witnesses, a transaction each
  std::uint64_t reads = 0;  // round trips without a COMMIT
  std::uint64_t refused_connects = 0;
  double store_busy_s = 0;          // summed over all processors
  std::uint32_t largest_batch = 0;  // leases in one transaction
  double longest_answer_s = 0;      // of one request, excluding the host's earlier requests

  [[nodiscard]] std::uint64_t Commits() const {
    return lease_transactions + close_transactions + beats + opens + notes;
  }
};

struct Outcome {
  Load load;
  double formula_leases_per_s = 0;     // LeasesPerSecond(), summed over all tags
  std::vector<std::uint32_t> leases;   // granted in each simulated second
  std::vector<std::uint32_t> commits;  // likewise
  double ready_s = 0;                  // kFresh: the longest time until a host is ready
  double leases_before_ready = 0;      // kFresh: over all hosts
  // The longest wait of a tag for a lease, counted from the start of its host, or from the end of
  // the outage if the tag fell due before that.
  double covered_s = 0;
  // From settle_s on, in the order of time.
  std::vector<Request> requests;
  std::vector<double> waits_s;  // of leases, from the moment that the tag wanted one
};

// The policy's steady state at a steady rate: a lease is half the reserve of rate x tolerance x
// 1.1, or a step if that is more; near max_prefetch it is limited to the room that is left.
[[nodiscard]] double LeasesPerSecond(double ids_per_s, const daemon::RefillSettings& refill);

// Claims flow as rates, so the cost depends on the number of events, not ids: a lease falls due, a
// transaction ends, a segment is used up. Deterministic for a given cluster. Uses about 300 bytes
// of memory a tag.
[[nodiscard]] Outcome Simulate(const Cluster& cluster);

}  // namespace idd::capacity

#endif  // IDD_TESTS_BENCH_CAPACITY_SIMULATION_H_
