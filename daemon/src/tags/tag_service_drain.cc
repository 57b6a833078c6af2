// SPDX-License-Identifier: Apache-2.0
//
// TagService: tags that an operator has taken out of use on this host.
#include <algorithm>
#include <utility>

#include "platform/logging.h"
#include "tags/served_tag.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

// Everything that was claimed of `leases` lies below it, and what lies between is nobody's: a ring
// that begins here hands out what comes back, and breaks no order of ids.
std::uint64_t EndOfClaims(const std::vector<LeaseUse>& leases, std::uint64_t if_none) {
  if (leases.empty()) return if_none;
  std::uint64_t end = leases.front().lease.ids.first;
  for (const LeaseUse& use : leases) {
    if (use.claimed != 0) end = std::max(end, use.lease.ids.first + use.claimed);
  }
  return end;
}

}  // namespace

void TagService::LoadDrained(const std::vector<std::string>& scopes) {
  for (const std::string& scope : scopes) drains_.Begin(scope);
}

void TagService::Drain(const std::string& scope) {
  if (stopping_) return;  // that hands everything back, and the next idd begins drained
  TakeOverAll();
  drains_.Begin(scope);
  for (auto& [name, tag] : tags_) {
    if (scope == kWholeHost || scope == name) DrainTag(*tag);
  }
  closer_.Flush();  // ends wait for no others now
}

void TagService::DrainTag(Tag& tag) {
  tag.waiters.FailAll(drains_.Refusal(tag.name));
  ArmDeadline(tag);
  if (tag.ring == nullptr || tag.ring->IsDrained()) return;
  std::vector<LeaseUse> drained = tag.ring->Retire(shm::RingState::kDrained);
  // A lease that is under way is the newest: the tails wait for it.
  tag.hands_back = tag.store_busy;
  if (tag.ring->forged()) {
    tag.floor = tag.ring->floor();
    tag.quarantined_at = MonotonicClock::now();
    ++tag.quarantines;
    log::Error("ring.quarantined", {{"tag", tag.name},
                                    {"ring", tag.ring->ring_id()},
                                    {"leases", drained.size()},
                                    {"reason", "a client forged a cursor"},
                                    {"action", "nothing of it is handed back"}});
    for (const LeaseUse& use : drained) drains_.OnSpoilt(use);
    CloseAll(tag, drained);
    PublishStats(tag);
    return;
  }
  tag.floor = EndOfClaims(drained, tag.ring->floor());
  for (const LeaseUse& use : drained) {
    tag.closed_claimed += use.claimed;
    drains_.OnClosed(use);
  }
  tag.tails.insert(tag.tails.end(), drained.begin(), drained.end());
  PublishStats(tag);
  HandBackTails(tag);
}

void TagService::Resume(const std::string& scope) {
  if (stopping_) return;
  TakeOverAll();
  drains_.End(scope);
  for (auto& [name, tag] : tags_) {
    if ((scope == kWholeHost || scope == name) && !drains_.IsDrained(name)) ResumeTag(*tag);
  }
  // What waited for its turn when it was drained has none any more, and nobody says so.
  std::erase_if(warming_, [this](const std::string& name) {
    const auto it = tags_.find(name);
    return it == tags_.end() || (!it->second->store_busy && !scheduler_.Awaits(name));
  });
  WarmNext();
}

// Never in the ring that was drained: ids only rise in a ring, and what it had comes back.
void TagService::ResumeTag(Tag& tag) {
  if (tag.ring == nullptr || !tag.ring->IsDrained()) return;
  static_cast<void>(tag.ring->Retire());  // it has none
  log::Info("ring.retired",
            {{"tag", tag.name}, {"ring", tag.ring->ring_id()}, {"reason", "the tag is resumed"}});
  tag.ring.reset();
  // Else whoever asks for ids tries again. Leased for like tags at the start: of a host's thousands
  // those that are asked for go before.
  if (EnsureRing(tag).ok()) to_warm_.push_back(tag.name);
}

// A tag that was resumed meanwhile has waited for it.
void TagService::AfterHandBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
  drains_.OnAnswered(use, outcome);
  const auto it = tags_.find(use.lease.tag);
  if (it != tags_.end() && it->second->record.has_value()) MaybeLease(*it->second);
}

TagService::DrainProgress TagService::ProgressOf(const std::string& scope) const {
  DrainProgress progress{.count = drains_.CountOf(scope),
                         .has_open_ends = closer_.HasOpenEnds(scope)};
  for (const auto& [name, tag] : tags_) {
    if (scope != kWholeHost && scope != name) continue;
    if (tag->record.has_value() && drains_.IsDrained(name)) ++progress.tags;
    if (tag->hands_back) progress.is_leasing = true;
  }
  return progress;
}

bool TagService::Knows(std::string_view tag) const {
  const auto it = tags_.find(tag);
  return it != tags_.end() && it->second->record.has_value();
}

}  // namespace idd::daemon
