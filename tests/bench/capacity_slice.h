// SPDX-License-Identifier: Apache-2.0
//
// The slice of a cluster's load that store_load_benchmark plays against a real server, and that
// capacity_simulator repeats with its model of the store.
#ifndef IDD_TESTS_BENCH_CAPACITY_SLICE_H_
#define IDD_TESTS_BENCH_CAPACITY_SLICE_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "capacity_simulation.h"

namespace idd::capacity {

inline constexpr double kSliceS = 12;  // the time that is played

// A steady cluster with about so many leases a second. Its hosts have the same tags.
[[nodiscard]] inline Cluster SliceOf(double leases_per_s) {
  constexpr double kIdsPerTag = 1000;  // a second
  Cluster slice{
      .hosts = 50, .tags_per_host = 200, .hosts_look = true, .store = {}, .keeps_requests = true};
  const double tags = slice.hosts * slice.tags_per_host;
  slice.ids_per_s = tags * kIdsPerTag;
  // See docs/capacity.md.
  slice.refill.outage_tolerance =
      std::chrono::seconds(std::max<std::int64_t>(1, std::llround(tags / (0.55 * leases_per_s))));
  slice.settle_s = 60 + 2.0 * static_cast<double>(slice.refill.outage_tolerance.count());
  slice.duration_s = slice.settle_s + kSliceS;
  return slice;
}

}  // namespace idd::capacity

#endif  // IDD_TESTS_BENCH_CAPACITY_SLICE_H_
