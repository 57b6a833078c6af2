// SPDX-License-Identifier: Apache-2.0
#include "exporter/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
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
constexpr std::size_t kMostConnections = 32;
constexpr int kBacklog = 256;
constexpr std::chrono::milliseconds kAcceptPause(100);
constexpr int kLongestPollMs = 1000;
constexpr std::size_t kListenerEntry = 1;  // of what is polled; the connections follow it

// Precondition: CheckListenAddress() accepts it.
sockaddr_storage Parse(const std::string& address, socklen_t& bytes) {
  const HostAndPort parts = SplitListenAddress(address);
  std::uint16_t port = 0;
  std::from_chars(parts.port.data(), parts.port.data() + parts.port.size(), port);
  sockaddr_storage parsed{};
  if (parts.host.starts_with('[')) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = ::htons(port);
    const std::string host(parts.host.substr(1, parts.host.size() - 2));
    ::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr);
    std::memcpy(&parsed, &v6, bytes = sizeof(v6));
    return parsed;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = ::htons(port);
  const std::string host(parts.host == kLocalhost ? "127.0.0.1" : parts.host);
  ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr);
  std::memcpy(&parsed, &v4, bytes = sizeof(v4));
  return parsed;
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::Listen(const std::string& address) {
  std::unique_ptr<MetricsServer> server(new MetricsServer());
  if (Status status = server->Bind(address); !status.ok()) {
    return Status(Code::kSystem, "cannot serve metrics at " + address + ": " + status.message() +
                                     "; choose another address or port with metrics-listen");
  }
  server->thread_ = std::thread([self = server.get()] { self->Run(); });
  return server;
}

Status MetricsServer::Bind(const std::string& address) {
  socklen_t bytes = 0;
  const sockaddr_storage parsed = Parse(address, bytes);
  constexpr int kOn = 1;
  listener_.reset(::socket(parsed.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return Status::FromErrno(errno, "socket");
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof(kOn));
  if (parsed.ss_family == AF_INET6) {
    ::setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &kOn, sizeof(kOn));
  }
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&parsed), bytes) != 0) {
    return Status::FromErrno(errno, "bind");
  }
  if (::listen(listener_.get(), kBacklog) != 0) return Status::FromErrno(errno, "listen");
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return wake_.valid() ? Status::Ok() : Status::FromErrno(errno, "eventfd");
}

MetricsServer::~MetricsServer() {
  if (!thread_.joinable()) return;
  is_ending_ = true;
  StopServing();
  thread_.join();
}

void MetricsServer::Serve(Ask ask) {
  {
    const std::lock_guard lock(mutex_);
    ask_ = std::move(ask);
  }
  Wake();
}

void MetricsServer::Wake() noexcept {
  constexpr std::uint64_t kOne = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &kOne, sizeof(kOne));
}

// --- the thread

void MetricsServer::Run() {
  while (!is_ending_) {
    try {
      ServeOnce();
    } catch (const std::exception& error) {  // out of memory: so nothing is kept
      log::Error("metrics.failed", {{"error", error.what()}});
      connections_.clear();
      page_.reset();
    }
  }
}

void MetricsServer::ServeOnce() {
  std::vector<pollfd> entries;
  Poll(entries);
  std::size_t entry = kListenerEntry;
  for (HttpConnection& connection : connections_) connection.GoOn(entries[++entry].revents);
  if (entries[kListenerEntry].revents != 0) Accept();
  ReplyToWaiting();
  EndOverdue();
}

void MetricsServer::Poll(std::vector<pollfd>& entries) {
  const MonotonicTime now = MonotonicClock::now();
  MonotonicTime until = now + std::chrono::milliseconds(kLongestPollMs);
  const short accepts = accepts_from_ <= now ? POLLIN : 0;
  if (accepts == 0) until = std::min(until, accepts_from_);
  entries = {{.fd = wake_.get(), .events = POLLIN, .revents = 0},
             {.fd = listener_.get(), .events = accepts, .revents = 0}};
  for (const HttpConnection& connection : connections_) {
    entries.push_back({.fd = connection.fd(), .events = connection.events(), .revents = 0});
    until = std::min(until, connection.until());
  }
  if (asked_at_.has_value()) until = std::min(until, *asked_at_ + kPatience);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  if (::poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(wait, 0))) <
      0) {
    for (pollfd& entry : entries) entry.revents = 0;
  }
  std::uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &ignored, sizeof(ignored));
}

void MetricsServer::Accept() {
  for (std::size_t i = 0; i < kMostConnections; ++i) {
    ScopedFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      MakeRoom();
      accepts_from_ = MonotonicClock::now() + kAcceptPause;
      return;
    }
    if (connections_.size() >= kMostConnections) MakeRoom();
    connections_.emplace_back(std::move(fd));
    connections_.back().GoOn(POLLIN);  // the request is often there already
  }
}

// A scraper sends its request at once, and reads the reply at once.
void MetricsServer::MakeRoom() {
  if (connections_.empty()) return;
  const auto is_silent = [](const HttpConnection& connection) {
    return connection.state() != HttpConnection::State::kWaits &&
           connection.state() != HttpConnection::State::kWrites;
  };
  const auto silent = std::find_if(connections_.begin(), connections_.end(), is_silent);
  connections_.erase(silent == connections_.end() ? connections_.begin() : silent);
}

void MetricsServer::EndOverdue() {
  const MonotonicTime now = MonotonicClock::now();
  for (auto it = connections_.begin(); it != connections_.end();) {
    HttpConnection& connection = *it;
    const bool is_overdue = connection.until() <= now;
    if (is_overdue && connection.state() == HttpConnection::State::kReads) {
      connection.ReplyError("408 Request Timeout", "the request did not arrive");
      connection.GoOn(0);
    }
    const bool is_over = connection.state() == HttpConnection::State::kOver ||
                         (is_overdue && connection.until() <= now);
    it = is_over ? connections_.erase(it) : std::next(it);
  }
}

void MetricsServer::ReplyToWaiting() {
  const auto waits = [](const HttpConnection& connection) {
    return connection.state() == HttpConnection::State::kWaits;
  };
  if (std::none_of(connections_.begin(), connections_.end(), waits)) return;
  const bool is_answered = !asked_at_.has_value() || MonotonicClock::now() - *asked_at_ < kPatience;
  const HttpConnection::Page page = GetPage();
  const bool has_asked =
      page == nullptr && is_answered && (asked_at_.has_value() || AskForSample());
  if (has_asked) return;
  asked_at_.reset();
  for (HttpConnection& connection : connections_) {
    if (!waits(connection)) continue;
    if (page != nullptr) {
      connection.ReplyPage(page);
    } else {
      connection.ReplyError("503 Service Unavailable", "idd does not answer now");
    }
    connection.GoOn(0);
  }
}

HttpConnection::Page MetricsServer::GetPage() {
  if (page_ != nullptr && MonotonicClock::now() - page_at_ < kFresh) return page_;
  MetricsCollector::Sample sample;
  {
    const std::lock_guard lock(mutex_);
    sample = std::exchange(sample_, nullptr);
  }
  if (sample == nullptr) return nullptr;
  page_ = std::make_shared<const std::string>(
      MetricsText(*sample, [](const std::string&) { return true; }));
  page_at_ = MonotonicClock::now();
  return page_;
}

// `ask_` is called under the lock: once StopServing() has returned, no thread calls it any more.
bool MetricsServer::AskForSample() {
  const std::lock_guard lock(mutex_);
  if (!ask_) return false;
  asked_at_ = MonotonicClock::now();
  const std::uint64_t ticket = ++ticket_;
  sample_.reset();
  ask_([this, ticket](const MetricsCollector::Sample& sample) {
    {
      const std::lock_guard arrived(mutex_);
      if (ticket == ticket_) sample_ = sample;
    }
    Wake();
  });
  return true;
}

}  // namespace idd::daemon
