// SPDX-License-Identifier: Apache-2.0
#include "support/scrape.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>

#include "support/child_process.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::harness {

namespace {

// The body of a chunked answer: each chunk follows its length and an end of line.
std::string Joined(const std::string& chunks) {
  std::string body;
  for (std::size_t at = 0; at < chunks.size();) {
    const std::size_t bytes = std::strtoul(chunks.c_str() + at, nullptr, 16);
    const std::size_t line_end = chunks.find("\r\n", at);
    if (bytes == 0 || line_end == std::string::npos) break;
    body += chunks.substr(line_end + 2, bytes);
    at = line_end + 2 + bytes + 2;
  }
  return body;
}

}  // namespace

Scrape::Scrape(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      const std::size_t blank = line.rfind(' ');
      types_[line.substr(7, blank - 7)] = line.substr(blank + 1);
    }
    if (line.empty() || line[0] == '#') continue;
    const std::size_t blank = line.rfind(' ');
    Require(blank != std::string::npos && blank > 0, "not a sample: " + line);
    const char* const number = line.c_str() + blank + 1;
    char* end = nullptr;
    const double value = std::strtod(number, &end);
    Require(end != number && *end == '\0', "not a number: " + line);
    Require(series_.emplace(line.substr(0, blank), value).second, "two values: " + line);
  }
}

std::optional<double> Scrape::Find(const std::string& series) const {
  const auto it = series_.find(series);
  return it == series_.end() ? std::nullopt : std::optional(it->second);
}

double Scrape::At(const std::string& series) const {
  const std::optional<double> value = Find(series);
  Require(value.has_value(), "no value: " + series);
  return *value;
}

double Scrape::Sum(const std::string& name) const {
  double sum = 0;
  for (const auto& [series, value] : series_) {
    if (series == name || series.starts_with(name + "{")) sum += value;
  }
  return sum;
}

ScopedFd ConnectTo(std::uint16_t port) {
  ScopedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  RequireErrno(fd.valid(), "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  RequireErrno(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
               "connect to port " + std::to_string(port));
  return fd;
}

HttpAnswer Http(std::uint16_t port, const std::string& method, const std::string& path,
                std::chrono::milliseconds timeout) {
  const ScopedFd fd = ConnectTo(port);
  const timeval patience{.tv_sec = timeout.count() / 1000,
                         .tv_usec = timeout.count() % 1000 * 1000};
  RequireErrno(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0,
               "SO_RCVTIMEO");
  const std::string request =
      method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  RequireErrno(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
                   static_cast<ssize_t>(request.size()),
               "send");
  std::string text;
  std::array<char, 65536> part{};
  while (true) {
    const ssize_t bytes = ::recv(fd.get(), part.data(), part.size(), 0);
    if (bytes <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(bytes));
  }
  HttpAnswer answer;
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos || !text.starts_with("HTTP/1.1 ")) return answer;
  answer.status = std::atoi(text.c_str() + 9);
  answer.head = text.substr(0, end);
  answer.body = text.substr(end + 4);
  if (answer.head.find("chunked") != std::string::npos) answer.body = Joined(answer.body);
  return answer;
}

std::string PromtoolFindings(const std::string& page) {
  const TempDir dir;
  WriteFile(dir.File("page"), page);
  ChildProcess promtool(
      {.argv = {"/bin/sh", "-c", "exec promtool check metrics <\"$0\" 2>&1", dir.File("page")},
       .environment = {}});
  const std::optional<int> status = promtool.WaitFor(Patience(std::chrono::seconds(60)));
  Require(status.has_value(), "promtool does not end");
  const std::string said = promtool.stdout_text();
  return *status == 0 || !said.empty() ? said : "exit status " + std::to_string(*status);
}

}  // namespace idd::harness
