// SPDX-License-Identifier: Apache-2.0
#include "exporter/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

namespace idd::daemon {
namespace {

constexpr std::size_t kMostRequestBytes = 8192;
constexpr std::size_t kChunkBytes = 4096;
constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

std::chrono::seconds LongestTimeIn(HttpConnection::State state) {
  switch (state) {
    case HttpConnection::State::kWrites:
      return std::chrono::seconds(15);  // each may keep a page of its own
    case HttpConnection::State::kEnds:
      return std::chrono::seconds(2);
    default:
      return std::chrono::seconds(5);
  }
}

// Cuts the next word off `line`.
std::string_view NextWord(std::string_view& line) {
  const std::size_t space = line.find(' ');
  const std::string_view word = line.substr(0, space);
  line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  return word;
}

bool IsForLater(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

HttpConnection::HttpConnection(ScopedFd fd) : fd_(std::move(fd)) { Enter(State::kReads); }

void HttpConnection::Enter(State state) {
  state_ = state;
  until_ = MonotonicClock::now() + LongestTimeIn(state);
}

short HttpConnection::events() const noexcept {
  if (state_ == State::kWaits) return 0;  // poll() reports a peer that is gone in any case
  return state_ == State::kWrites ? POLLOUT : POLLIN;
}

void HttpConnection::GoOn(short events) {
  if (state_ == State::kWaits && (events & (POLLHUP | POLLERR)) != 0) state_ = State::kOver;
  if (state_ == State::kReads && events != 0) Read();
  if (state_ == State::kWrites) Write();
  if (state_ == State::kEnds) ReadToEnd();
}

void HttpConnection::Read() {
  std::array<char, kChunkBytes> chunk{};
  const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got < 0 && IsForLater(errno)) return;
  if (got <= 0) {
    state_ = State::kOver;
    return;
  }
  request_.append(chunk.data(), static_cast<std::size_t>(got));
  if (request_.find("\r\n\r\n") != std::string::npos) return TakeRequest();
  if (request_.size() > kMostRequestBytes) {
    ReplyError("431 Request Header Fields Too Large", "the request is too long");
  }
}

void HttpConnection::TakeRequest() {
  std::string_view line(request_);
  line = line.substr(0, line.find("\r\n"));
  const std::string_view method = NextWord(line);
  const std::string_view target = NextWord(line);
  const std::string_view path = target.substr(0, target.find('?'));
  if (!target.starts_with('/') || !line.starts_with("HTTP/1.")) {
    return ReplyError("400 Bad Request", "this is no request of HTTP/1.1");
  }
  wants_body_ = method != "HEAD";
  if (method != "GET" && method != "HEAD") {
    return ReplyError("405 Method Not Allowed", "metrics are read with GET");
  }
  if (path != "/metrics") return ReplyError("404 Not Found", "the metrics are at /metrics");
  Enter(State::kWaits);
}

void HttpConnection::ReplyPage(Page page) { Reply("200 OK", std::move(page)); }

void HttpConnection::ReplyError(std::string_view status, std::string_view reason) {
  Reply(status, std::make_shared<const std::string>(std::string(reason) + "\n"));
}

void HttpConnection::Reply(std::string_view status, Page page) {
  head_ = "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + kContentType +
          "\r\nContent-Length: " + std::to_string(page->size()) +
          "\r\nAllow: GET, HEAD\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
  if (wants_body_) page_ = std::move(page);
  Enter(State::kWrites);
}

bool HttpConnection::Send(std::string_view text, std::size_t before) {
  while (sent_ < before + text.size()) {
    const std::string_view rest = text.substr(sent_ - before);
    const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (!IsForLater(errno)) state_ = State::kOver;
      return false;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  return true;
}

// Closing a socket with unread bytes would take the reply from the peer again.
void HttpConnection::Write() {
  if (!Send(head_, 0)) return;
  if (page_ != nullptr && !Send(*page_, head_.size())) return;
  page_.reset();
  ::shutdown(fd_.get(), SHUT_WR);
  Enter(State::kEnds);
}

void HttpConnection::ReadToEnd() {
  std::array<char, kChunkBytes> chunk{};
  const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && !IsForLater(errno))) state_ = State::kOver;
}

}  // namespace idd::daemon
