// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "mysql_hosts.h"
#include "support/mysql_proxy.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

// Some 100,000 claims a second for a minute without the server, which an outage tolerance of 60 s
// promises. The promise is for the rate that idd has seen; on a busy machine the rate may be higher
// later. So the outage is no longer than the ids last at the worker's highest possible rate.
TEST_F(MysqlHosts, OutageWithinTheToleranceIsNotNoticed) {
  constexpr double kMaxPerSecond = 110'000;
  std::chrono::seconds outage(std::max<std::uint64_t>(5, ScaledLoad(60)));
  server_.Start();
  const std::string path = dir_.File("proxy");
  MysqlProxy proxy(path, server_.socket());
  StartHosts(1, {"--outage-tolerance", "60"},
             "mysql://idd:secret@localhost/idd?unix_socket=" + path);
  WorkerPlan plan;
  plan.batch = 400;  // half of it on average
  plan.pace_us = 2000;
  plan.log_capacity = 1 << 23;
  StartWorkers(1, plan);
  const auto status = [&] { return hosts_[0]->idctl.Json({"status"}).at("tags").at(0); };
  const auto fallbacks = [&] { return status().at("fallbacks").get<std::uint64_t>(); };
  // The promise covers as long as the load has lasted.
  ASSERT_TRUE(WaitUntil(Patience(180s), [&] {
    const nlohmann::json promise = status().at("promise");
    return promise.at("kept") == true && promise.at("length_s") >= 55 &&
           status().at("rate_per_s") > 1000;
  })) << status();
  const double lasts_s = status().at("available").get<double>() / kMaxPerSecond;
  outage = std::min(outage, std::chrono::seconds(static_cast<int>(0.9 * lasts_s)));
  const std::uint64_t dry_before = fallbacks();
  const std::uint64_t claimed_before = status().at("claimed").get<std::uint64_t>();
  server_.Kill();
  const int connections_before = proxy.connections();
  const MonotonicTime began = MonotonicClock::now();
  std::this_thread::sleep_for(outage);
  const std::uint64_t claimed = status().at("claimed").get<std::uint64_t>() - claimed_before;
  const int attempts = proxy.connections() - connections_before;
  const double seconds = std::chrono::duration<double>(MonotonicClock::now() - began).count();
  EXPECT_EQ(fallbacks(), dry_before);
  EXPECT_LE(attempts, static_cast<int>(seconds) + 1);
  EXPECT_GE(attempts, 2) << "idd must keep trying";
  server_.Start();
  for (const auto& worker : workers_) worker->Stop();
  const std::vector<Claimer> claimers = Finish(Patience(20s));
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  std::printf("%.0f claims/s for %.0f s without a server, %d connection attempts\n",
              static_cast<double>(claimed) / seconds, seconds, attempts);
}

}  // namespace
}  // namespace idd::harness
