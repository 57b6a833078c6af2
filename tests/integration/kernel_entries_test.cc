// SPDX-License-Identifier: Apache-2.0
//
// Claims from a ring that is ahead enter the kernel only for one wake-up a segment: a check that
// the descriptor is still the connection to the daemon, and the message. strace counts the calls.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "support/child_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

constexpr std::uint64_t kIdsAtATime = 1'000'000;
constexpr std::uint64_t kSegments = 4;
constexpr std::uint64_t kCallsOfAWakeUp = 2;
// The calls of one claim that finds the ring dry: a check of the descriptor, a request, a reply, a
// wait in between and a final check, all twice.
constexpr std::uint64_t kCallsOfAFallback = 12;

class KernelEntries : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", kIdsAtATime); }

  // Calls by name of a program that claims `count` ids; empty if there is no working strace.
  [[nodiscard]] std::map<std::string, std::uint64_t> Calls(std::uint64_t count) const {
    const std::string report = dir_.File("strace");
    ChildOptions options;
    options.argv = {"/usr/bin/strace",
                    "-c",
                    "-f",
                    "-o",
                    report,
                    IDD_TEST_CLAIM_LOOP_BINARY,
                    host_.daemon.socket(),
                    "orders",
                    std::to_string(count)};
    ChildProcess strace(options);
    const std::optional<int> status = strace.WaitFor(Patience(60s));
    strace.Kill();
    std::map<std::string, std::uint64_t> calls;
    if (status == 0) {
      std::ifstream lines(report);
      for (std::string line; std::getline(lines, line);) AddRow(line, calls);
    } else {
      error_ = strace.stderr_text();
    }
    return calls;
  }

  [[nodiscard]] std::uint64_t Fallbacks() const {
    return host_.idctl.Json({"status"}).at("tags").at(0).at("fallbacks").get<std::uint64_t>();
  }

  const TempDir dir_;
  Host host_{dir_};
  mutable std::string error_;

 private:
  // "% time, seconds, usecs/call, calls, [errors,] syscall"
  static void AddRow(const std::string& line, std::map<std::string, std::uint64_t>& calls) {
    std::istringstream words(line);
    double time = 0;
    double seconds = 0;
    std::uint64_t usecs = 0;
    std::uint64_t count = 0;
    std::string rest;
    if (!(words >> time >> seconds >> usecs >> count)) return;
    std::string name;
    while (words >> rest) name = rest;
    if (name != "total") calls[name] = count;
  }
};

TEST_F(KernelEntries, ClaimsAreOneWakeUpASegment) {
  const auto none = Calls(0);
  if (none.empty()) GTEST_SKIP() << "strace cannot trace here: " << error_;
  const std::uint64_t fallbacks_before = Fallbacks();
  const auto many = Calls(kSegments * kIdsAtATime);
  ASSERT_FALSE(many.empty()) << error_;
  const std::uint64_t fallbacks = Fallbacks() - fallbacks_before;
  std::uint64_t extra = 0;
  std::string told;
  for (const auto& [name, count] : many) {
    const auto before = none.find(name);
    const std::uint64_t base = before == none.end() ? 0 : before->second;
    if (count > base) extra += count - base;
    told += name + " " + std::to_string(base) + " -> " + std::to_string(count) + "\n";
  }
  EXPECT_LE(extra, kCallsOfAWakeUp * (kSegments + 1) + kCallsOfAFallback * fallbacks)
      << told << fallbacks << " fallbacks";
  // If strace had not seen the wake-ups, the counts would prove nothing.
  EXPECT_GE(extra, kSegments - 1) << told;
}

}  // namespace
}  // namespace idd::harness
