// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_EXPORTER_METRICS_PUBLISHER_H_
#define IDD_DAEMON_EXPORTER_METRICS_PUBLISHER_H_

#include <prometheus/histogram.h>

#include <chrono>
#include <memory>
#include <string>

#include "exporter/metrics_collector.h"
#include "exporter/metrics_server.h"
#include "exporter/metrics_textfile.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Lets scrapers read the metrics, writes the metrics to a file, and measures the event loop's lag
// and turns.
// (Admin answers idctl.)
//
// Thread safety: none; event loop.
class MetricsPublisher {
 public:
  // `server` serves the metrics from now until the destruction; null: there is none.
  MetricsPublisher(EventLoop& loop, MetricsCollector& collector, MetricsServer* server);
  ~MetricsPublisher();
  MetricsPublisher(const MetricsPublisher&) = delete;
  MetricsPublisher& operator=(const MetricsPublisher&) = delete;

  // Records how late the one-second timer was.
  void NoteDelay(std::chrono::nanoseconds delay) { loop_delay_.Observe(Seconds(delay)); }
  // Keeps the metrics in this file from now on; empty: in none. Removes the earlier file.
  void KeepIn(const std::string& textfile);

 private:
  void AddFamilies(FamilyBuilder& families) const;
  void WriteTextfile();

  EventLoop& loop_;
  MetricsCollector& collector_;
  MetricsServer* const server_;
  Timer timer_;
  prometheus::Histogram loop_delay_{LatencyBuckets()};
  prometheus::Histogram loop_turn_{{0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1}};
  std::string path_;
  std::unique_ptr<MetricsTextfile> textfile_;  // as soon as there was a path
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_EXPORTER_METRICS_PUBLISHER_H_
