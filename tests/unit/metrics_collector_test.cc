// SPDX-License-Identifier: Apache-2.0
//
// A sample contains every tag once, is taken in turns between which other work runs, and never
// starts before it was requested.
#include "exporter/metrics_collector.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>

#include "support/service_harness.h"

namespace idd::daemon {
namespace {

class MetricsCollectorTest : public ::testing::Test {
 protected:
  static constexpr int kTags = 350;

  void SetUp() override {
    h_.Start([this](const StoreHealth& health) { tags_.OnStoreHealth(health); });
    for (int i = 0; i < kTags; ++i) Attach("tag-" + std::to_string(i));
    ASSERT_TRUE(h_.RunUntil([this] { return attached_ == kTags; }));
    h_.Settle();
  }
  void Attach(const std::string& tag) {
    h_.store.AddTag(tag, 10);
    tags_.Attach(tag, {.owner = 1, .deadline = Deadline::After(std::chrono::minutes(1))},
                 [this](const Result<AttachGrant>& grant) { attached_ += grant.ok() ? 1 : 0; });
  }
  [[nodiscard]] MetricsCollector::Sample Collect() {
    MetricsCollector::Sample sample;
    collector_.Collect([&sample](const MetricsCollector::Sample& taken) { sample = taken; });
    EXPECT_TRUE(h_.RunUntil([&sample] { return sample != nullptr; }));
    return sample;
  }

  WorkerHarness h_;
  TagService tags_{h_.loop, h_.worker, h_.handover(), 1'000'000};
  MetricsCollector collector_{h_.loop, tags_};
  int attached_ = 0;
};

TEST_F(MetricsCollectorTest, EveryTagIsInTheSampleOnce) {
  const MetricsCollector::Sample sample = Collect();
  std::set<std::string> names;
  for (const TagSample& tag : sample->tags) names.insert(tag.tag);
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kTags));
  EXPECT_EQ(sample->tags.size(), names.size());
}

TEST_F(MetricsCollectorTest, OthersHaveTheLoopBetweenTwoTurns) {
  bool is_done = false;
  int turns_of_others = 0;
  std::function<void()> other = [&] {
    ++turns_of_others;
    if (!is_done) h_.loop.Post(other);
  };
  h_.loop.Post(other);
  collector_.Collect([&](const MetricsCollector::Sample&) { is_done = true; });
  ASSERT_TRUE(h_.RunUntil([&] { return is_done; }));
  EXPECT_GE(turns_of_others, 3) << "350 tags take four turns";
}

TEST_F(MetricsCollectorTest, RequestMeanwhileGetsASampleThatBeganAfterIt) {
  MetricsCollector::Sample first;
  MetricsCollector::Sample second;
  MetricsCollector::Sample third;
  collector_.Collect([&](const MetricsCollector::Sample& sample) { first = sample; });
  collector_.Collect([&](const MetricsCollector::Sample& sample) { second = sample; });
  collector_.Collect([&](const MetricsCollector::Sample& sample) { third = sample; });
  ASSERT_TRUE(h_.RunUntil([&] { return third != nullptr; }));
  EXPECT_NE(first, second);
  EXPECT_EQ(second, third) << "two samples where one will do";
}

TEST_F(MetricsCollectorTest, TagThatGoesWhileTheSampleIsTakenHarmsNothing) {
  MetricsCollector::Sample sample;
  collector_.Collect([&](const MetricsCollector::Sample& taken) { sample = taken; });
  ASSERT_TRUE(h_.loop.RunOne(std::chrono::seconds(5)));
  for (int i = 0; i < kTags; ++i) tags_.OnTagDeleted("tag-" + std::to_string(i));
  ASSERT_TRUE(h_.RunUntil([&] { return sample != nullptr; }));
  EXPECT_LE(sample->tags.size(), 200U);
  EXPECT_EQ(Collect()->tags.size(), 0U);
}

TEST_F(MetricsCollectorTest, SourceIsAskedOnceForEachSample) {
  int asked = 0;
  collector_.AddSource([&asked](FamilyBuilder& families) {
    ++asked;
    families.Add(metric::kConnections, 5);
  });
  const MetricsCollector::Sample sample = Collect();
  EXPECT_EQ(asked, 1);
  EXPECT_STREQ(sample->host.front().metric->name, "idd_connections");
  EXPECT_EQ(sample->host.front().family.metric.front().gauge.value, 5);
}

}  // namespace
}  // namespace idd::daemon
