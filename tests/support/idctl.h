// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_IDCTL_H_
#define IDD_TESTS_SUPPORT_IDCTL_H_

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/claim_oracle.h"
#include "support/identity.h"

namespace idd::harness {

struct IdctlResult {
  int exit_status = -1;
  std::string out;
  std::string err;
  std::chrono::milliseconds duration{};
};

// The real idctl, run to its end against one daemon.
class Idctl {
 public:
  explicit Idctl(std::string socket) : socket_(std::move(socket)) {}

  // The same, run by another user.
  [[nodiscard]] Idctl As(Identity identity) const {
    Idctl other(socket_);
    other.identity_ = std::move(identity);
    return other;
  }

  [[nodiscard]] IdctlResult Run(const std::vector<std::string>& arguments) const;
  // What it prints on a terminal of that width, standard error included; it must exit 0.
  // `environment`: variables, for env(1).
  [[nodiscard]] std::string OnTerminal(const std::vector<std::string>& arguments,
                                       unsigned short columns,
                                       const std::vector<std::string>& environment = {
                                           "NO_COLOR=1", "TERM=xterm"}) const;
  // Runs it with --json; throws HarnessError unless it exits 0 with one JSON document.
  [[nodiscard]] nlohmann::json Json(const std::vector<std::string>& arguments) const;
  // Throws HarnessError unless it exits 0.
  void Do(const std::vector<std::string>& arguments) const;

  void CreateTag(const std::string& tag, std::uint64_t step) const;
  // `idctl claim TAG -n count`: exactly that many ids, or HarnessError.
  [[nodiscard]] std::vector<std::uint64_t> Claim(const std::string& tag,
                                                 std::uint64_t count = 1) const;
  [[nodiscard]] std::vector<JournalLease> Leases(const std::string& tag) const;
  [[nodiscard]] AuditRow Audit(const std::string& tag) const;

 private:
  std::string socket_;
  std::optional<Identity> identity_;
};

// One decimal id a line; throws HarnessError at anything else.
[[nodiscard]] std::vector<std::uint64_t> ParseIds(const std::string& out);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_IDCTL_H_
