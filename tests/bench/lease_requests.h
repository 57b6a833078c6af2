// SPDX-License-Identifier: Apache-2.0
//
// What benchmarks without a daemon ask a store for, in the daemon's own form.
#ifndef IDD_TESTS_BENCH_LEASE_REQUESTS_H_
#define IDD_TESTS_BENCH_LEASE_REQUESTS_H_

#include <string>
#include <vector>

#include "platform/random.h"
#include "store/store.h"

namespace idd::bench {

// The next 1,000 ids of each tag, as in take_leases.cc.
inline std::vector<daemon::LeaseRequest> RequestsFor(const std::vector<std::string>& tags) {
  std::vector<daemon::LeaseRequest> requests;
  requests.reserve(tags.size());
  for (const std::string& tag : tags) {
    requests.push_back({.tag = tag,
                        .count = 1000,
                        .high_water_mark = 0,
                        .floor = 0,
                        .token = daemon::RandomToken()});
  }
  return requests;
}

// The end of a lease of which all ids were claimed.
inline daemon::LeaseClosure EndOf(const daemon::Lease& lease) {
  return {.token = lease.token,
          .tag = lease.tag,
          .state = daemon::LeaseState::kExhausted,
          .claimed = lease.ids.size()};
}

}  // namespace idd::bench

#endif  // IDD_TESTS_BENCH_LEASE_REQUESTS_H_
