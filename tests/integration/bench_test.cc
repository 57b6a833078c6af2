// SPDX-License-Identifier: Apache-2.0
//
// idctl bench on a real daemon: its report, and the state that it leaves. The speed of the claims
// is not tested here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

class Bench : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", 1'000'000'000); }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(Bench, ReportsEachIdItTook) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--processes", "2", "--block", "64"},
        {"--threads", "2", "--batch", "64"}}) {
    const std::uint64_t before = host_.idctl.Audit("orders").claimed;
    std::vector<std::string> arguments = {"bench", "orders", "--seconds", "1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const nlohmann::json report = host_.idctl.Json(arguments);
    SCOPED_TRACE(options[0] + " " + report.dump());
    const AuditRow audit = host_.idctl.Audit("orders");
    EXPECT_TRUE(audit.ok);
    const auto ids = report.at("ids").get<std::uint64_t>();
    // The journal may count more than `ids`: the rest of each block, and batches at the end of a
    // segment.
    EXPECT_GE(audit.claimed - before, ids);
    EXPECT_LE(audit.claimed - before, ids + 2 * 64);
    EXPECT_GT(ids, 0U);
    EXPECT_EQ(report.at("rounds"), 9);
    for (const char* const side : {"raw", "claim"}) {
      const nlohmann::json& figures = report.at(side);
      EXPECT_GT(figures.at("ids_per_s").get<double>(), 0);
      EXPECT_GT(figures.at("ns_per_id").get<double>(), 0);
      const nlohmann::json& latency = figures.at("latency_ns");
      EXPECT_GT(latency.at("samples").get<std::uint64_t>(), 0U);
      EXPECT_GT(latency.at("p50").get<std::uint64_t>(), 0U);
      EXPECT_LE(latency.at("p50").get<std::uint64_t>(), latency.at("p99").get<std::uint64_t>());
      EXPECT_LE(latency.at("p99_99").get<std::uint64_t>(), latency.at("max").get<std::uint64_t>());
    }
    EXPECT_GT(report.at("ratio").get<double>(), 0);
  }
}

TEST_F(Bench, ShowsTheRatioInWords) {
  const IdctlResult result = host_.idctl.Run({"bench", "orders", "--seconds", "1"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("raw add"));
  EXPECT_THAT(result.out, HasSubstr("times a raw fetch_add on shared memory"));
  EXPECT_THAT(result.out, HasSubstr("ids were taken from the tag"));
}

TEST_F(Bench, MeasuresNoOtherOrderThanTheOneAskedFor) {
  const IdctlResult host =
      host_.idctl.Run({"bench", "orders", "--order", "host", "--seconds", "1"});
  EXPECT_EQ(host.exit_status, 0) << host.err;
  const IdctlResult cpu = host_.idctl.Run({"bench", "orders", "--order", "cpu", "--seconds", "1"});
  EXPECT_EQ(cpu.exit_status, 1) << cpu.out;
  EXPECT_THAT(cpu.err, HasSubstr("the tag has order host"));
  host_.idctl.Do({"tag", "create", "fast", "--order", "cpu"});
  const IdctlResult lanes = host_.idctl.Run({"bench", "fast", "--order", "cpu", "--seconds", "1"});
  const IdctlResult no_lanes =
      host_.idctl.Run({"bench", "fast", "--order", "host", "--seconds", "1"});
  if (lanes.exit_status != 0) {
    EXPECT_THAT(lanes.err, HasSubstr("restartable sequences"));
    GTEST_SKIP() << "no lanes on this machine";
  }
  EXPECT_THAT(lanes.out, HasSubstr("the CPUs' lanes"));
  EXPECT_EQ(no_lanes.exit_status, 1) << no_lanes.out;
  EXPECT_THAT(no_lanes.err, HasSubstr("the tag has order cpu"));
}

TEST_F(Bench, FailsAsAClaimWould) {
  const IdctlResult unknown = host_.idctl.Run({"bench", "nobody", "--seconds", "1"});
  EXPECT_EQ(unknown.exit_status, 3) << unknown.err;
  EXPECT_THAT(unknown.err, HasSubstr("nobody"));
  EXPECT_EQ(unknown.out, "");

  const IdctlResult many =
      host_.idctl.Run({"bench", "orders", "--processes", "256", "--threads", "256"});
  EXPECT_EQ(many.exit_status, 2) << many.err;

  host_.daemon.Stop();
  const IdctlResult absent = host_.idctl.Run({"bench", "orders", "--seconds", "1"});
  EXPECT_EQ(absent.exit_status, 4) << absent.err;
}

// A measurement that cannot continue ends at once and reports the reason.
TEST_F(Bench, EndsWhenTheIdsDo) {
  host_.idctl.Do({"tag", "create", "few", "--step", "1000", "--max-id", "100000"});
  const IdctlResult result = host_.idctl.Run({"bench", "few", "--seconds", "60"});
  EXPECT_EQ(result.exit_status, 5) << result.err;
  EXPECT_THAT(result.err, HasSubstr("few"));
  EXPECT_LT(result.duration, 50s);
}

}  // namespace
}  // namespace idd::harness
