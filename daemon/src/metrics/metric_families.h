// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_METRICS_METRIC_FAMILIES_H_
#define IDD_DAEMON_METRICS_METRIC_FAMILIES_H_

#include <prometheus/client_metric.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>

#include <chrono>
#include <string>
#include <vector>

#include "metrics/metric_definitions.h"

namespace idd::daemon {

// The samples of one metric at one moment.
struct MeasuredFamily {
  const Metric* metric;  // of metric_definitions.h: lives as long as the program
  prometheus::MetricFamily family;
};

// Gathers families. Thread safety: none.
class FamilyBuilder {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  // The samples of one metric stand together, in the order of the first of each.
  void Add(const Metric& metric, double value, Labels labels = {});
  void Add(const Metric& metric, const prometheus::Counter& counter, Labels labels = {});
  void Add(const Metric& metric, const prometheus::Histogram& histogram);
  // Exposes the metric even while it has no sample.
  void Declare(const Metric& metric) { static_cast<void>(Of(metric)); }

  [[nodiscard]] std::vector<MeasuredFamily> Take() { return std::move(families_); }

 private:
  [[nodiscard]] prometheus::MetricFamily& Of(const Metric& metric);

  std::vector<MeasuredFamily> families_;
};

// 100 us to 10 s, for the times that a store or a waiter takes.
[[nodiscard]] prometheus::Histogram::BucketBoundaries LatencyBuckets();

[[nodiscard]] inline double Seconds(std::chrono::nanoseconds span) noexcept {
  return std::chrono::duration<double>(span).count();
}

}  // namespace idd::daemon

#endif  // IDD_DAEMON_METRICS_METRIC_FAMILIES_H_
