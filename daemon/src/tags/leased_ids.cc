// SPDX-License-Identifier: Apache-2.0
#include "tags/leased_ids.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "platform/logging.h"

namespace idd::daemon {
namespace {

constexpr const char* kNothingBack = "nothing of it is handed back";

// The first id above everything that was claimed of `leases`. A ring that begins here can hand out
// the ids that come back and still keeps ids rising.
std::uint64_t EndOfClaims(const std::vector<LeaseUse>& leases, std::uint64_t if_none) {
  if (leases.empty()) return if_none;
  std::uint64_t end = leases.front().lease.ids.first;
  for (const LeaseUse& use : leases) {
    if (use.claimed != 0) end = std::max(end, use.lease.ids.first + use.claimed);
  }
  return end;
}

}  // namespace

LeasedIds::LeasedIds(std::string tag, TagContext& context, Events events)
    : tag_(std::move(tag)), context_(context), events_(std::move(events)) {}

std::vector<LeaseUse> LeasedIds::InRing() const {
  return ring_ == nullptr ? std::vector<LeaseUse>() : ring_->Snapshot();
}

std::uint64_t LeasedIds::ReachedTo() const {
  std::uint64_t end = 0;
  for (const LeaseUse& use : InRing()) {
    if (use.claimed != 0) end = std::max(end, use.lease.ids.first + use.claimed);
  }
  return end;
}

bool LeasedIds::WasQuarantinedRecently() const {
  return quarantines_ != 0 && MonotonicClock::now() - quarantined_at_ < kQuarantineShown;
}

bool LeasedIds::IsSpoiltOften() const {
  constexpr std::chrono::seconds kPause(10);
  return quarantines_ > 1 && quarantined_at_ - quarantined_before_ < kPause &&
         MonotonicClock::now() - quarantined_at_ < kPause;
}

void LeasedIds::AddLive(std::map<std::string, LeaseClosure, std::less<>>& live) const {
  std::vector<LeaseUse> uses = InRing();
  uses.insert(uses.end(), tails_.begin(), tails_.end());
  for (const LeaseUse& use : uses) {
    live[use.lease.token] = {.token = use.lease.token,
                             .tag = use.lease.tag,
                             .state = LeaseState::kActive,
                             .claimed = use.claimed};
  }
}

// Rings.

Result<std::unique_ptr<TagRing>> LeasedIds::MakeRing(std::uint64_t floor) const {
  return TagRing::Create(tag_, floor, context_.handover.descriptors, shape_);
}

std::vector<LeaseUse> LeasedIds::CloseRing(shm::RingState state) {
  const bool was_active = ring_->IsActive();
  std::vector<LeaseUse> uses = ring_->Retire(state);
  const std::optional<LaneLevel> lanes = was_active ? ring_->Lanes() : std::nullopt;
  if (lanes.has_value()) context_.worker.meter().AddWaste(tag_, lanes->left);
  return uses;
}

Status LeasedIds::EnsureRing() {
  if (ring_ != nullptr) return Status::Ok();
  Result<std::unique_ptr<TagRing>> ring = MakeRing(floor_);
  if (!ring.ok()) return ring.status();
  ring_ = std::move(ring).value();
  ++context_.tags_version;
  events_.changed();
  log::Info("ring.created", {{"tag", tag_}, {"ring", ring_->ring_id()}});
  return Status::Ok();
}

void LeasedIds::Inherit(std::unique_ptr<TagRing> ring, std::uint64_t floor) {
  ring_ = std::move(ring);
  floor_ = floor;
  ++context_.tags_version;
  log::Info("ring.created", {{"tag", tag_}, {"ring", ring_->ring_id()}});
}

void LeasedIds::Publish(const Lease& lease, std::uint64_t taken, std::uint64_t mark) {
  HeldLeases& held = context_.handover.leases;
  held.RecordUsed(lease.token, lease.ids.first + taken, ring_->ring_id());
  ring_->Publish(lease, taken, mark, held.NextOf(lease.token));
}

// Publishes the rest of leases whose earlier ring is closed. Publishes used-up leases too, so that
// they are closed as usual and the floor stays the same.
void LeasedIds::PublishAgain(const std::vector<LeaseUse>& uses, const MarkOf& mark_of) {
  for (const LeaseUse& use : uses) Publish(use.lease, use.claimed, mark_of(use.lease.ids));
}

bool LeasedIds::ReplaceRing(const char* reason, const MarkOf& mark_of) {
  const std::vector<LeaseUse> before = ring_->Snapshot();
  const std::uint64_t floor = before.empty() ? ring_->floor() : before.front().lease.ids.first;
  Result<std::unique_ptr<TagRing>> ring = MakeRing(floor);
  if (!ring.ok()) return false;
  std::vector<LeaseUse> drained = CloseRing();
  if (ring_->forged()) {
    static_cast<void>(ring.value()->Retire());  // unused: its descriptors are dropped
    Quarantine(std::move(drained));
    return true;
  }
  log::Info("ring.retired", {{"tag", tag_}, {"ring", ring_->ring_id()}, {"reason", reason}});
  // The old ring is kept until the leases are recorded as the new ring's: until then the next idd
  // would look for them in the old one.
  const std::unique_ptr<TagRing> old = std::exchange(ring_, std::move(ring).value());
  log::Info("ring.created", {{"tag", tag_}, {"ring", ring_->ring_id()}});
  PublishAgain(drained, mark_of);
  ++context_.tags_version;
  CloseExhausted();
  events_.changed();
  return true;
}

bool LeasedIds::FitsRing(const Lease& lease) const {
  return ring_->row().empty() || ring_->row() == lease.tag;
}

Status LeasedIds::ChangeWorker() {
  const std::uint64_t floor = ring_->floor();
  std::vector<LeaseUse> rest = CloseRing();
  if (ring_->forged()) {
    Quarantine(std::move(rest));
    return Status::Ok();
  }
  log::Info("ring.retired", {{"tag", tag_},
                             {"ring", ring_->ring_id()},
                             {"reason", "the host has another worker id now"}});
  floor_ = floor;
  CloseAll(rest);
  ring_.reset();
  return EnsureRing();
}

// Closing leases.

void LeasedIds::CloseExhausted() {
  if (!HasOpenRing()) return;
  const std::vector<LeaseUse> exhausted = ring_->TakeExhausted();
  CloseAll(exhausted);
  if (ring_->forged()) return Quarantine();
  if (!exhausted.empty()) events_.changed();
}

void LeasedIds::CloseUnpublished(const Lease& lease, std::uint64_t given) {
  CloseAll({{.lease = lease, .claimed = given}});
  events_.changed();
}

void LeasedIds::CloseAll(const std::vector<LeaseUse>& uses) {
  std::vector<LeaseClosure> closures;
  for (const LeaseUse& use : uses) {
    closed_claimed_ += use.claimed;
    context_.worker.meter().AddWaste(tag_, use.available());
    closures.push_back(Abandoned(use));
  }
  if (!closures.empty()) context_.closer.Close(std::move(closures));
}

// The time of a snowflake tag goes on with another worker id, above all that honest claimers could
// accept: they accept no number from the frontier on.
void LeasedIds::GiveUp(const std::vector<LeaseUse>& spoilt, const char* action) {
  floor_ = ring_->floor();
  if (shape_.layout.has_value()) {
    floor_ = std::min(floor_, shape_.layout->BoundsAt(WallClock::now_ms()).frontier);
  }
  quarantined_before_ = std::exchange(quarantined_at_, MonotonicClock::now());
  ++quarantines_;
  log::Error("ring.quarantined", {{"tag", tag_},
                                  {"ring", ring_->ring_id()},
                                  {"leases", spoilt.size()},
                                  {"reason", "a client forged a cursor"},
                                  {"action", action}});
  CloseAll(spoilt);
}

// Only the segments that were published in the ring are lost. Claimers find it closed and attach
// again. `drained`: the leases that were already drained from it.
void LeasedIds::Quarantine(std::vector<LeaseUse> drained) {
  std::vector<LeaseUse> rest = CloseRing(shm::RingState::kQuarantined);
  drained.insert(drained.end(), std::make_move_iterator(rest.begin()),
                 std::make_move_iterator(rest.end()));
  // Recorded before the ring's descriptors are dropped, so that none of its leases is inherited.
  GiveUp(drained, "its segments are abandoned, a new ring is made");
  ring_.reset();
  if (Status status = EnsureRing(); !status.ok()) events_.no_ring(status);
}

// Ending.

bool LeasedIds::Drain() {
  if (!HasOpenRing()) return false;
  const std::vector<LeaseUse> drained = CloseRing(shm::RingState::kDrained);
  if (ring_->forged()) {
    for (const LeaseUse& use : drained) context_.drains.OnSpoilt(use);
    GiveUp(drained, kNothingBack);
  } else {
    floor_ = EndOfClaims(drained, ring_->floor());
    for (const LeaseUse& use : drained) {
      closed_claimed_ += use.claimed;
      context_.drains.OnClosed(use);
    }
    tails_.insert(tails_.end(), drained.begin(), drained.end());
  }
  events_.changed();
  return true;
}

// Takes a new ring, because ids only rise in a ring and the drained ring's ids come back.
bool LeasedIds::Resume() {
  if (ring_ == nullptr || !ring_->IsDrained()) return false;
  static_cast<void>(ring_->Retire());  // it has no leases
  log::Info("ring.retired",
            {{"tag", tag_}, {"ring", ring_->ring_id()}, {"reason", "the tag is resumed"}});
  ring_.reset();
  return EnsureRing().ok();
}

void LeasedIds::Retire() {
  if (ring_ == nullptr) return;
  const std::vector<LeaseUse> open = CloseRing();
  tails_.insert(tails_.end(), open.begin(), open.end());  // a drained ring has no open leases
  // Some ids that seem unclaimed may have been handed out, so none of them may be leased again.
  if (ring_->forged() && !open.empty()) GiveUp(std::exchange(tails_, {}), kNothingBack);
}

void LeasedIds::Abandon() {
  CloseAll(std::exchange(tails_, {}));
  if (ring_ == nullptr) return;
  const std::vector<LeaseUse> drained = CloseRing();
  log::Info("ring.retired", {{"tag", tag_}, {"reason", "the tag was deleted"}});
  CloseAll(drained);
}

void LeasedIds::HandBackTails() {
  while (!tails_.empty()) {
    const LeaseUse newest = std::move(tails_.back());
    tails_.pop_back();
    context_.closer.HandBack(newest);
  }
}

void LeasedIds::KeepTails() {
  for (const LeaseUse& use : std::exchange(tails_, {})) {
    const std::uint64_t next = use.lease.ids.first + use.claimed;
    context_.handover.leases.RecordUsed(use.lease.token, next, 0);
    log::Info("lease.kept", {{"tag", tag_},
                             {"first", next},
                             {"limit", use.lease.ids.limit},
                             {"reason", "the store has not taken it: the next idd publishes it"}});
  }
}

}  // namespace idd::daemon
