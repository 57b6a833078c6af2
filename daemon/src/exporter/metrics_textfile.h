// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_EXPORTER_METRICS_TEXTFILE_H_
#define IDD_DAEMON_EXPORTER_METRICS_TEXTFILE_H_

#include <atomic>
#include <string>

#include "exporter/metrics_collector.h"
#include "idd/base/status.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// Keeps a file with the metrics of all tags for the textfile collector of Prometheus'
// node_exporter. A reader sees a whole page or none: each page is written to another file, which
// then takes the name. The file is removed at the end, so that numbers of an ended idd are not
// taken for current ones.
//
// Thread safety: none; event loop. A disk that hangs blocks only this object's own thread.
class MetricsTextfile {
 public:
  MetricsTextfile() = default;
  ~MetricsTextfile();
  MetricsTextfile(const MetricsTextfile&) = delete;
  MetricsTextfile& operator=(const MetricsTextfile&) = delete;

  // Removes the earlier file. Empty: keeps none from now on.
  void MoveTo(std::string path);
  // Writes later, on another thread; skipped while the previous write is under way. A failure is
  // logged once, until a write succeeds.
  void Write(const MetricsCollector::Sample& sample);

 private:
  void RemoveNow();
  void WriteNow(const MetricsSample& sample);
  void ReportOutcome(const Status& status);

  std::atomic<bool> is_busy_ = false;
  // Below: the thread's.
  std::string path_;
  bool has_written_ = false;
  std::string last_error_;
  WorkThread thread_;  // last: it ends before the rest goes
};

// Writes `text` to `path`, whole or not at all; readable for all users. kSystem.
[[nodiscard]] Status ReplaceFile(const std::string& path, const std::string& text);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_EXPORTER_METRICS_TEXTFILE_H_
