// SPDX-License-Identifier: Apache-2.0
#include "exporter/metrics_collector.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "idd/base/clock.h"

namespace idd::daemon {
namespace {

// A tag takes some microseconds.
constexpr std::size_t kTagsATurn = 100;

}  // namespace

void MetricsCollector::Collect(Done done) {
  waiting_.push_back(std::move(done));
  if (sample_ == nullptr) Begin();
}

// Takes no sample in the caller's turn of the loop, which must be short.
void MetricsCollector::Begin() {
  sample_ = std::make_unique<MetricsSample>();
  served_ = std::exchange(waiting_, {});
  last_tag_.clear();
  ScheduleTurn();
}

// The turn comes after everything that waits for the loop now.
void MetricsCollector::ScheduleTurn() {
  timer_.After(std::chrono::nanoseconds(0), [this] { TakeTurn(); });
}

void MetricsCollector::TakeTurn() {
  const MonotonicTime began = MonotonicClock::now();
  const std::optional<std::string> reached = tags_.SampleTags(last_tag_, kTagsATurn, sample_->tags);
  turn_seconds_.Observe(Seconds(MonotonicClock::now() - began));
  if (!reached) return Finish();
  last_tag_ = *reached;
  ScheduleTurn();
}

void MetricsCollector::Finish() {
  FamilyBuilder families;
  for (const Source& source : sources_) source(families);
  tags_.AddFamilies(families);
  families.Add(metric::kMetricsTurn, turn_seconds_);
  sample_->host = families.Take();
  sample_->wasted = tags_.Waste();
  if (cluster_) sample_->cluster = cluster_();
  const Sample sample = std::move(sample_);
  for (const Done& done : std::exchange(served_, {})) done(sample);
  if (!waiting_.empty() && sample_ == nullptr) Begin();
}

}  // namespace idd::daemon
