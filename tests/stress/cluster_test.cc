// SPDX-License-Identifier: Apache-2.0
//
// The cluster at a glance, with many hosts on one MariaDB.
//
// Method: every host is a real idd, and client processes claim from each. While they do, one host
// is asked for `status --all-hosts` again and again: the view must be young, and its sums must add
// up and never fall. When all have stopped, its sums must be those of the claims, to the id. Eight
// hosts; 50 with IDD_TEST_LONG=1.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mysql_hosts.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

int HostsOfThisRun() {
  constexpr int kFew = 8;
  constexpr int kMany = 50;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read only.
  return std::getenv("IDD_TEST_LONG") != nullptr ? kMany : kFew;
}

class ClusterStatus : public MysqlHosts {
 protected:
  [[nodiscard]] nlohmann::json View() {
    return hosts_.front()->idctl.Json(
        {"--timeout", "60000", "status", "--all-hosts", "--limit", "1000"});
  }
  static std::uint64_t Number(const nlohmann::json& object, const char* key) {
    return object.at(key).get<std::uint64_t>();
  }
  static void ExpectAddsUp(const nlohmann::json& sums) {
    EXPECT_EQ(Number(sums, "leased_ids"), Number(sums, "claimed_ids") + Number(sums, "held_ids") +
                                              Number(sums, "returned_ids") +
                                              Number(sums, "abandoned_ids"));
  }
};

TEST_F(ClusterStatus, StatusOfAllHostsIsYoungAndRightToTheId) {
  constexpr std::uint64_t kMostAgeMs = 5000;
  const int count = HostsOfThisRun();
  StartHosts(count, {"--step", "1000", "--max-step", "1000", "--refill", "leaf"});
  WorkerPlan plan;
  plan.ids = ScaledLoad(40'000);
  plan.batch = 20;
  plan.pace_us = 2000;
  StartWorkers(1, plan);
  std::uint64_t leased = 0;
  std::uint64_t views = 0;
  const auto began = std::chrono::steady_clock::now();
  while (views < 5 || std::chrono::steady_clock::now() - began < 10s) {
    const nlohmann::json view = View();
    ++views;
    EXPECT_LE(Number(view, "age_ms"), kMostAgeMs);
    EXPECT_EQ(Number(view.at("cluster"), "hosts"), static_cast<std::uint64_t>(count));
    ExpectAddsUp(view.at("cluster"));
    EXPECT_GE(Number(view.at("cluster"), "leased_ids"), leased);
    leased = Number(view.at("cluster"), "leased_ids");
    if (HasFailure()) break;
  }
  const std::vector<Claimer> claimers = Finish(Patience(300s));
  EXPECT_TRUE(CheckUnique(claimers).empty());
  std::uint64_t claimed = static_cast<std::uint64_t>(count);  // one each to see that it leases
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) claimed += record.count;
  }
  for (std::size_t i = 1; i < hosts_.size(); ++i) hosts_[i]->daemon.Stop();
  hosts_.front()->idctl.Do({"drain"});
  nlohmann::json view;
  EXPECT_TRUE(WaitUntil(Patience(20s),
                        [&] {
                          view = View();
                          return Number(view.at("cluster"), "claimed_ids") == claimed;
                        }))
      << view.at("cluster") << " instead of " << claimed;
  const nlohmann::json& all = view.at("cluster");
  ExpectAddsUp(all);
  EXPECT_EQ(Number(all, "held_ids"), 0U);
  EXPECT_EQ(Number(all, "abandoned_ids"), 0U);
  EXPECT_EQ(all.at("conditions").at("stopped"), count - 1);
  EXPECT_EQ(view.at("hosts").size(), static_cast<std::size_t>(count));
  std::printf("%d hosts: %llu views, %llu ids claimed, all accounted for\n", count,
              static_cast<unsigned long long>(views), static_cast<unsigned long long>(claimed));
}

}  // namespace
}  // namespace idd::harness
