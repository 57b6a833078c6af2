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
// node_exporter. A reader sees a whole page or none: each is written beside the file and takes its
// name. At the end the file goes, so that no one takes the numbers of an idd that has ended for
// present ones.
//
// Thread safety: none; event loop. A disk that hangs keeps its own thread waiting alone.
class MetricsTextfile {
 public:
  MetricsTextfile() = default;
  ~MetricsTextfile();
  MetricsTextfile(const MetricsTextfile&) = delete;
  MetricsTextfile& operator=(const MetricsTextfile&) = delete;

  // The file so far is removed; empty: there is none from now on.
  void MoveTo(std::string path);
  // Later, on a thread of its own; left out while the one before is still on its way. A failure is
  // logged once, until it is over.
  void Write(const MetricsCollector::Sample& sample);

 private:
  void RemoveNow();
  void WriteNow(const MetricsSample& sample);
  void Tell(const Status& status);

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
