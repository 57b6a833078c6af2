// SPDX-License-Identifier: Apache-2.0
//
// TagService: what others are shown of the tags. Observers read it in the rings themselves, where
// it is told when it changes; documents are made of snapshots.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tags/served_tag.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

std::uint64_t Nanoseconds(MonotonicTime time) {
  const std::chrono::nanoseconds since_boot = time.time_since_epoch();
  return static_cast<std::uint64_t>(since_boot.count());
}

shm::TagCondition ConditionOf(std::string_view state) {
  if (state == "drained") return shm::TagCondition::kDrained;
  if (state == "quarantined") return shm::TagCondition::kQuarantined;
  return shm::TagCondition::kServed;
}

// Whole ids in a thousand seconds: slower than that is nobody.
std::uint64_t PerThousandSeconds(double per_s) {
  constexpr double kMax = 1e18;
  if (!(per_s > 0)) return 0;
  return static_cast<std::uint64_t>(std::llround(std::min(per_s * 1000, kMax)));
}

}  // namespace

bool TagService::IsFreshlyQuarantined(const Tag& tag) {
  return tag.quarantines != 0 && MonotonicClock::now() - tag.quarantined_at < kQuarantineShown;
}

const char* TagService::StateOf(const Tag& tag, std::uint64_t available) const {
  if (drains_.IsDrained(tag.name)) return "drained";
  if (IsFreshlyQuarantined(tag)) return "quarantined";
  return tag.ring != nullptr && available == 0 ? "dry" : "ok";
}

std::size_t TagService::rings() const {
  return static_cast<std::size_t>(std::count_if(
      tags_.begin(), tags_.end(), [](const auto& entry) { return entry.second->ring != nullptr; }));
}

Result<ObserveGrant> TagService::Observe(std::string_view tag) const {
  const auto it = tags_.find(tag);
  if (stopping_ || it == tags_.end() || it->second->ring == nullptr) return ObserveGrant();
  const Tag& entry = *it->second;
  if (!entry.record.has_value() || entry.ClaimsBySocket()) return ObserveGrant();
  Result<ScopedFd> cursors_fd = entry.ring->ReadOnlyCursors();
  if (!cursors_fd.ok()) return cursors_fd.status();
  return ObserveGrant{.ring_id = entry.ring->ring_id(),
                      .table_fd = entry.ring->table_fd(),
                      .cursors_fd = std::move(cursors_fd).value()};
}

// Called whenever a lease has come or gone, and by every poll that looks at the tag.
void TagService::PublishStats(Tag& tag) {
  if (tag.ring == nullptr || !tag.record.has_value()) return;
  constexpr std::uint64_t kNotDry = 1;  // whether it is, the ring tells
  const RefillSettings& refill = tag.record->refill;
  const bool is_quarantined = IsFreshlyQuarantined(tag);
  tag.ring->Tell({.claimed_before = tag.closed_claimed,
                  .leases = tag.leases_taken,
                  .fallbacks = tag.fallbacks,
                  .step = tag.record->step,
                  .outage_tolerance_s = static_cast<std::uint64_t>(refill.outage_tolerance.count()),
                  .max_prefetch = refill.max_prefetch,
                  .reckoned_per_1000_s = PerThousandSeconds(tag.policy->RatePerSecond()),
                  .quarantined_until_ns =
                      is_quarantined ? Nanoseconds(tag.quarantined_at + kQuarantineShown) : 0,
                  .condition = ConditionOf(StateOf(tag, kNotDry))});
}

double TagService::PromisedIdsOf(const Tag& tag) {
  return PromisedIds(tag.record->refill, tag.history.Most(MonotonicClock::now()),
                     tag.policy->RatePerSecond());
}

TagSnapshot TagService::SnapshotOf(const Tag& tag) const {
  TagSnapshot snapshot;
  snapshot.tag = tag.name;
  snapshot.mode = tag.record->mode;
  snapshot.step = tag.record->step;
  snapshot.refill = tag.record->refill;
  snapshot.exhausted_in_days = tag.exhausted_in_days;
  snapshot.reckoned_per_s = tag.policy->RatePerSecond();
  snapshot.promised_ids = PromisedIdsOf(tag);
  if (tag.ring != nullptr) snapshot.leases = tag.ring->Look();
  snapshot.claimed = tag.closed_claimed;
  std::uint64_t available = 0;
  for (const LeaseUse& use : snapshot.leases) {
    snapshot.claimed += use.claimed;
    available += use.available();
  }
  snapshot.state = StateOf(tag, available);
  snapshot.rate_per_s = tag.usage.rate_per_s();
  snapshot.fallbacks = tag.fallbacks;
  snapshot.leases_taken = tag.leases_taken;
  snapshot.last_error = tag.last_error;
  return snapshot;
}

std::vector<TagSnapshot> TagService::Snapshot() const {
  std::vector<TagSnapshot> snapshots;
  snapshots.reserve(tags_.size());
  for (const auto& [name, tag] : tags_) {
    if (tag->record.has_value()) snapshots.push_back(SnapshotOf(*tag));
  }
  return snapshots;
}

std::vector<TagSnapshot> TagService::Unobserved(const MayObserve& may_observe) const {
  std::vector<TagSnapshot> snapshots;
  for (const auto& [name, tag] : tags_) {
    if (!tag->record.has_value()) continue;
    const bool has_ring = tag->ring != nullptr && !tag->ClaimsBySocket();
    if (has_ring && tag->last_error.empty() && may_observe(name)) continue;
    snapshots.push_back(SnapshotOf(*tag));
  }
  return snapshots;
}

}  // namespace idd::daemon
