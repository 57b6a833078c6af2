// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_EXPORTER_METRICS_DUTY_H_
#define IDD_DAEMON_EXPORTER_METRICS_DUTY_H_

#include <prometheus/histogram.h>

#include <chrono>
#include <memory>
#include <string>

#include "exporter/metrics_collector.h"
#include "exporter/metrics_server.h"
#include "exporter/metrics_textfile.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// What idd does for its metrics beside answering idctl: tells them to scrapers and to a file, and
// measures the event loop.
//
// Thread safety: none; event loop.
class MetricsDuty {
 public:
  // `server` is asked from now on and until the end; null: there is none.
  MetricsDuty(EventLoop& loop, MetricsCollector& collector, MetricsServer* server);
  ~MetricsDuty();
  MetricsDuty(const MetricsDuty&) = delete;
  MetricsDuty& operator=(const MetricsDuty&) = delete;

  // A timer of every second was that late.
  void NoteDelay(std::chrono::nanoseconds delay) { loop_delay_.Observe(Seconds(delay)); }
  // Where the metrics are kept from now on; empty: nowhere. What was kept elsewhere is removed.
  void KeepIn(const std::string& textfile);

 private:
  void AddFamilies(FamilyBuilder& families) const;
  void WriteTextfile();

  EventLoop& loop_;
  MetricsCollector& collector_;
  MetricsServer* const server_;
  Timer timer_;
  prometheus::Histogram loop_delay_{LatencyBuckets()};
  std::string path_;
  std::unique_ptr<MetricsTextfile> textfile_;  // as soon as there was a path
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_EXPORTER_METRICS_DUTY_H_
