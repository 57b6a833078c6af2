// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_SCRAPE_H_
#define IDD_TESTS_SUPPORT_SCRAPE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "idd/base/scoped_fd.h"

namespace idd::harness {

// A page in Prometheus' text format, as a reader parses it.
class Scrape {
 public:
  // Throws HarnessError on a line that is neither a comment nor `series value`.
  explicit Scrape(const std::string& text);

  // The value of a series as it is written, `name{label="value",...}`; nothing if it is not on the
  // page.
  [[nodiscard]] std::optional<double> Find(const std::string& series) const;
  // The same; throws HarnessError if it is not on the page.
  [[nodiscard]] double At(const std::string& series) const;
  // Over all series with that name.
  [[nodiscard]] double Sum(const std::string& name) const;
  // From # TYPE: "counter" and so on.
  [[nodiscard]] const std::map<std::string, std::string>& types() const noexcept { return types_; }

 private:
  std::map<std::string, double> series_;
  std::map<std::string, std::string> types_;
};

struct HttpAnswer {
  int status = 0;  // 0: no answer
  std::string head;
  std::string body;
};

// Connects to 127.0.0.1; throws HarnessError if no process listens.
[[nodiscard]] ScopedFd ConnectTo(std::uint16_t port);
// Sends a request with its headers, and reads until the other side closes.
[[nodiscard]] HttpAnswer Http(std::uint16_t port, const std::string& method,
                              const std::string& path,
                              std::chrono::milliseconds timeout = std::chrono::seconds(20));

// The complaints of `promtool check metrics` about the page; empty if there are none.
[[nodiscard]] std::string PromtoolFindings(const std::string& page);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_SCRAPE_H_
