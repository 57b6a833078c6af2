// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_EXPORTER_METRICS_SERVER_H_
#define IDD_DAEMON_EXPORTER_METRICS_SERVER_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exporter/http_connection.h"
#include "exporter/metrics_collector.h"
#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"

namespace idd::daemon {

// Serves GET /metrics over HTTP to Prometheus: the metrics of all tags, to anyone who can connect.
// It changes nothing.
//
// One thread serves all scrapers and waits for none of them. Each connection may last for some
// seconds; when there are too many, the one that has been silent for longest makes room. So
// requests that never end keep no scrape out. A scraper that finds no page of the last second has a
// sample taken and written out; the others get the same page. So the event loop is asked at most
// once a second, however many scrapers there are and however slowly they read.
//
// Thread safety: all. It must outlive the loop that Serve() asks.
class MetricsServer {
 public:
  // Has a sample taken on the event loop, from any thread; returns at once.
  using Ask = std::function<void(MetricsCollector::Done done)>;

  // Listens at HOST:PORT as CheckListenAddress() has it. Answers 503 until Serve(). kSystem.
  [[nodiscard]] static Result<std::unique_ptr<MetricsServer>> Listen(const std::string& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  void Serve(Ask ask);
  // Asks no more. After this call the loop may end.
  void StopServing() { Serve(nullptr); }

 private:
  MetricsServer() = default;
  [[nodiscard]] Status Bind(const std::string& address);
  void Wake() noexcept;

  // The members below are the thread's.
  void Run();
  void ServeOnce();
  void Poll(std::vector<pollfd>& entries);
  void Accept();
  void MakeRoom();
  void EndOverdue();
  void ReplyToWaiting();
  // What to reply now; null: the sample is on its way.
  [[nodiscard]] HttpConnection::Page GetPage();
  // False: there is nothing to ask.
  [[nodiscard]] bool AskForSample();

  ScopedFd listener_;
  ScopedFd wake_;
  std::atomic<bool> is_ending_{false};

  std::mutex mutex_;
  Ask ask_;
  std::uint64_t ticket_ = 0;  // of the sample that is waited for
  MetricsCollector::Sample sample_;

  // The thread's.
  std::list<HttpConnection> connections_;  // the oldest first
  std::optional<MonotonicTime> asked_at_;  // nullopt: no sample is waited for
  HttpConnection::Page page_;
  MonotonicTime page_at_{};
  MonotonicTime accepts_from_{};  // later than now: there was no descriptor for a scraper

  std::thread thread_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_EXPORTER_METRICS_SERVER_H_
