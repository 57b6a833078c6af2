// SPDX-License-Identifier: Apache-2.0
#include "top/top_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "idd/base/check.h"
#include "idd/shm/ring_stats.h"

namespace idd::tools {
namespace {

// The cover is the available ids over the rate of about this many seconds: less would make it jump,
// more would make it late.
constexpr double kSmoothedSeconds = 3;
// Below this many ids a second a tag is idle, as in `status`.
constexpr double kLeastRate = 0.01;

// Sorts behind all tags whose ids are counted.
std::uint64_t AvailableOrMost(const TopTag& tag) {
  return tag.is_snowflake() ? std::numeric_limits<std::uint64_t>::max() : tag.now.available;
}

// A snowflake tag that no program uses holds no time, and needs none: the next claim leases it.
void AdvanceSnowflake(TopTag& tag, TagReading reading) {
  if (reading.state == "dry" && !tag.last_error) reading.state = "ok";
  tag.now = std::move(reading);
  tag.is_known = false;  // so that no rate comes from another mode's numbers
  tag.rate_per_s = 0;
  tag.smooth_per_s = 0;
  tag.covered_s.reset();
  tag.is_kept = true;
  tag.promise_s = tag.now.outage_tolerance_s;
  tag.rates = {};
  tag.covers = {};
}

// A tag without ids has no rate, and has to be shown first.
double CoverOrForEver(const TopTag& tag) {
  if (tag.now.state == "dry") return 0;
  return tag.covered_s.value_or(std::numeric_limits<double>::infinity());
}

// Whether `a` sorts before `b`, and whether `b` sorts before `a`.
std::pair<bool, bool> Compare(const TopTag& a, const TopTag& b, TopOrder order) {
  switch (order) {
    case TopOrder::kRate:
      return {a.rate_per_s > b.rate_per_s, b.rate_per_s > a.rate_per_s};
    case TopOrder::kCover:
      return {CoverOrForEver(a) < CoverOrForEver(b), CoverOrForEver(b) < CoverOrForEver(a)};
    case TopOrder::kAvailable:
      return {AvailableOrMost(a) < AvailableOrMost(b), AvailableOrMost(b) < AvailableOrMost(a)};
    case TopOrder::kName:
      break;
  }
  return {a.name < b.name, b.name < a.name};
}

}  // namespace

void History::Add(double value) noexcept {
  values_[next_] = static_cast<float>(value);
  next_ = (next_ + 1) % kMaxValues;
  count_ = std::min(count_ + 1, kMaxValues);
}

double History::Back(std::size_t age) const noexcept {
  IDD_CHECK(age < count_);
  return values_[(next_ + kMaxValues - 1 - age) % kMaxValues];
}

std::string ShownState(const std::string& state, bool is_kept) {
  return state == "ok" && !is_kept ? "short" : state;
}

void Advance(TopTag& tag, TagReading reading, double seconds) {
  if (tag.is_snowflake()) return AdvanceSnowflake(tag, std::move(reading));
  const bool has_rate = tag.is_known && seconds > 0;
  if (has_rate) {
    // A smaller number: another daemon has begun to count from zero.
    const std::uint64_t more = reading.claimed - std::min(reading.claimed, tag.now.claimed);
    tag.rate_per_s = static_cast<double>(more) / seconds;
    const double weight = 1 - std::exp(-seconds / kSmoothedSeconds);
    const bool is_first = tag.rates.size() == 0;
    tag.smooth_per_s += (is_first ? 1 : weight) * (tag.rate_per_s - tag.smooth_per_s);
  }
  tag.is_known = true;
  tag.now = std::move(reading);
  const auto available = static_cast<double>(tag.now.available);
  tag.is_kept = shm::IsPromiseKept(tag.now.available, tag.now.promised_ids);
  tag.covered_s.reset();
  tag.promise_s = tag.now.outage_tolerance_s;
  if (tag.smooth_per_s >= kLeastRate) {
    tag.covered_s = available / tag.smooth_per_s;
    tag.promise_s = shm::PromiseSeconds(tag.now.promised_ids, tag.promise_s, tag.smooth_per_s);
  }
  if (!has_rate) return;
  tag.rates.Add(tag.rate_per_s);
  // Idle: the available ids last, unless there are none.
  const double most = tag.now.outage_tolerance_s;
  tag.covers.Add(std::min(tag.covered_s.value_or(tag.now.available > 0 ? most : 0), most));
}

TopSums SumUp(const std::vector<const TopTag*>& tags) {
  TopSums sums;
  for (const TopTag* tag : tags) {
    ++sums.tags;
    const bool is_judged = tag->now.state != "drained" && !tag->is_snowflake();
    sums.judged += is_judged ? 1U : 0U;
    sums.kept += is_judged && tag->is_kept ? 1U : 0U;
    sums.snowflake += tag->is_snowflake() ? 1U : 0U;
    sums.dry += tag->now.state == "dry" ? 1U : 0U;
    sums.quarantined += tag->now.state == "quarantined" ? 1U : 0U;
    sums.drained += tag->now.state == "drained" ? 1U : 0U;
    sums.available += tag->is_snowflake() ? 0 : tag->now.available;
    sums.rate_per_s += tag->rate_per_s;
  }
  return sums;
}

const char* TopOrderName(TopOrder order) noexcept {
  switch (order) {
    case TopOrder::kRate:
      return "rate";
    case TopOrder::kCover:
      return "cover";
    case TopOrder::kAvailable:
      return "available";
    case TopOrder::kName:
      break;
  }
  return "name";
}

std::optional<TopOrder> ParseTopOrder(std::string_view name) noexcept {
  for (const TopOrder order :
       {TopOrder::kRate, TopOrder::kCover, TopOrder::kAvailable, TopOrder::kName}) {
    if (name == TopOrderName(order)) return order;
  }
  return std::nullopt;
}

TopOrder NextOrder(TopOrder order) noexcept {
  switch (order) {
    case TopOrder::kRate:
      return TopOrder::kCover;
    case TopOrder::kCover:
      return TopOrder::kAvailable;
    case TopOrder::kAvailable:
      return TopOrder::kName;
    case TopOrder::kName:
      break;
  }
  return TopOrder::kRate;
}

std::vector<const TopTag*> Arrange(const std::vector<const TopTag*>& tags,
                                   const TopArrangement& arrangement) {
  std::vector<const TopTag*> arranged;
  arranged.reserve(tags.size());
  for (const TopTag* tag : tags) {
    if (tag->name.find(arrangement.filter) != std::string::npos) arranged.push_back(tag);
  }
  std::sort(arranged.begin(), arranged.end(), [&arrangement](const TopTag* a, const TopTag* b) {
    const auto [is_before, is_behind] = Compare(*a, *b, arrangement.order);
    if (is_before != is_behind) return arrangement.is_reversed ? is_behind : is_before;
    return a->name < b->name;
  });
  return arranged;
}

}  // namespace idd::tools
