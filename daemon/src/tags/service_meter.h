// SPDX-License-Identifier: Apache-2.0
//
// The counters of TagService. Thread safety: only that of each metric; event loop.
#ifndef IDD_DAEMON_TAGS_SERVICE_METER_H_
#define IDD_DAEMON_TAGS_SERVICE_METER_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <array>
#include <cstddef>

#include "idd/base/status.h"
#include "metrics/metric_families.h"
#include "tags/wait_queue.h"

namespace idd::daemon {

struct ServiceMeter {
  prometheus::Counter leases_taken;
  prometheus::Counter leases_refused;
  prometheus::Counter lease_failures;
  prometheus::Counter refills;
  prometheus::Counter refill_notices;
  prometheus::Counter dry_claims;
  prometheus::Histogram claim_wait{LatencyBuckets()};
  // By Code: dry claims that were answered with it.
  std::array<prometheus::Counter, static_cast<std::size_t>(Code::kSystem) + 1> failed_claims;
};

// Counts a claim that has to wait, and its outcome.
[[nodiscard]] ClaimDone MeterDryClaim(ServiceMeter& meter, ClaimDone done);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_SERVICE_METER_H_
