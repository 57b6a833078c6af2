// SPDX-License-Identifier: Apache-2.0
#include "exporter/metrics_server.h"

#include <civetweb.h>

#include <array>
#include <chrono>
#include <exception>
#include <string_view>
#include <utility>

#include "metrics/metrics_page.h"
#include "platform/listen_address.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

// A page that is younger than this is served again.
constexpr std::chrono::seconds kFresh(1);
// Shorter than Prometheus' default timeout (10 s), so that it gets the reason.
constexpr std::chrono::seconds kPatience(3);
constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

void Reply(mg_connection* connection, const char* status, std::string_view text) {
  mg_printf(connection,
            "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nAllow: GET, HEAD\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            status, kContentType, text.size());
  const mg_request_info* const request = mg_get_request_info(connection);
  const char* const method = request == nullptr ? nullptr : request->request_method;
  if (method != nullptr && std::string_view(method) == "HEAD") return;
  mg_write(connection, text.data(), text.size());
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::Listen(const std::string& address) {
  std::unique_ptr<MetricsServer> server(new MetricsServer());
  Status status = server->Start(address);
  if (!status.ok()) return status;
  return server;
}

Status MetricsServer::Start(const std::string& address) {
  const HostAndPort parts = SplitListenAddress(address);
  const std::string port = (parts.host == kLocalhost ? "127.0.0.1" : std::string(parts.host)) +
                           ":" + std::string(parts.port);
  // A scraper that stops reading holds one of the threads for at most this long.
  std::array<const char*, 9> options = {
      "listening_ports",   port.c_str(), "num_threads", "4", "request_timeout_ms", "5000",
      "enable_keep_alive", "no",         nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = OnMessage;
  callbacks.http_error = OnError;
  std::array<char, 256> text{};
  unsigned code = 0;
  mg_init_data init{
      .callbacks = &callbacks, .user_data = this, .configuration_options = options.data()};
  mg_error_data error{.code = &code, .text = text.data(), .text_buffer_size = text.size()};
  mg_init_library(0);
  context_ = mg_start2(&init, &error);
  const std::lock_guard lock(mutex_);
  is_starting_ = false;
  if (context_ == nullptr) {
    return {Code::kSystem, "cannot serve metrics at " + address + ": " +
                               (why_not_.empty() ? std::string(text.data()) : why_not_) +
                               "; choose another address or port with metrics-listen"};
  }
  mg_set_request_handler(context_, "**", OnRequest, this);
  return Status::Ok();
}

MetricsServer::~MetricsServer() {
  StopServing();
  if (context_ != nullptr) mg_stop(context_);
  mg_exit_library();
}

void MetricsServer::Serve(Ask ask) {
  const std::lock_guard lock(mutex_);
  ask_ = std::move(ask);
  changed_.notify_all();
}

// The first message during the start is the reason for its failure. Later messages are about errors
// of peers and are only logged for debugging. 1: civetweb writes the message nowhere else.
int MetricsServer::OnMessage(const mg_connection* connection, const char* message) {
  log::Debug("metrics.http", {{"message", message}});
  auto* const self = static_cast<MetricsServer*>(mg_get_user_data(mg_get_context(connection)));
  if (self == nullptr) return 1;
  const std::lock_guard lock(self->mutex_);
  if (self->is_starting_ && self->why_not_.empty()) self->why_not_ = message;
  return 1;
}

// Answers malformed and late requests. civetweb's own reply gets its date from gmtime(), which is
// not thread-safe. 0: the request is answered.
int MetricsServer::OnError(mg_connection* connection, int status, const char* message) {
  const std::string line =
      std::to_string(status) + " " + mg_get_response_code_text(connection, status);
  Reply(connection, line.c_str(), std::string(message) + "\n");
  return 0;
}

int MetricsServer::OnRequest(mg_connection* connection, void* self) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const std::string_view method = request->request_method;
  const std::string_view path = request->local_uri == nullptr ? "" : request->local_uri;
  if (method != "GET" && method != "HEAD") {
    Reply(connection, "405 Method Not Allowed", "metrics are read with GET\n");
    return 405;
  }
  if (path != "/metrics") {
    Reply(connection, "404 Not Found", "the metrics are at /metrics\n");
    return 404;
  }
  const Page page = static_cast<MetricsServer*>(self)->GetPage();
  if (page == nullptr) {
    Reply(connection, "503 Service Unavailable", "idd does not answer now\n");
    return 503;
  }
  Reply(connection, "200 OK", *page);
  return 200;
}

MetricsServer::Page MetricsServer::GetPage() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return !is_making_; });
    const bool is_fresh = page_ != nullptr && MonotonicClock::now() - page_at_ < kFresh;
    if (is_fresh) return page_;
    if (is_making_ || !ask_) return nullptr;
    is_making_ = true;
  }
  Page page;
  // civetweb is C: no exception may pass through it.
  try {
    page = MakePage();
  } catch (const std::exception& error) {
    log::Error("metrics.failed", {{"error", error.what()}});
  }
  const std::lock_guard lock(mutex_);
  is_making_ = false;
  if (page != nullptr) {
    page_ = page;
    page_at_ = MonotonicClock::now();
  }
  changed_.notify_all();
  return page;
}

MetricsServer::Page MetricsServer::MakePage() {
  MetricsCollector::Sample sample;
  {
    std::unique_lock lock(mutex_);
    sample = TakeSample(lock);
  }
  if (sample == nullptr) return nullptr;
  return std::make_shared<const std::string>(
      MetricsText(*sample, [](const std::string&) { return true; }));
}

// `ask_` is called under the lock: once StopServing() has returned, no thread calls it any more.
MetricsCollector::Sample MetricsServer::TakeSample(std::unique_lock<std::mutex>& lock) {
  if (!ask_) return nullptr;
  const std::uint64_t ticket = ++ticket_;
  sample_.reset();
  ask_([this, ticket](const MetricsCollector::Sample& sample) {
    const std::lock_guard arrived(mutex_);
    if (ticket == ticket_) sample_ = sample;
    changed_.notify_all();
  });
  changed_.wait_for(lock, kPatience, [this] { return sample_ != nullptr || !ask_; });
  return std::exchange(sample_, nullptr);
}

}  // namespace idd::daemon
