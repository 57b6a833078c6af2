// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_EXPORTER_METRICS_SERVER_H_
#define IDD_DAEMON_EXPORTER_METRICS_SERVER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "exporter/metrics_collector.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"

struct mg_connection;
struct mg_context;

namespace idd::daemon {

// Serves GET /metrics over HTTP to Prometheus: the metrics of all tags, to anyone who can connect.
// It changes nothing.
//
// Threads of civetweb serve the scrapers. A scraper that finds no page of the last second has a
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
  using Page = std::shared_ptr<const std::string>;  // read by several threads at once

  MetricsServer() = default;
  [[nodiscard]] Status Start(const std::string& address);
  static int OnRequest(mg_connection* connection, void* self);
  static int OnError(mg_connection* connection, int status, const char* message);
  static int OnMessage(const mg_connection* connection, const char* message);
  // The page of this second; null: idd does not answer.
  [[nodiscard]] Page GetPage();
  [[nodiscard]] Page MakePage();
  [[nodiscard]] MetricsCollector::Sample TakeSample(std::unique_lock<std::mutex>& lock);

  mg_context* context_ = nullptr;

  std::mutex mutex_;
  bool is_starting_ = true;
  std::string why_not_;  // civetweb's first message during the start
  std::condition_variable changed_;
  Ask ask_;
  bool is_making_ = false;    // one of the threads makes the page
  std::uint64_t ticket_ = 0;  // of the sample that is waited for
  MetricsCollector::Sample sample_;
  Page page_;
  MonotonicTime page_at_{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_EXPORTER_METRICS_SERVER_H_
