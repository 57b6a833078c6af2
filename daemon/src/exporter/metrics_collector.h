// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_EXPORTER_METRICS_COLLECTOR_H_
#define IDD_DAEMON_EXPORTER_METRICS_COLLECTOR_H_

#include <prometheus/histogram.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metrics/metric_families.h"
#include "metrics/metrics_sample.h"
#include "platform/event_loop.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// Takes a sample of all metrics, some tags in each turn of the event loop, so that thousands of
// tags delay no claim. Only one sample is taken at a time. Callers that ask meanwhile share the
// next one, which begins after they asked.
//
// Thread safety: none; event loop. A sample may be read on any thread.
class MetricsCollector {
 public:
  // Shared, because several threads read the sample, each for as long as it needs.
  using Sample = std::shared_ptr<const MetricsSample>;
  using Done = std::function<void(Sample sample)>;
  // Adds metrics of the host; called on the loop.
  using Source = std::function<void(FamilyBuilder& families)>;

  MetricsCollector(EventLoop& loop, TagService& tags) : timer_(loop), tags_(tags) {}
  MetricsCollector(const MetricsCollector&) = delete;
  MetricsCollector& operator=(const MetricsCollector&) = delete;

  // The samples of tags over all hosts; null: there are none. Called on the loop.
  using ClusterSource = std::function<std::shared_ptr<const std::vector<ClusterTagSample>>()>;

  void AddSource(Source source) { sources_.push_back(std::move(source)); }
  void SetClusterSource(ClusterSource source) { cluster_ = std::move(source); }
  // Calls `done` once, later on the loop.
  void Collect(Done done);

 private:
  void Begin();
  void ScheduleTurn();
  void TakeTurn();
  void Finish();

  Timer timer_;
  TagService& tags_;
  std::vector<Source> sources_;
  ClusterSource cluster_;                  // may be none
  std::vector<Done> waiting_;              // for the next sample
  std::vector<Done> served_;               // with the one that is being taken
  std::unique_ptr<MetricsSample> sample_;  // null: none is
  std::string last_tag_;                   // that is in it
  prometheus::Histogram turn_seconds_{{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1}};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_EXPORTER_METRICS_COLLECTOR_H_
