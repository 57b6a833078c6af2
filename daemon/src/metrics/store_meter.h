// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_METRICS_STORE_METER_H_
#define IDD_DAEMON_METRICS_STORE_METER_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "metrics/metric_families.h"

namespace idd::daemon {

// Measurements of the store and of the use of its leases. Thread safety: all; the lease worker and
// the event loop count, the event loop reads.
class StoreMeter {
 public:
  // Duration of each transaction of leases, including failed ones.
  prometheus::Histogram lease_duration{LatencyBuckets()};
  // Failures of the store, not of a single tag.
  prometheus::Counter failures;

  // Leased ids that will not be handed out.
  void AddWaste(const std::string& tag, std::uint64_t ids) {
    if (ids == 0) return;
    const std::lock_guard lock(mutex_);
    waste_[tag] += ids;
  }
  [[nodiscard]] std::map<std::string, std::uint64_t, std::less<>> Waste() const {
    const std::lock_guard lock(mutex_);
    return waste_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t, std::less<>> waste_;  // by tag
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_METRICS_STORE_METER_H_
