// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_METRICS_METRICS_SAMPLE_H_
#define IDD_DAEMON_METRICS_METRICS_SAMPLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metrics/metric_families.h"

namespace idd::daemon {

// One tag's numbers, small enough to be copied for thousands of tags on the event loop. The metrics
// are computed from them elsewhere.
struct TagSample {
  std::string tag;
  const char* state = "";  // of status; a literal
  std::uint64_t claimed_by_ring = 0;
  std::uint64_t claimed_by_socket = 0;
  std::uint64_t available = 0;
  double rate_per_s = 0;
  std::uint64_t promised_ids = 0;  // ids that should be held by now
  double tolerance_s = 0;
  std::optional<double> exhausted_in_days;
  std::uint64_t leases = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t quarantines = 0;
  std::optional<std::uint64_t> lane_ids{};  // of a ring of order cpu
  std::uint64_t lane_dropped = 0;
  bool is_refused = false;
};

// A tag over all hosts, as the store had it.
struct ClusterTagSample {
  std::string tag;
  std::uint64_t leased = 0;
  std::uint64_t returned = 0;
  std::uint64_t abandoned = 0;
  std::uint64_t held = 0;
  std::uint64_t short_hosts = 0;
  std::optional<double> exhausted_in_days{};
};

// All metrics at one moment. Immutable once made; any thread may read it.
struct MetricsSample {
  std::vector<MeasuredFamily> host;
  std::vector<TagSample> tags;                               // in the order of their names
  std::map<std::string, std::uint64_t, std::less<>> wasted;  // ids by tag
  // Null unless this host samples the whole store.
  std::shared_ptr<const std::vector<ClusterTagSample>> cluster{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_METRICS_METRICS_SAMPLE_H_
