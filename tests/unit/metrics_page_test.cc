// SPDX-License-Identifier: Apache-2.0
#include "metrics/metrics_page.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace idd::daemon {
namespace {

bool All(const std::string& /*tag*/) { return true; }

TagSample OrdersSample() {
  return {.tag = "orders",
          .state = "ok",
          .claimed_by_ring = 7,
          .claimed_by_socket = 3,
          .available = 600,
          .rate_per_s = 2,
          .promised_ids = 600,
          .tolerance_s = 600,
          .exhausted_in_days = 2,
          .leases = 4,
          .fallbacks = 5,
          .quarantines = 6,
          .is_refused = true};
}

MetricsSample SampleOf(const TagSample& tag) {
  MetricsSample sample;
  sample.tags.push_back(tag);
  return sample;
}

bool Tells(const std::string& page, const std::string& line) {
  return page.find("\n" + line + "\n") != std::string::npos;
}

TEST(MetricsPageTest, TagIsReportedInBaseUnits) {
  const std::string page = MetricsText(SampleOf(OrdersSample()), All);
  for (const char* line :
       {"idd_tags 1", R"(idd_tag_claimed_ids_total{tag="orders",path="ring"} 7)",
        R"(idd_tag_claimed_ids_total{tag="orders",path="socket"} 3)",
        R"(idd_tag_available_ids{tag="orders"} 600)", R"(idd_tag_cover_seconds{tag="orders"} 300)",
        R"(idd_tag_promise_seconds{tag="orders"} 600)", R"(idd_tag_promise_kept{tag="orders"} 1)",
        R"(idd_tag_promise_length_seconds{tag="orders"} 300)",
        R"(idd_tag_exhaustion_seconds{tag="orders"} 172800)",
        R"(idd_tag_leases_total{tag="orders"} 4)", R"(idd_tag_fallbacks_total{tag="orders"} 5)",
        R"(idd_tag_quarantines_total{tag="orders"} 6)",
        R"(idd_tag_state{tag="orders",state="ok"} 1)", R"(idd_tag_lease_refused{tag="orders"} 1)",
        R"(idd_tag_wasted_ids_total{tag="orders"} 0)"}) {
    EXPECT_TRUE(Tells(page, line)) << line << "\n" << page;
  }
}

TEST(MetricsPageTest, PromiseIsNotKeptOnceOneIdIsMissing) {
  TagSample tag = OrdersSample();
  tag.available = 599;
  EXPECT_TRUE(Tells(MetricsText(SampleOf(tag), All), R"(idd_tag_promise_kept{tag="orders"} 0)"));
}

TEST(MetricsPageTest, YoungLoadHasAShortPromiseToKeep) {
  TagSample tag = OrdersSample();
  tag.available = 30;
  tag.promised_ids = 30;
  const std::string page = MetricsText(SampleOf(tag), All);
  EXPECT_TRUE(Tells(page, R"(idd_tag_promise_length_seconds{tag="orders"} 15)"));
  EXPECT_TRUE(Tells(page, R"(idd_tag_promise_seconds{tag="orders"} 600)"));
  EXPECT_TRUE(Tells(page, R"(idd_tag_promise_kept{tag="orders"} 1)"));
}

TEST(MetricsPageTest, IdleTagHasNoForecast) {
  TagSample tag = OrdersSample();
  tag.rate_per_s = 0.001;
  tag.exhausted_in_days.reset();
  const std::string page = MetricsText(SampleOf(tag), All);
  EXPECT_EQ(page.find("idd_tag_cover_seconds{"), std::string::npos);
  EXPECT_EQ(page.find("idd_tag_exhaustion_seconds{"), std::string::npos);
  EXPECT_NE(page.find("# TYPE idd_tag_cover_seconds gauge"), std::string::npos);
}

// Neither IddPromiseNotKept nor IddIdsRunOut may fire for a drained tag.
TEST(MetricsPageTest, DrainedTagPromisesNothing) {
  TagSample tag = OrdersSample();
  tag.state = "drained";
  tag.available = 0;
  const std::string page = MetricsText(SampleOf(tag), All);
  EXPECT_EQ(page.find("idd_tag_cover_seconds{"), std::string::npos) << page;
  EXPECT_EQ(page.find("idd_tag_promise_kept{"), std::string::npos) << page;
  EXPECT_EQ(page.find("idd_tag_promise_length_seconds{"), std::string::npos) << page;
  EXPECT_TRUE(Tells(page, R"(idd_tag_promise_seconds{tag="orders"} 600)"));
  EXPECT_TRUE(Tells(page, R"(idd_tag_state{tag="orders",state="drained"} 1)"));
}

TEST(MetricsPageTest, TagIsHiddenFromUsersWithoutAccess) {
  MetricsSample sample = SampleOf(OrdersSample());
  sample.wasted = {{"gone", 9}, {"orders", 8}};
  const auto shows = [](const std::string& tag) { return tag == "gone"; };
  const std::string page = MetricsText(sample, shows);
  EXPECT_EQ(page.find("orders"), std::string::npos) << page;
  EXPECT_TRUE(Tells(page, "idd_tags 0"));
  EXPECT_TRUE(Tells(page, "idd_tag_wasted_ids_total{tag=\"gone\"} 9"));
  EXPECT_EQ(MetricsJson(sample, shows).dump().find("orders"), std::string::npos);
}

TEST(MetricsPageTest, NameOfATagCannotForgeALine) {
  TagSample tag = OrdersSample();
  tag.tag = "a\"} 1\nidd_store_up 0\\";
  const std::string page = MetricsText(SampleOf(tag), All);
  EXPECT_EQ(page.find("\nidd_store_up"), std::string::npos) << page;
  EXPECT_NE(page.find("idd_tag_available_ids{tag=\"a\\\"} 1\\nidd_store_up 0\\\\\"} 600"),
            std::string::npos)
      << page;
}

TEST(MetricsPageTest, TagNameFromTheJournalThatIsNoTextIsLeftOut) {
  MetricsSample sample;
  sample.wasted = {{"bad\xff", 1}, {"good", 2}};
  const std::string page = MetricsText(sample, All);
  EXPECT_EQ(page.find("bad"), std::string::npos);
  EXPECT_TRUE(Tells(page, R"(idd_tag_wasted_ids_total{tag="good"} 2)"));
}

TEST(MetricsPageTest, LargeCountsAreNeitherRoundedNorInExponents) {
  TagSample tag = OrdersSample();
  tag.claimed_by_ring = std::uint64_t{1} << 53;
  const MetricsSample sample = SampleOf(tag);
  const std::string series = R"(idd_tag_claimed_ids_total{tag="orders",path="ring"} )";
  EXPECT_TRUE(Tells(MetricsText(sample, All), series + "9007199254740992"));
  EXPECT_NE(MetricsJson(sample, All).dump().find("9007199254740992"), std::string::npos);
}

TEST(MetricsPageTest, HistogramIsCumulativeInBothForms) {
  prometheus::Histogram histogram({0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) histogram.Observe(value);
  FamilyBuilder families;
  families.Add(metric::kClaimWait, histogram);
  MetricsSample sample;
  sample.host = families.Take();
  const std::string page = MetricsText(sample, All);
  EXPECT_TRUE(Tells(page, "idd_claim_wait_seconds_bucket{le=\"0.1\"} 2")) << page;
  EXPECT_TRUE(Tells(page, "idd_claim_wait_seconds_bucket{le=\"1\"} 3"));
  EXPECT_TRUE(Tells(page, "idd_claim_wait_seconds_bucket{le=\"+Inf\"} 4"));
  EXPECT_TRUE(Tells(page, "idd_claim_wait_seconds_count 4"));
  const auto json = MetricsJson(sample, All).at("metrics").at(0);
  EXPECT_EQ(json.at("samples").at(0).at("count"), 4);
  EXPECT_EQ(json.at("samples").at(0).at("buckets").dump(),
            R"([{"count":2,"le":0.1},{"count":3,"le":1.0},{"count":4}])");
}

}  // namespace
}  // namespace idd::daemon
