// SPDX-License-Identifier: Apache-2.0
#include "admin/cluster_metrics.h"

#include <chrono>
#include <optional>

#include "metrics/metric_definitions.h"

namespace idd::daemon {
namespace {

constexpr std::chrono::seconds kLookEvery(5);
constexpr std::chrono::seconds kSampleEvery(60);
constexpr double kMillisecondsOfASecond = 1000;

}  // namespace

void ClusterMetrics::Start() {
  if (is_keeper_) timer_.After(kLookEvery, [this] { Look(); });
}

void ClusterMetrics::Look() {
  timer_.After(kLookEvery, [this] { Look(); });
  if (!is_keeper_()) {
    tags_.reset();
    hosts_.clear();
    sampled_at_ = 0;
    return;
  }
  const MonotonicTime now = MonotonicClock::now();
  if (now < next_sample_) return;
  next_sample_ = now + kSampleEvery;
  cluster_.Get([this](const Result<ClusterReader::View>& view) {
    if (view.ok()) OnRead(view.value());
  });
}

void ClusterMetrics::OnRead(const ClusterReader::View& view) {
  hosts_.clear();
  for (const ClusterHost& host : view->hosts) hosts_[HostCondition(host.record)] += 1;
  auto tags = std::make_shared<std::vector<ClusterTagSample>>();
  for (const auto& [name, tag] : view->tags) {
    if (!tag.record.has_value() || tag.is_snowflake()) continue;
    tags->push_back({.tag = name,
                     .leased = tag.ended.leased + tag.held_ids,
                     .returned = tag.ended.returned,
                     .abandoned = tag.ended.abandoned,
                     .held = tag.held_ids,
                     .short_hosts = tag.short_hosts,
                     .exhausted_in_days = tag.ExhaustedInDays()});
  }
  tags_ = std::move(tags);
  sampled_at_ = static_cast<double>(WallClock::now_ms()) / kMillisecondsOfASecond;
}

void ClusterMetrics::AddFamilies(FamilyBuilder& families) const {
  families.Declare(metric::kClusterHosts);
  families.Declare(metric::kClusterSampleTime);
  for (const auto& [condition, count] : hosts_) {
    families.Add(metric::kClusterHosts, count, {{"state", condition}});
  }
  if (sampled_at_ > 0) families.Add(metric::kClusterSampleTime, sampled_at_);
}

}  // namespace idd::daemon
