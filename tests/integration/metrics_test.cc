// SPDX-License-Identifier: Apache-2.0
//
// The metrics match the events: claims, waits, an outage, a forged ring, a crash, a restart without
// loss, access rights. And idd exports every metric of docs/metrics.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idd/shm/abi.h"
#include "idd/shm/ring_memory.h"
#include "support/claim_worker_process.h"
#include "support/free_ports.h"
#include "support/ring_request.h"
#include "support/scrape.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRing = R"(idd_tag_claimed_ids_total{tag="orders",path="ring"})";
constexpr const char* kSocket = R"(idd_tag_claimed_ids_total{tag="orders",path="socket"})";

// The metrics that have a row in docs/metrics.md.
std::set<std::string> DocumentedMetrics() {
  std::set<std::string> names;
  std::ifstream page(IDD_TEST_METRICS_PAGE);
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `idd_")) names.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return names;
}

class Metrics : public HostWithUsers {
 protected:
  [[nodiscard]] Scrape Look() const {
    const IdctlResult result = host_.idctl.Run({"metrics"});
    Require(result.exit_status == 0, "idctl metrics: " + result.err);
    return Scrape(result.out);
  }
  [[nodiscard]] double Claimed(const Scrape& page) const {
    return page.At(kRing) + page.At(kSocket);
  }
  // No claim writes such a value.
  void ForgeRing(const std::string& tag) const {
    ForgeCursors(*MapRing(host_.daemon.socket(), tag), 1);
  }
};

TEST_F(Metrics, EveryMetricIsExportedAndPromtoolReportsNothing) {
  host_.StartWithTag("orders", 100);
  host_.idctl.CreateTag(R"(a "quoted" \ tag)", 100);
  static_cast<void>(host_.idctl.Claim("orders", 10));
  static_cast<void>(host_.idctl.Claim(R"(a "quoted" \ tag)", 10));
  const IdctlResult result = host_.idctl.Run({"metrics"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const Scrape page(result.out);
  std::set<std::string> told;
  for (const auto& [name, type] : page.types()) told.insert(name);
  EXPECT_EQ(told, DocumentedMetrics());
  EXPECT_GT(told.size(), 30U);
  EXPECT_THAT(result.out, HasSubstr("idd_tag_available_ids{tag=\"a \\\"quoted\\\" \\\\ tag\"}"));
  EXPECT_EQ(page.At("idd_tags"), 2);
  EXPECT_EQ(PromtoolFindings(result.out), "");
}

TEST_F(Metrics, JsonIsTheSameDocument) {
  host_.StartWithTag("orders", 100);
  static_cast<void>(host_.idctl.Claim("orders", 10));
  const nlohmann::json document = host_.idctl.Json({"metrics"});
  const Scrape page = Look();
  ASSERT_EQ(document.at("metrics").size(), page.types().size());
  for (const auto& metric : document.at("metrics")) {
    const auto name = metric.at("name").get<std::string>();
    EXPECT_EQ(metric.at("type"), page.types().at(name)) << name;
    EXPECT_FALSE(metric.at("unit").get<std::string>().empty()) << name;
    EXPECT_FALSE(metric.at("help").get<std::string>().empty()) << name;
    for (const auto& sample : metric.at("samples")) {
      EXPECT_TRUE(sample.at("labels").is_object()) << name;
      if (metric.at("type") != "histogram") continue;
      EXPECT_EQ(sample.at("buckets").back().at("count"), sample.at("count")) << name;
      EXPECT_FALSE(sample.at("buckets").back().contains("le")) << name;
    }
    if (name != "idd_tag_claimed_ids_total") continue;
    EXPECT_EQ(metric.at("samples").size(), 2U);
    EXPECT_EQ(metric.at("samples").at(0).at("value").get<double>(), page.At(kRing));
    EXPECT_EQ(metric.at("samples").at(1).at("value").get<double>(), page.At(kSocket));
  }
}

TEST_F(Metrics, ClaimedIdsAreThoseThatWereClaimed) {
  host_.StartWithTag("orders", 1000);
  // The first claim finds no ring; the daemon answers it after its lease.
  SqliteFile database = host_.Database();
  database.Execute("BEGIN IMMEDIATE");
  auto first = std::async(std::launch::async, [this] { return host_.idctl.Claim("orders", 1); });
  EXPECT_TRUE(WaitUntil(Patience(10s), [this] { return Look().At("idd_dry_claims_total") == 1; }));
  database.Execute("ROLLBACK");
  static_cast<void>(first.get());
  EXPECT_EQ(Look().At(kSocket), 1);
  EXPECT_EQ(Look().At("idd_dry_claims_total"), 1);
  const double by_ring = Look().At(kRing);
  static_cast<void>(host_.idctl.Claim("orders", 137));
  EXPECT_EQ(Look().At(kRing), by_ring + 137);
  EXPECT_EQ(Look().At(kSocket), 1);
  // Over many segments, from several threads.
  ClaimWorkerProcess worker(
      dir_,
      {.socket = host_.daemon.socket(), .tag = "orders", .name = "w", .ids = 20'000, .threads = 2});
  worker.WaitReady(Patience(20s));
  worker.Go();
  ASSERT_EQ(worker.Finish(Patience(60s)), 0) << worker.Failure();
  EXPECT_EQ(Claimed(Look()), 1 + 137 + 40'000);
  // Leases continue for a moment, so the test compares the two until no lease comes in between.
  EXPECT_TRUE(WaitUntil(Patience(20s), [this] {
    const Scrape page = Look();
    return page.At("idd_tag_available_ids{tag=\"orders\"}") ==
           static_cast<double>(host_.idctl.Audit("orders").available);
  }));
  const Scrape page = Look();
  EXPECT_EQ(Claimed(page), static_cast<double>(host_.idctl.Audit("orders").claimed));
  EXPECT_EQ(page.At("idd_tag_wasted_ids_total{tag=\"orders\"}"), 0);
  EXPECT_EQ(page.At("idd_tag_promise_seconds{tag=\"orders\"}"), 600);
  const double leases = page.At("idd_tag_leases_total{tag=\"orders\"}");
  EXPECT_GE(leases, 2);
  EXPECT_LE(leases, static_cast<double>(host_.idctl.Leases("orders").size()));
  EXPECT_EQ(page.At("idd_leases_taken_total"), leases);
  EXPECT_EQ(page.At("idd_refills_total"), leases);
  EXPECT_GE(page.At("idd_lease_duration_seconds_count"), 1);
  EXPECT_LE(page.At("idd_lease_duration_seconds_count"), leases);
  EXPECT_GT(page.At("idd_lease_duration_seconds_sum"), 0);
  EXPECT_EQ(page.At("idd_claim_wait_seconds_count"), page.At("idd_dry_claims_total"));
  EXPECT_TRUE(page.Find("idd_tag_state{tag=\"orders\",state=\"ok\"}").has_value());
}

TEST_F(Metrics, OutageOfTheStoreIsReportedWithItsCost) {
  host_.daemon.Start();
  host_.idctl.Do({"tag", "create", "orders", "--step", "100", "--max-prefetch", "200"});
  static_cast<void>(host_.idctl.Claim("orders", 10));
  EXPECT_EQ(Look().At("idd_store_up"), 1);
  const double up_since = Look().At("idd_store_state_change_time_seconds");
  const std::string database = host_.daemon.options().database;
  const std::size_t mark = host_.daemon.LogMark();
  std::filesystem::rename(database, database + ".away");
  ASSERT_TRUE(host_.daemon.WaitForLogLine("store.down", mark, Patience(10s)));
  EXPECT_EQ(host_.idctl.Run({"claim", "orders", "-n", "1000"}).exit_status, 5);
  const Scrape down = Look();
  EXPECT_EQ(down.At("idd_store_up"), 0);
  EXPECT_GT(down.At("idd_store_state_change_time_seconds"), up_since);
  EXPECT_GE(down.At("idd_store_failures_total"), 1);
  EXPECT_GE(down.At("idd_failed_claims_total{reason=\"TIMEOUT\"}"), 1);
  EXPECT_GE(down.At("idd_claim_wait_seconds_sum"), 0.1) << "it waited for its deadline";
  EXPECT_EQ(down.At("idd_tag_available_ids{tag=\"orders\"}"), 0);
  EXPECT_EQ(down.At("idd_tag_state{tag=\"orders\",state=\"dry\"}"), 1);
  EXPECT_EQ(down.At("idd_log_events_total{event=\"store.down\",level=\"error\"}") > 0, true);
  std::filesystem::rename(database + ".away", database);
  ASSERT_TRUE(host_.daemon.WaitForLogLine("store.up", mark, Patience(20s)));
  EXPECT_EQ(Look().At("idd_store_up"), 1);
  EXPECT_EQ(PromtoolFindings(host_.idctl.Run({"metrics"}).out), "");
}

TEST_F(Metrics, SpoiltRingIsAQuarantineAndWaste) {
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 300));
  const double claimed = Claimed(Look());
  const std::size_t mark = host_.daemon.LogMark();
  ForgeRing("orders");
  ASSERT_TRUE(host_.daemon.WaitForLogLine("ring.quarantined.*orders", mark, Patience(5s)));
  const Scrape page = Look();
  EXPECT_EQ(page.At("idd_tag_quarantines_total{tag=\"orders\"}"), 1);
  EXPECT_EQ(page.At("idd_tag_state{tag=\"orders\",state=\"quarantined\"}"), 1);
  const double wasted = page.At("idd_tag_wasted_ids_total{tag=\"orders\"}");
  EXPECT_GT(wasted, 0);
  EXPECT_GE(Claimed(page), claimed) << "a counter went back";
  EXPECT_EQ(wasted, static_cast<double>(host_.idctl.Audit("orders").abandoned));
}

// The real Prometheus, with the unmodified rules.
class MetricsWithPrometheus : public Metrics {
 protected:
  void SetUp() override {
    Metrics::SetUp();
    if (IsSkipped()) return;
    const std::vector<std::uint16_t> ports = FreePorts(2);
    port_ = ports[1];
    const std::string address = "127.0.0.1:" + std::to_string(ports[0]);
    host_.daemon.options().more_arguments = {"--metrics-listen", address};
    host_.daemon.Start();
    const std::string config = dir_.File("prometheus.yml");
    WriteFile(config,
              "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
              "rule_files: ['" IDD_TEST_ALERT_RULES
              "']\nscrape_configs:\n- job_name: idd\n  static_configs: [{targets: ['" +
                  address + "']}]\n");
    prometheus_.emplace(
        ChildOptions{.argv = {"/usr/bin/prometheus", "--config.file=" + config,
                              "--storage.tsdb.path=" + dir_.File("tsdb"), "--log.level=error",
                              "--web.listen-address=127.0.0.1:" + std::to_string(port_)},
                     .environment = {}});
    ASSERT_TRUE(WaitUntil(Patience(60s), [this] { return Asked("up").find("\"1\"") != npos; }))
        << prometheus_->stderr_text();
  }
  // The JSON result of an instant query; empty if Prometheus does not answer.
  [[nodiscard]] std::string Asked(const std::string& query) const {
    try {
      return Http(port_, "GET", "/api/v1/query?query=" + query).body;
    } catch (const HarnessError&) {
      return "";
    }
  }
  [[nodiscard]] bool Fires(const std::string& alert) const {
    return Asked("ALERTS%7Balertname=%22" + alert + "%22,alertstate=%22firing%22%7D")
               .find("\"__name__\":\"ALERTS\"") != npos;
  }

  static constexpr std::size_t npos = std::string::npos;
  std::uint16_t port_ = 0;
  std::optional<ChildProcess> prometheus_;
};

TEST_F(MetricsWithPrometheus, AlertsFollowWhatHappens) {
  host_.idctl.CreateTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 300));
  ASSERT_TRUE(WaitUntil(Patience(20s), [this] {
    return Asked("sum(idd_tag_claimed_ids_total)").find("\"300\"") != npos;
  })) << Asked("sum(idd_tag_claimed_ids_total)");
  EXPECT_FALSE(Fires("IddTagQuarantined"));
  ForgeRing("orders");
  EXPECT_TRUE(WaitUntil(Patience(30s), [this] { return Fires("IddTagQuarantined"); }));
  EXPECT_FALSE(Fires("IddIdsRunOut"));
  EXPECT_FALSE(Fires("IddStoreAlarm"));
  const std::string own = Http(port_, "GET", "/metrics").body;
  const Scrape rules(own);
  EXPECT_GT(rules.Sum("prometheus_rule_evaluations_total"), 0);
  EXPECT_EQ(rules.Sum("prometheus_rule_evaluation_failures_total"), 0);
}

TEST_F(Metrics, CrashWithoutASuccessorIsWasteAndCountersStartAtZero) {
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 300));
  const double started = Look().At("idd_start_time_seconds");
  EXPECT_EQ(Look().At("idd_start_time_seconds"), started) << "it was reported as a restart";
  host_.daemon.Kill();
  host_.daemon.Start();
  static_cast<void>(host_.idctl.Claim("orders", 5));
  const Scrape page = Look();
  EXPECT_GT(page.At("idd_start_time_seconds"), started);
  EXPECT_EQ(Claimed(page), 5);
  EXPECT_EQ(page.At("idd_inherited_leases"), 0);
  EXPECT_EQ(page.At("idd_tag_wasted_ids_total{tag=\"orders\"}"),
            static_cast<double>(host_.idctl.Audit("orders").abandoned));
  EXPECT_GE(page.At("idd_tag_wasted_ids_total{tag=\"orders\"}"), 1000);
}

TEST_F(Metrics, InheritedLeasesAreReportedAndCountOnce) {
  ServiceManagerStandIn manager(dir_);
  host_.daemon.options().manager = &manager;
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 300));
  // Claims that wait for a lease are answered before it is in the ring; the next claim finds it
  // there.
  static_cast<void>(host_.idctl.Claim("orders"));
  host_.daemon.Kill();
  host_.daemon.Start();
  static_cast<void>(host_.idctl.Claim("orders", 7));
  const Scrape page = Look();
  EXPECT_EQ(page.At("idd_inherited_rings"), 1);
  EXPECT_GE(page.At("idd_inherited_leases"), 1);
  EXPECT_EQ(Claimed(page), 7) << "ids from before the restart are counted again";
  EXPECT_EQ(page.At("idd_tag_wasted_ids_total{tag=\"orders\"}"), 0);
}

TEST_F(Metrics, LeaseThatIsRefusedIsReported) {
  host_.daemon.Start();
  host_.idctl.Do({"tag", "create", "small", "--step", "10", "--max-id", "20"});
  EXPECT_EQ(host_.idctl.Run({"claim", "small", "-n", "25"}).exit_status, 5);
  EXPECT_TRUE(WaitUntil(Patience(10s), [this] {
    const Scrape page = Look();
    return page.At("idd_tag_lease_refused{tag=\"small\"}") == 1 &&
           page.At("idd_leases_refused_total") >= 1;
  }));
}

TEST_F(Metrics, UsersSeeTheTagsThatTheyMayUse) {
  Configure(Rule("'orders'", kAlice.uid, "access = 'shm'") +
            Rule("'billing'", kBob.uid, "access = 'shm'"));
  host_.daemon.Start();
  for (const char* tag : {"orders", "billing"}) {
    host_.idctl.CreateTag(tag, 100);
    static_cast<void>(host_.idctl.Claim(tag, 10));
  }
  // The ids wasted in a crash are reported by tag, too.
  host_.daemon.Kill();
  host_.daemon.Start();
  for (const char* tag : {"orders", "billing"}) static_cast<void>(host_.idctl.Claim(tag, 10));
  const Idctl alice = host_.idctl.As(kAlice);
  for (const std::string& page : {alice.Run({"metrics"}).out, alice.Json({"metrics"}).dump()}) {
    EXPECT_THAT(page, HasSubstr("orders"));
    EXPECT_THAT(page, Not(HasSubstr("billing")));
  }
  EXPECT_EQ(Scrape(alice.Run({"metrics"}).out).At("idd_tags"), 1);
  EXPECT_THAT(host_.idctl.Run({"metrics"}).out, HasSubstr("billing"));
  EXPECT_EQ(host_.idctl.As(kOutsider).Run({"metrics"}).exit_status, 6);
  EXPECT_EQ(alice.Run({"claim", "billing"}).exit_status, 6);
  EXPECT_EQ(alice.Run({"tag", "set", "orders", "--step", "5"}).exit_status, 6);
  const Scrape page = Look();
  EXPECT_EQ(page.At("idd_denials_total{of=\"connection\"}"), 1);
  EXPECT_EQ(page.At("idd_denials_total{of=\"tag\"}"), 1);
  EXPECT_EQ(page.At("idd_denials_total{of=\"admin\"}"), 1);
  EXPECT_EQ(page.At("idd_admin_requests_total{operation=\"tag.set\"}"), 1);
}

TEST_F(Metrics, LimitsThatWereReachedAreReported) {
  Configure("[limits]\nconnections_per_uid = 1\nrequests_per_second_per_uid = 1\n" +
            Rule("'orders'", kAlice.uid, "access = 'socket'"));
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 1));
  const Idctl alice = host_.idctl.As(kAlice);
  for (int i = 0; i < 8; ++i) static_cast<void>(alice.Run({"status"}));
  // On a very busy machine the requests stay below the rate.
  EXPECT_TRUE(WaitUntil(Patience(60s), [&] {
    static_cast<void>(alice.Run({"status"}));
    return Look().At("idd_limited_requests_total{by=\"rate\"}") >= 1;
  }));
  // A request beyond the rate is not read yet; its connection stays until it is read.
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] { return Look().At("idd_connections") == 1; }))
      << "only our own connection may remain";
  const Scrape page = Look();
  EXPECT_EQ(page.At("idd_limited_requests_total{by=\"under_way\"}"), 0);
  EXPECT_GE(page.At("idd_connections_accepted_total"), 4);
}

}  // namespace
}  // namespace idd::harness
