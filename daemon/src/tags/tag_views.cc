// SPDX-License-Identifier: Apache-2.0
#include "tags/tag_views.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "refill/refill_policy.h"
#include "tags/leased_ids.h"

namespace idd::daemon {
namespace {

std::uint64_t Nanoseconds(MonotonicTime time) {
  const std::chrono::nanoseconds since_boot = time.time_since_epoch();
  return static_cast<std::uint64_t>(since_boot.count());
}

shm::TagCondition ConditionOf(TagState state) {
  switch (state) {
    case TagState::kDrained:
      return shm::TagCondition::kDrained;
    case TagState::kQuarantined:
      return shm::TagCondition::kQuarantined;
    case TagState::kOk:
    case TagState::kDry:
      break;
  }
  return shm::TagCondition::kServed;
}

// The rate in whole ids per thousand seconds; a lower rate counts as none.
std::uint64_t PerThousandSeconds(double per_s) {
  constexpr double kMax = 1e18;
  if (!(per_s > 0)) return 0;
  return static_cast<std::uint64_t>(std::llround(std::min(per_s * 1000, kMax)));
}

std::uint64_t PromisedIdsOf(const TagFacts& facts) {
  if (facts.record.mode == TagMode::kSnowflake) return 0;  // it holds time, not ids
  return PromisedIds(facts.record.refill, facts.history.Most(MonotonicClock::now()),
                     facts.planning_rate_per_s);
}

}  // namespace

const char* TagStateName(TagState state) noexcept {
  switch (state) {
    case TagState::kOk:
      return "ok";
    case TagState::kDry:
      return "dry";
    case TagState::kQuarantined:
      return "quarantined";
    case TagState::kDrained:
      return "drained";
  }
  return "unknown";
}

TagState StateOf(const TagFacts& facts, std::uint64_t available) noexcept {
  if (facts.is_drained) return TagState::kDrained;
  if (facts.was_quarantined_recently) return TagState::kQuarantined;
  // A ticket tag holds no ids, and a snowflake tag leases time only while it is used.
  const bool is_dry = facts.has_ring && available == 0 && facts.record.mode == TagMode::kSegment;
  return is_dry ? TagState::kDry : TagState::kOk;
}

TagSnapshot SnapshotOf(const TagFacts& facts, std::vector<LeaseUse> in_ring) {
  TagSnapshot snapshot;
  snapshot.tag = facts.tag;
  snapshot.mode = facts.record.mode;
  snapshot.step = facts.record.step;
  snapshot.snowflake = facts.record.snowflake;
  snapshot.refill = facts.record.refill;
  snapshot.claimed = facts.closed_claimed;
  std::uint64_t available = 0;
  for (const LeaseUse& use : in_ring) {
    snapshot.claimed += use.claimed;
    available += use.available();
  }
  snapshot.leases = std::move(in_ring);
  snapshot.state = StateOf(facts, available);
  snapshot.rate_per_s = facts.rate_per_s;
  snapshot.planning_rate_per_s = facts.planning_rate_per_s;
  snapshot.promised_ids = PromisedIdsOf(facts);
  snapshot.exhausted_in_days = facts.exhausted_in_days;
  snapshot.order = facts.record.order;
  snapshot.lanes = facts.lanes;
  snapshot.fallbacks = facts.fallbacks;
  snapshot.leases_taken = facts.leases_taken;
  snapshot.last_error = facts.last_error;
  return snapshot;
}

TagSample SampleOf(const TagFacts& facts, std::uint64_t available) {
  return {.tag = facts.tag,
          .state = TagStateName(StateOf(facts, available)),
          .claimed_by_ring = facts.claimed_by_ring,
          .claimed_by_socket = facts.claimed_by_socket,
          .available = available,
          .rate_per_s = facts.rate_per_s,
          .promised_ids = PromisedIdsOf(facts),
          .tolerance_s = static_cast<double>(facts.record.refill.outage_tolerance.count()),
          .exhausted_in_days = facts.exhausted_in_days,
          .leases = facts.leases_taken,
          .fallbacks = facts.fallbacks,
          .quarantines = facts.quarantines,
          .lane_ids = facts.lanes.has_value() ? std::optional(facts.lanes->left) : std::nullopt,
          .lane_dropped = facts.lanes.has_value() ? facts.lanes->dropped : 0,
          .is_refused = facts.is_refused};
}

shm::TagNumbers NumbersOf(const TagFacts& facts) {
  constexpr std::uint64_t kNotDry = 1;  // the ring shows whether it is dry
  const RefillSettings& refill = facts.record.refill;
  return {.claimed_before = facts.closed_claimed,
          .leases = facts.leases_taken,
          .fallbacks = facts.fallbacks,
          .step = facts.record.step,
          .outage_tolerance_s = static_cast<std::uint64_t>(refill.outage_tolerance.count()),
          .max_prefetch = refill.max_prefetch,
          .reckoned_per_1000_s = PerThousandSeconds(facts.planning_rate_per_s),
          .quarantined_until_ns = facts.was_quarantined_recently
                                      ? Nanoseconds(facts.quarantined_at + kQuarantineShown)
                                      : 0,
          .promised_ids = PromisedIdsOf(facts),
          .condition = ConditionOf(StateOf(facts, kNotDry))};
}

}  // namespace idd::daemon
