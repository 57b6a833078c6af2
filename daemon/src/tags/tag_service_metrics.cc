// SPDX-License-Identifier: Apache-2.0
//
// TagService: what the metrics tell of it.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

#include "platform/logging.h"
#include "tags/served_tag.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

struct Alarm {
  const char* kind;
  const char* event;
};
// What a store did that can cost ids or uniqueness; the log has each with its numbers.
constexpr Alarm kAlarms[] = {{"backwards", "store.went_backwards"},
                             {"identity_changed", "store.identity_changed"},
                             {"not_durable", "store.not_durable"},
                             {"replaced", "store.replaced"}};

void AddAlarms(FamilyBuilder& families) {
  for (const Alarm& alarm : kAlarms) {
    families.Add(metric::kStoreAlarms, static_cast<double>(log::CountOf(alarm.event)),
                 {{"kind", alarm.kind}});
  }
}

// The codes by which a claim that had to wait can fail.
void AddFailedClaims(const ServiceMeter& meter, FamilyBuilder& families) {
  for (const Code code : {Code::kInvalid, Code::kUnavailable, Code::kNoSuchTag, Code::kTimeout,
                          Code::kOutOfIds, Code::kSystem}) {
    families.Add(metric::kFailedClaims, meter.failed_claims.at(static_cast<std::size_t>(code)),
                 {{"reason", CodeName(code)}});
  }
}

}  // namespace

double UnixTimeOf(MonotonicTime time) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const std::chrono::duration<double> ago = MonotonicClock::now() - time;
  return now.count() - ago.count();
}

ClaimDone TagService::MeterDryClaim(ClaimDone done) {
  meter_.dry_claims.Increment();
  return [this, done = std::move(done), since = MonotonicClock::now()](Result<ClaimGrant> grant) {
    meter_.claim_wait.Observe(Seconds(MonotonicClock::now() - since));
    const auto code = static_cast<std::size_t>(grant.status().code());
    if (code != 0 && code < meter_.failed_claims.size()) meter_.failed_claims[code].Increment();
    done(std::move(grant));
  };
}

std::optional<std::string> TagService::SampleTags(const std::string& after, std::size_t most,
                                                  std::vector<TagSample>& samples) {
  auto it = tags_.upper_bound(after);
  for (std::size_t i = 0; i < most && it != tags_.end(); ++i, ++it) {
    if (it->second->record.has_value()) samples.push_back(SampleOf(*it->second));
  }
  if (it == tags_.end()) return std::nullopt;
  return std::prev(it)->first;
}

TagSample TagService::SampleOf(Tag& tag) const {
  const RingLevel level = tag.ring == nullptr ? RingLevel{} : tag.ring->Level();
  const std::uint64_t claimed = tag.closed_claimed + level.claimed;
  const std::uint64_t others = tag.inherited_claimed + tag.socket_claimed;
  // A cursor that a client forges may seem to go back. A counter that did would count twice.
  tag.ring_claimed = std::max(tag.ring_claimed, claimed - std::min(claimed, others));
  return {.tag = tag.name,
          .state = StateOf(tag, level.available),
          .claimed_by_ring = tag.ring_claimed,
          .claimed_by_socket = tag.socket_claimed,
          .available = level.available,
          .rate_per_s = tag.usage.rate_per_s(),
          .promised_ids = PromisedIdsOf(tag),
          .tolerance_s = static_cast<double>(tag.record->refill.outage_tolerance.count()),
          .exhausted_in_days = tag.exhausted_in_days,
          .leases = tag.leases_taken,
          .fallbacks = tag.fallbacks,
          .quarantines = tag.quarantines,
          .is_refused = !tag.refusal.ok()};
}

void TagService::AddFamilies(FamilyBuilder& families) const {
  const StoreMeter& store = worker_.meter();
  families.Add(metric::kStoreUp, health_.up ? 1 : 0);
  if (health_.since != MonotonicTime{}) {
    families.Add(metric::kStoreChangeTime, health_since_);
  }
  families.Add(metric::kStoreFailures, store.failures);
  AddAlarms(families);
  families.Add(metric::kLeasesTaken, meter_.leases_taken);
  families.Add(metric::kLeasesRefused, meter_.leases_refused);
  families.Add(metric::kLeaseFailures, meter_.lease_failures);
  families.Add(metric::kLeaseDuration, store.lease_duration);
  families.Add(metric::kAwaitingTurn, static_cast<double>(scheduler_.waiting()));
  families.Add(metric::kInheritedRings, static_cast<double>(old_rings_.size()));
  families.Add(metric::kInheritedLeases, static_cast<double>(inherited_leases_));
  families.Add(metric::kRefills, meter_.refills);
  families.Add(metric::kRefillNotices, meter_.refill_notices);
  families.Add(metric::kDryClaims, meter_.dry_claims);
  families.Add(metric::kClaimWait, meter_.claim_wait);
  AddFailedClaims(meter_, families);
  std::size_t waiting = 0;
  for (const auto& [name, tag] : tags_) waiting += tag->waiters.size();
  families.Add(metric::kWaiting, static_cast<double>(waiting));
}

}  // namespace idd::daemon
