// SPDX-License-Identifier: Apache-2.0
//
// The cluster at a glance: `status --all-hosts`, `top --all-hosts` and the metrics of the keeper.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/pseudo_terminal.h"
#include "support/test_environment.h"
#include "support/two_hosts.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

class Cluster : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    a_.daemon.Start();
    b_.daemon.Start();
    a_.idctl.Do(
        {"tag", "create", "orders", "--step", "100", "--max-step", "100", "--refill", "leaf"});
    ASSERT_TRUE(WaitUntil(Patience(20s), [&] {
      const nlohmann::json versions = View().at("cluster").at("versions");
      return versions.value(IDD_TEST_VERSION, 0) == 2;
    })) << View();
  }
  [[nodiscard]] nlohmann::json View(const Words& more = {}) const {
    Words command = {"status", "--all-hosts"};
    command.insert(command.end(), more.begin(), more.end());
    return a_.idctl.Json(command);
  }
  [[nodiscard]] static nlohmann::json Of(const nlohmann::json& view, const char* list,
                                         const char* key, const std::string& name) {
    for (const auto& object : view.at(list)) {
      if (object.at(key) == name) return object;
    }
    throw HarnessError("no " + name + " in " + view.dump());
  }
  // The tag in a view that has it: a view may be a second old.
  [[nodiscard]] nlohmann::json TagOf(const std::string& tag) const {
    nlohmann::json found;
    EXPECT_TRUE(WaitUntil(Patience(10s), [&] {
      const nlohmann::json view = View();
      for (const auto& object : view.at("tags")) {
        if (object.at("tag") == tag) found = object;
      }
      return !found.is_null();
    })) << tag;
    return found;
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, Cluster, ::testing::Values("sqlite", "mysql"), StoreName);

TEST_P(Cluster, SumsAreThoseOfTheJournal) {
  EXPECT_EQ(a_.idctl.Claim("orders", 130).size(), 130U);
  EXPECT_EQ(b_.idctl.Claim("orders", 70).size(), 70U);
  a_.idctl.CreateTag("idle", 10);
  // Leases that end meanwhile are journalled within a second.
  const auto journal = [&] {
    nlohmann::json sums = {
        {"held_ids", 0}, {"active_leases", 0}, {"leased_ids", 0}, {"claimed_ids", 0}};
    for (const JournalLease& lease : a_.idctl.Leases("orders")) {
      const std::uint64_t ids = lease.limit - lease.base;
      const bool is_active = lease.state == "active";
      sums["leased_ids"] = sums["leased_ids"].get<std::uint64_t>() + ids;
      sums["held_ids"] = sums["held_ids"].get<std::uint64_t>() + (is_active ? ids : 0);
      sums["active_leases"] = sums["active_leases"].get<std::uint64_t>() + (is_active ? 1 : 0);
      sums["claimed_ids"] =
          sums["claimed_ids"].get<std::uint64_t>() + (is_active ? 0 : lease.claimed);
    }
    return sums;
  };
  nlohmann::json orders;
  EXPECT_TRUE(WaitUntil(Patience(20s),
                        [&] {
                          const nlohmann::json expected = journal();
                          orders = TagOf("orders");
                          for (const auto& [key, value] : expected.items()) {
                            if (orders.at(key) != value) return false;
                          }
                          return true;
                        }))
      << orders << journal();
  EXPECT_EQ(orders.at("hosts"), 2);
  EXPECT_EQ(orders.at("mode"), "segment");
  EXPECT_GT(orders.at("rate_per_s").get<double>(), 0);
  const nlohmann::json view = View();
  EXPECT_EQ(view.at("cluster").at("tags"), 2);
  EXPECT_EQ(view.at("cluster").at("hosts"), 2);
  EXPECT_EQ(view.at("cluster").at("conditions").at("live"), 2);
  const nlohmann::json idle = Of(view, "tags", "tag", "idle");
  EXPECT_EQ(idle.at("rate_per_s"), 0.0);
  EXPECT_TRUE(idle.at("exhausted_in_days").is_null());
  // What is held where.
  std::uint64_t held = 0;
  for (const char* const host : {"host-a", "host-b"}) {
    const nlohmann::json one = Of(View({"orders"}), "hosts", "host", host);
    EXPECT_GT(one.at("held_ids"), 0) << host;
    held += one.at("held_ids").get<std::uint64_t>();
  }
  EXPECT_EQ(held, Of(View({"orders"}), "tags", "tag", "orders").at("held_ids"));
}

TEST_P(Cluster, AfterAllHaveStoppedTheSumsAreRightToTheId) {
  EXPECT_EQ(a_.idctl.Claim("orders", 333).size(), 333U);
  EXPECT_EQ(b_.idctl.Claim("orders", 77).size(), 77U);
  b_.daemon.Stop();
  a_.daemon.Stop();
  a_.daemon.Start();
  const nlohmann::json orders = TagOf("orders");
  const nlohmann::json view = View();
  EXPECT_EQ(Of(view, "hosts", "host", "host-b").at("condition"), "stopped");
  EXPECT_EQ(Of(view, "hosts", "host", "host-b").at("held_ids"), 0);
  // The present idd may have leased already, for a tag that it served before.
  EXPECT_EQ(orders.at("claimed_ids"), 333 + 77);
  EXPECT_EQ(orders.at("abandoned_ids"), 0);
  EXPECT_EQ(orders.at("leased_ids").get<std::uint64_t>(),
            410 + orders.at("held_ids").get<std::uint64_t>() +
                orders.at("returned_ids").get<std::uint64_t>());
}

TEST_P(Cluster, WasteAndSilentHostsComeFirst) {
  EXPECT_FALSE(b_.idctl.Claim("orders").empty());
  b_.daemon.Kill();
  const std::string ago =
      is_mysql() ? "CURRENT_TIMESTAMP - INTERVAL 61 SECOND" : "datetime('now', '-61 seconds')";
  Execute("UPDATE idd_host SET last_seen = " + ago + " WHERE host = 'host-b'");
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] {
    return View().at("cluster").at("conditions").value("silent", 0) == 1;
  }));
  nlohmann::json view = View({"--limit", "1"});
  EXPECT_EQ(view.at("hosts").size(), 1U);
  EXPECT_EQ(view.at("hosts").at(0).at("host"), "host-b");
  EXPECT_EQ(view.at("more_hosts"), 1);
  EXPECT_EQ(a_.idctl.Run({"status", "--all-hosts", "--limit", "0"}).exit_status, 2);
  const std::string text = a_.idctl.Run({"status", "--all-hosts", "--limit", "1"}).out;
  EXPECT_THAT(text, HasSubstr("Not shown: 1 host; --limit shows more."));
  EXPECT_THAT(text, ContainsRegex("hosts     2: 1 live, 1 silent; idd [0-9.]+ on 1"));
  // Its next run gives its leases up.
  b_.daemon.Start();
  ASSERT_TRUE(WaitUntil(
      Patience(20s), [&] { return TagOf("orders").at("abandoned_ids").get<std::uint64_t>() > 0; }));
  EXPECT_THAT(a_.idctl.Run({"status", "--all-hosts"}).out,
              ContainsRegex("abandoned \\([0-9.]+ %\\)"));
}

TEST_P(Cluster, ABrokenPromiseIsReported) {
  // The tag may hold far less than its promise requires.
  a_.idctl.Do({"tag", "create", "greedy", "--step", "10", "--max-step", "10", "--max-prefetch",
               "20", "--outage-tolerance", "600"});
  // A host reports within five seconds.
  EXPECT_TRUE(WaitUntil(Patience(40s), [&] {
    EXPECT_FALSE(b_.idctl.Claim("greedy", 400).empty());
    return TagOf("greedy").at("short_hosts").get<int>() > 0;
  })) << View();
  const nlohmann::json view = View();
  EXPECT_EQ(view.at("tags").at(0).at("tag"), "greedy");
  EXPECT_GE(view.at("cluster").at("short_tags"), 1);
  EXPECT_GE(Of(view, "hosts", "host", "host-b").at("short_tags"), 1);
  EXPECT_EQ(Of(view, "hosts", "host", "host-a").at("short_tags"), 0);
}

TEST_P(Cluster, EveryScreenFits) {
  EXPECT_FALSE(a_.idctl.Claim("orders").empty());
  for (const Words& command : {Words{"status", "--all-hosts"},
                               {"status", "--all-hosts", "orders"},
                               {"top", "--all-hosts", "--once"}}) {
    for (const unsigned short columns : std::array<unsigned short, 3>{40, 60, 80}) {
      const std::string text = a_.idctl.OnTerminal(command, columns);
      EXPECT_THAT(text, ContainsRegex("host-a|live"));
      EXPECT_THAT(text, HasSubstr("orders"));
      for (const std::string& line : ShownLines(text)) EXPECT_LE(line.size(), columns) << text;
    }
  }
  EXPECT_THAT(a_.idctl.OnTerminal({"status", "--all-hosts"}, 200), HasSubstr("SHORT-HOSTS"));
  EXPECT_THAT(a_.idctl.OnTerminal({"status", "--all-hosts"}, 60), Not(HasSubstr("SHORT-HOSTS")));
}

TEST_P(Cluster, TopPrintsSnapshotsToAPipe) {
  const IdctlResult text =
      a_.idctl.Run({"top", "--all-hosts", "--count", "2", "--interval", "0.2"});
  EXPECT_EQ(text.exit_status, 0) << text.err;
  EXPECT_NE(text.out.find("hosts     2:"), text.out.rfind("hosts     2:")) << text.out;
  const IdctlResult json =
      a_.idctl.Run({"--json", "top", "--all-hosts", "--count", "2", "--interval", "0.2"});
  std::istringstream lines(json.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(nlohmann::json::parse(line).at("cluster").at("hosts"), 2);
  }
  EXPECT_EQ(count, 2);
}

TEST_P(Cluster, ExitStatusesAreThoseOfStatus) {
  EXPECT_EQ(a_.idctl.Run({"status", "--all-hosts", "nobody"}).exit_status, 3);
  EXPECT_EQ(a_.idctl.Run({"top", "--all-hosts", "--limit", "x"}).exit_status, 2);
  a_.daemon.Stop();
  EXPECT_EQ(a_.idctl.Run({"status", "--all-hosts"}).exit_status, 4);
  EXPECT_EQ(a_.idctl.Run({"top", "--all-hosts", "--once"}).exit_status, 4);
}

// One host has the metrics of the store, and the other has none.
TEST_P(Cluster, TheKeeperHasTheMetrics) {
  EXPECT_FALSE(a_.idctl.Claim("orders").empty());
  // Rounds of the journal's upkeep begin after a second with so short a retention.
  for (Host* host : {&a_, &b_}) {
    WriteFile(host->daemon.options().config, "journal_retention = \"1s\"\n");
    host->daemon.Stop();
    host->daemon.Start();
  }
  EXPECT_FALSE(a_.idctl.Claim("orders").empty());
  const auto has = [](const Host& host) {
    return host.idctl.Run({"metrics"})
               .out.find("idd_cluster_tag_leased_ids_total{tag=\"orders\"}") != std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(Patience(60s), [&] { return has(a_) != has(b_); }));
  const Host& keeper = has(a_) ? a_ : b_;
  EXPECT_THAT(keeper.idctl.Run({"metrics"}).out,
              ContainsRegex("idd_cluster_hosts\\{state=\"(live|waiting)\"\\} [12]"));
  EXPECT_THAT(keeper.idctl.Run({"metrics"}).out, HasSubstr("idd_journal_keeper 1"));
}

}  // namespace
}  // namespace idd::harness
