// SPDX-License-Identifier: Apache-2.0
#include "metrics/metrics_page.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "idd/shm/ring_stats.h"
#include "idd/wire/frames.h"

namespace idd::daemon {
namespace {

using Json = nlohmann::ordered_json;
using Labels = FamilyBuilder::Labels;
using TagSamples = std::vector<const TagSample*>;

// Below this rate the tag is idle, and a forecast would be meaningless.
constexpr double kIdleRate = 0.01;

Labels OfTag(const std::string& tag) { return {{"tag", tag}}; }

void AddForEach(const Metric& metric, const TagSamples& tags, FamilyBuilder& families,
                const std::function<std::optional<double>(const TagSample&)>& value) {
  families.Declare(metric);
  for (const TagSample* tag : tags) {
    if (const auto number = value(*tag)) families.Add(metric, *number, OfTag(tag->tag));
  }
}

double Number(std::uint64_t value) { return static_cast<double>(value); }

// An operator has taken the tag out of use, so no alert may fire for it.
bool IsDrained(const TagSample& tag) { return std::string_view(tag.state) == "drained"; }

std::optional<double> CoverOf(const TagSample& tag) {
  if (tag.rate_per_s < kIdleRate || IsDrained(tag)) return std::nullopt;
  return Number(tag.available) / tag.rate_per_s;
}

std::optional<double> ExhaustionOf(const TagSample& tag) {
  if (!tag.exhausted_in_days) return std::nullopt;
  return *tag.exhausted_in_days * kSecondsPerDay;
}

std::optional<double> LaneIdsOf(const TagSample& tag) {
  if (!tag.lane_ids.has_value()) return std::nullopt;
  return Number(*tag.lane_ids);
}

std::optional<double> LaneDroppedOf(const TagSample& tag) {
  if (!tag.lane_ids.has_value()) return std::nullopt;
  return Number(tag.lane_dropped);
}

std::optional<double> PromiseLengthOf(const TagSample& tag) {
  if (tag.rate_per_s < kIdleRate || IsDrained(tag)) return std::nullopt;
  return shm::PromiseSeconds(tag.promised_ids, tag.tolerance_s, tag.rate_per_s);
}

std::optional<double> PromiseKept(const TagSample& tag) {
  if (IsDrained(tag)) return std::nullopt;
  return shm::IsPromiseKept(tag.available, tag.promised_ids) ? 1.0 : 0.0;
}

void AddClaims(const TagSamples& tags, FamilyBuilder& families) {
  families.Declare(metric::kTagClaimed);
  for (const TagSample* tag : tags) {
    families.Add(metric::kTagClaimed, Number(tag->claimed_by_ring),
                 {{"tag", tag->tag}, {"path", "ring"}});
    families.Add(metric::kTagClaimed, Number(tag->claimed_by_socket),
                 {{"tag", tag->tag}, {"path", "socket"}});
  }
}

void AddSupply(const TagSamples& tags, FamilyBuilder& families) {
  AddForEach(metric::kTagAvailable, tags, families,
             [](const TagSample& tag) { return Number(tag.available); });
  AddForEach(metric::kTagLaneIds, tags, families, LaneIdsOf);
  AddForEach(metric::kTagLaneDropped, tags, families, LaneDroppedOf);
  AddForEach(metric::kTagCover, tags, families, CoverOf);
  AddForEach(metric::kTagPromise, tags, families,
             [](const TagSample& tag) { return tag.tolerance_s; });
  AddForEach(metric::kTagPromiseLength, tags, families, PromiseLengthOf);
  AddForEach(metric::kTagPromiseKept, tags, families, PromiseKept);
  AddForEach(metric::kTagExhaustion, tags, families, ExhaustionOf);
}

void AddEvents(const TagSamples& tags, FamilyBuilder& families) {
  AddForEach(metric::kTagLeases, tags, families,
             [](const TagSample& tag) { return Number(tag.leases); });
  AddForEach(metric::kTagDryClaims, tags, families,
             [](const TagSample& tag) { return Number(tag.fallbacks); });
  AddForEach(metric::kTagQuarantines, tags, families,
             [](const TagSample& tag) { return Number(tag.quarantines); });
  AddForEach(metric::kTagRefused, tags, families,
             [](const TagSample& tag) { return tag.is_refused ? 1.0 : 0.0; });
  families.Declare(metric::kTagState);
  for (const TagSample* tag : tags) {
    families.Add(metric::kTagState, 1, {{"tag", tag->tag}, {"state", tag->state}});
  }
}

// Also adds tags that are not served now, because after a crash the next idd gives up the ids of
// all tags at its start. Tags that are served start at 0, so that the first loss shows as an
// increase. The names come from the journal, which any program may have written; an invalid one
// would make Prometheus drop the whole page.
void AddWaste(const MetricsSample& sample, const ShowsTag& shows, FamilyBuilder& families) {
  families.Declare(metric::kTagWasted);
  std::map<std::string, std::uint64_t, std::less<>> wasted = sample.wasted;
  for (const TagSample& tag : sample.tags) wasted.try_emplace(tag.tag, 0);
  for (const auto& [tag, ids] : wasted) {
    if (!wire::CheckTagName(tag).ok()) continue;
    if (shows(tag)) families.Add(metric::kTagWasted, Number(ids), OfTag(tag));
  }
}

// The names of the tags come from the store, as those of the wasted ids.
void AddCluster(const MetricsSample& sample, const ShowsTag& shows, FamilyBuilder& families) {
  for (const Metric* const metric :
       {&metric::kClusterTagLeased, &metric::kClusterTagReturned, &metric::kClusterTagAbandoned,
        &metric::kClusterTagHeld, &metric::kClusterTagShortHosts, &metric::kClusterTagExhaustion}) {
    families.Declare(*metric);
  }
  if (sample.cluster == nullptr) return;
  for (const ClusterTagSample& tag : *sample.cluster) {
    if (!wire::CheckTagName(tag.tag).ok() || !shows(tag.tag)) continue;
    const Labels labels = OfTag(tag.tag);
    families.Add(metric::kClusterTagLeased, Number(tag.leased), labels);
    families.Add(metric::kClusterTagReturned, Number(tag.returned), labels);
    families.Add(metric::kClusterTagAbandoned, Number(tag.abandoned), labels);
    families.Add(metric::kClusterTagHeld, Number(tag.held), labels);
    families.Add(metric::kClusterTagShortHosts, Number(tag.short_hosts), labels);
    if (!tag.exhausted_in_days.has_value()) continue;
    families.Add(metric::kClusterTagExhaustion, *tag.exhausted_in_days * kSecondsPerDay, labels);
  }
}

std::vector<MeasuredFamily> TagFamilies(const MetricsSample& sample, const ShowsTag& shows) {
  TagSamples shown;
  for (const TagSample& tag : sample.tags) {
    if (shows(tag.tag)) shown.push_back(&tag);
  }
  FamilyBuilder families;
  families.Add(metric::kTags, Number(shown.size()));
  AddClaims(shown, families);
  AddSupply(shown, families);
  AddEvents(shown, families);
  AddWaste(sample, shows, families);
  AddCluster(sample, shows, families);
  return families.Take();
}

const char* KindName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      break;
  }
  return "histogram";
}

Json HistogramJson(const prometheus::ClientMetric::Histogram& histogram) {
  Json buckets = Json::array();
  for (const auto& bucket : histogram.bucket) {
    Json entry = {{"count", bucket.cumulative_count}};
    if (std::isfinite(bucket.upper_bound)) entry["le"] = bucket.upper_bound;
    buckets.push_back(std::move(entry));
  }
  return {{"count", histogram.sample_count},
          {"sum", histogram.sample_sum},
          {"buckets", std::move(buckets)}};
}

// Counts stay whole numbers, so that programs can compare them.
Json ValueJson(double value) {
  constexpr double kExact = 9'007'199'254'740'992.0;  // 2^53
  const bool is_whole = value >= 0 && value <= kExact && std::floor(value) == value;
  return is_whole ? Json(static_cast<std::uint64_t>(value)) : Json(value);
}

Json SampleJson(const Metric& metric, const prometheus::ClientMetric& sample) {
  Json labels = Json::object();
  for (const auto& label : sample.label) labels[label.name] = label.value;
  Json entry = {{"labels", std::move(labels)}};
  if (metric.kind == MetricKind::kHistogram) {
    entry.update(HistogramJson(sample.histogram));
  } else if (metric.kind == MetricKind::kCounter) {
    entry["value"] = ValueJson(sample.counter.value);
  } else {
    entry["value"] = ValueJson(sample.gauge.value);
  }
  return entry;
}

void AddJson(const std::vector<MeasuredFamily>& families, Json& metrics) {
  for (const MeasuredFamily& measured : families) {
    Json samples = Json::array();
    for (const auto& sample : measured.family.metric) {
      samples.push_back(SampleJson(*measured.metric, sample));
    }
    metrics.push_back({{"name", measured.metric->name},
                       {"type", KindName(measured.metric->kind)},
                       {"unit", measured.metric->unit},
                       {"help", measured.metric->help},
                       {"samples", std::move(samples)}});
  }
}

}  // namespace

std::string MetricsText(const MetricsSample& sample, const ShowsTag& shows) {
  std::vector<prometheus::MetricFamily> families;
  for (const MeasuredFamily& measured : sample.host) families.push_back(measured.family);
  for (MeasuredFamily& measured : TagFamilies(sample, shows)) {
    families.push_back(std::move(measured.family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

Json MetricsJson(const MetricsSample& sample, const ShowsTag& shows) {
  Json metrics = Json::array();
  AddJson(sample.host, metrics);
  AddJson(TagFamilies(sample, shows), metrics);
  return {{"metrics", std::move(metrics)}};
}

}  // namespace idd::daemon
