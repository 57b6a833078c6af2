// SPDX-License-Identifier: Apache-2.0
//
// Renders a sample in Prometheus' text format and as a JSON document. Pure. It takes some 10 ms for
// each thousand tags, so it must not run on the event loop.
#ifndef IDD_DAEMON_METRICS_METRICS_PAGE_H_
#define IDD_DAEMON_METRICS_METRICS_PAGE_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "metrics/metrics_sample.h"

namespace idd::daemon {

// Whether the metrics of that tag are shown.
using ShowsTag = std::function<bool(const std::string& tag)>;

[[nodiscard]] std::string MetricsText(const MetricsSample& sample, const ShowsTag& shows);
// {"metrics": [{"name","type","unit","help","samples": [{"labels","value"}]}]}. A histogram's
// samples are {"labels","count","sum","buckets": [{"le","count"}]}; the last bucket has no "le".
[[nodiscard]] nlohmann::ordered_json MetricsJson(const MetricsSample& sample,
                                                 const ShowsTag& shows);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_METRICS_METRICS_PAGE_H_
