// SPDX-License-Identifier: Apache-2.0
#include "metrics/metric_families.h"

#include <utility>

namespace idd::daemon {
namespace {

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      break;
  }
  return prometheus::MetricType::Histogram;
}

}  // namespace

void FamilyBuilder::Add(const Metric& metric, double value, Labels labels) {
  prometheus::ClientMetric& sample = Of(metric).metric.emplace_back();
  sample.label = std::move(labels);
  if (metric.kind == MetricKind::kCounter) {
    sample.counter.value = value;
  } else {
    sample.gauge.value = value;
  }
}

void FamilyBuilder::Add(const Metric& metric, const prometheus::Counter& counter, Labels labels) {
  Add(metric, counter.Value(), std::move(labels));
}

void FamilyBuilder::Add(const Metric& metric, const prometheus::Histogram& histogram) {
  Of(metric).metric.push_back(histogram.Collect());
}

prometheus::MetricFamily& FamilyBuilder::Of(const Metric& metric) {
  for (MeasuredFamily& known : families_) {
    if (known.metric == &metric) return known.family;
  }
  MeasuredFamily& added = families_.emplace_back();
  added.metric = &metric;
  added.family.name = metric.name;
  added.family.help = metric.help;
  added.family.type = TypeOf(metric.kind);
  return added.family;
}

prometheus::Histogram::BucketBoundaries LatencyBuckets() {
  return {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
}

}  // namespace idd::daemon
