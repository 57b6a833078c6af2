// SPDX-License-Identifier: Apache-2.0
//
// TagService: how rings begin, are replaced and end, and what becomes of their leases.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "platform/logging.h"
#include "tags/served_tag.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

// A claimer that lost its processor between its add and its look gets it back within this time,
// and finds that it may keep its ids.
constexpr std::chrono::milliseconds kOvertakenPatience(50);

}  // namespace

// Beginning.

Status TagService::EnsureRing(Tag& tag) {
  if (tag.ring != nullptr) return Status::Ok();
  Result<std::unique_ptr<TagRing>> ring =
      TagRing::Create(tag.name, tag.floor, handover_.descriptors);
  if (!ring.ok()) {
    log::Error("ring.create_failed", {{"tag", tag.name}, {"error", ring.status().message()}});
    return ring.status();
  }
  tag.ring = std::move(ring).value();
  ++tags_version_;
  PublishStats(tag);
  log::Info("ring.created", {{"tag", tag.name}, {"ring", tag.ring->ring_id()}});
  return Status::Ok();
}

// A tag whose ids are claimed by the socket must not have a ring that clients can write.
void TagService::EnforceAccess(Tag& tag) {
  if (tag.ring == nullptr || !tag.ring->shared() || !tag.ClaimsBySocket()) return;
  if (tag.ring->IsDrained()) return;  // there is nothing in it, and another comes after it
  // If there is no memory for it, clients keep the old one until a later try.
  static_cast<void>(ReplaceRing(tag, "the tag's ids are claimed by the socket now"));
}

bool TagService::Withdraw(const std::string& tag, std::uint64_t ring_id) {
  const auto it = tags_.find(tag);
  if (stopping_ || it == tags_.end() || it->second->ring == nullptr) return true;
  if (it->second->ring->ring_id() != ring_id || it->second->ring->IsDrained()) return true;
  if (!ReplaceRing(*it->second, "one who has it may not use it any more")) return false;
  MaybeLease(*it->second);
  return true;
}

// The ring that clients have is closed, and another takes its place, with the same leases and as
// much of them claimed: no id is lost, and they go on rising. False: there is no memory for it.
bool TagService::ReplaceRing(Tag& tag, const char* reason) {
  const std::vector<LeaseUse> before = tag.ring->Look();
  const std::uint64_t floor = before.empty() ? tag.ring->floor() : before.front().lease.ids.first;
  Result<std::unique_ptr<TagRing>> ring = TagRing::Create(tag.name, floor, handover_.descriptors);
  if (!ring.ok()) {
    log::Error("ring.create_failed", {{"tag", tag.name}, {"error", ring.status().message()}});
    return false;
  }
  std::vector<LeaseUse> drained = tag.ring->Retire();
  if (tag.ring->forged()) {
    static_cast<void>(ring.value()->Retire());  // unused: its descriptors are dropped
    Quarantine(tag, std::move(drained));
    return true;
  }
  log::Info("ring.retired", {{"tag", tag.name}, {"ring", tag.ring->ring_id()}, {"reason", reason}});
  // Until the leases are noted as the new ring's, the next idd would look for them in the old one.
  const std::unique_ptr<TagRing> old = std::exchange(tag.ring, std::move(ring).value());
  log::Info("ring.created", {{"tag", tag.name}, {"ring", tag.ring->ring_id()}});
  // Also what is used up, so that it is closed as ever, and the floor stays where it was.
  for (const LeaseUse& use : drained) PublishRest(tag, use);
  ++tags_version_;
  CloseExhausted(tag);
  PublishStats(tag);
  return true;
}

// What is left of a lease whose earlier ring is closed.
void TagService::PublishRest(Tag& tag, const LeaseUse& use) {
  handover_.leases.RecordUsed(use.lease.token, use.lease.ids.first + use.claimed,
                              tag.ring->ring_id());
  tag.ring->Publish(use.lease, use.claimed, tag.policy->MarkOf(use.lease.ids, tag.View()),
                    handover_.leases.NextOf(use.lease.token));
}

// Closing leases.

void TagService::CloseExhausted(Tag& tag) {
  if (tag.ring == nullptr || tag.ring->IsDrained()) return;
  const std::vector<LeaseUse> exhausted = tag.ring->TakeExhausted();
  CloseAll(tag, exhausted);
  if (tag.ring->forged()) return Quarantine(tag);
  if (!exhausted.empty()) PublishStats(tag);
}

void TagService::CloseAll(Tag& tag, const std::vector<LeaseUse>& uses) {
  std::vector<LeaseClosure> closures;
  for (const LeaseUse& use : uses) {
    tag.closed_claimed += use.claimed;
    worker_.meter().AddWaste(tag.name, use.available());
    closures.push_back(Abandoned(use));
  }
  if (!closures.empty()) closer_.Close(std::move(closures));
}

// A client has spoilt the ring: what is left of it is given up, and a new one takes its place. Only
// the segments that were published in it are lost; claimers find it closed and attach anew.
// `drained` is what was drained of it already.
void TagService::Quarantine(Tag& tag, std::vector<LeaseUse> drained) {
  tag.floor = tag.ring->floor();
  tag.quarantined_at = MonotonicClock::now();
  ++tag.quarantines;
  std::vector<LeaseUse> rest = tag.ring->Retire(shm::RingState::kQuarantined);
  drained.insert(drained.end(), std::make_move_iterator(rest.begin()),
                 std::make_move_iterator(rest.end()));
  log::Error("ring.quarantined", {{"tag", tag.name},
                                  {"ring", tag.ring->ring_id()},
                                  {"leases", drained.size()},
                                  {"reason", "a client forged a cursor"},
                                  {"action", "its segments are abandoned, a new ring is made"}});
  CloseAll(tag, drained);  // noted before its descriptors are dropped: nothing of it goes on
  tag.ring.reset();
  if (Status status = EnsureRing(tag); !status.ok()) tag.waiters.FailAll(status);
}

void TagService::OnTagChanged(const TagRecord& record) {
  TakeOverIfLeft(record.tag);
  const auto it = tags_.find(record.tag);
  if (it == tags_.end()) return;
  ++tags_version_;
  if (it->second->record.has_value()) Configure(*it->second, record);
  it->second->last_error.clear();
  it->second->refusal = Status::Ok();
  it->second->retry_armed = false;
  it->second->retry_timer.Cancel();
  if (!it->second->record.has_value()) {
    // What it waited for before another look-up is over.
    if (!it->second->waiters.empty()) LookUp(*it->second);
    return;
  }
  EnforceAccess(*it->second);
  MaybeLease(*it->second);
}

void TagService::OnTagDeleted(const std::string& tag) {
  TakeOverIfLeft(tag);
  const auto it = tags_.find(tag);
  if (it == tags_.end()) return;
  ++tags_version_;
  const TagPtr gone = std::move(it->second);
  tags_.erase(it);
  gone->waiters.FailAll({Code::kNoSuchTag, "tag '" + tag + "' was deleted"});
  drains_.Forget(tag);
  CloseAll(*gone, std::exchange(gone->tails, {}));
  if (gone->ring == nullptr) return;
  const std::vector<LeaseUse> drained = gone->ring->Retire();
  log::Info("ring.retired", {{"tag", tag}, {"reason", "the tag was deleted"}});
  CloseAll(*gone, drained);
}

// Ending.

void TagService::Shutdown(std::function<void()> done) {
  TakeOverAll();
  stopping_ = true;
  closer_.Hurry();
  scheduler_.Stop();
  shutdown_done_ = std::move(done);
  for (auto& [name, tag] : tags_) {
    tag->deadline_timer.Cancel();
    tag->retry_timer.Cancel();
    tag->waiters.FailAll(Stopping());
    if (tag->ring == nullptr) continue;
    const std::vector<LeaseUse> open = tag->ring->Retire();
    // Of a drained tag that has some none is open.
    tag->tails.insert(tag->tails.end(), open.begin(), open.end());
    if (tag->ring->forged() && !open.empty()) {
      // Some of what looks unclaimed may have been handed out: none of it may be leased again.
      const std::vector<LeaseUse> spoilt = std::exchange(tag->tails, {});
      log::Error("ring.quarantined", {{"tag", name},
                                      {"ring", tag->ring->ring_id()},
                                      {"leases", spoilt.size()},
                                      {"reason", "a client forged a cursor"},
                                      {"action", "nothing of it is handed back"}});
      CloseAll(*tag, spoilt);
    }
    if (tag->ring->shared()) overtaken_are_through_ = false;
    if (health_.up || !handover_.descriptors.keeps()) {
      HandBackTails(*tag);
    } else {
      KeepForNext(*tag, handover_.leases);
    }
  }
  closer_.Flush();  // also what an earlier try could not journal
  if (!overtaken_are_through_) {
    overtaken_timer_.After(kOvertakenPatience, [this] {
      overtaken_are_through_ = true;
      FinishShutdownIfIdle();
    });
  }
  FinishShutdownIfIdle();
}

// The store is down and could not take the tails, but what we note of them goes to the next idd.
void TagService::KeepForNext(Tag& tag, HeldLeases& held) {
  for (const LeaseUse& use : std::exchange(tag.tails, {})) {
    held.RecordUsed(use.lease.token, use.lease.ids.first + use.claimed, 0);
    log::Info("lease.kept", {{"tag", use.lease.tag},
                             {"first", use.lease.ids.first + use.claimed},
                             {"limit", use.lease.ids.limit},
                             {"reason", "the store has not taken it: the next idd publishes it"}});
  }
}

// The newest first: each lowers max_id to where the one before it ends. So a lease that is still
// under way has to be waited for: it is the newest.
void TagService::HandBackTails(Tag& tag) {
  if (tag.store_busy) return;
  while (!tag.tails.empty()) {
    const LeaseUse newest = std::move(tag.tails.back());
    tag.tails.pop_back();
    closer_.HandBack(newest);
  }
}

void TagService::FinishShutdownIfIdle() {
  if (!stopping_ || !shutdown_done_ || !closer_.idle() || !overtaken_are_through_) return;
  for (const auto& [name, tag] : tags_) {
    if (tag->store_busy) return;
  }
  std::exchange(shutdown_done_, nullptr)();
}

}  // namespace idd::daemon
