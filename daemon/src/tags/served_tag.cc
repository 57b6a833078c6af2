// SPDX-License-Identifier: Apache-2.0
#include "tags/served_tag.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "platform/logging.h"
#include "platform/random.h"

namespace idd::daemon {
namespace {

// After this many polls without a claim, only every kIdlePollEvery-th poll looks at a tag.
constexpr unsigned kIdlePolls = 10;
constexpr unsigned kIdlePollEvery = 4;

}  // namespace

ServedTag::ServedTag(std::string name, TagContext& context)
    : name_(std::move(name)),
      instance_(RandomId()),
      context_(context),
      ids_(name_, context,
           {.changed = [this] { PublishStats(); },
            .no_ring = [this](const Status& status) { waiters_.FailAll(status); }}),
      time_(context.loop, ids_, [this] { Serve(); }),
      mark_timer_(context.loop),
      deadline_timer_(context.loop),
      retry_timer_(context.loop) {}

// Requests.

void ServedTag::Attach(RequestContext request, AttachDone done) {
  waiters_.PushAttach(request, std::move(done));
  Serve();
}

void ServedTag::Claim(RequestContext request, std::uint64_t ring_id, std::uint64_t count,
                      ClaimDone done) {
  // If claims go over the socket, only those that find the ring dry are counted.
  const bool by_socket = request.by_socket || (is_known() && IsClaimedBySocket());
  const bool is_dry = !IsTicket() && ids_.IsDry();  // a ticket always waits for the store
  if (!by_socket || is_dry) ++counts_.fallbacks;
  if (is_dry) done = MeterDryClaim(context_.meter, std::move(done));
  waiters_.PushClaim(request, ring_id, count, std::move(done));
  Serve();
  waiters_.EndTurn();
}

void ServedTag::OnRefillMark() {
  idle_polls_ = 0;
  FollowTime();
  if (ids_.ring() != nullptr) ObserveRing();
  ids_.CloseExhausted();
  MaybeLease();
  WatchMark();
}

// If no lease is due after all, or none can be taken now, the claim that takes the mark asks again.
// So does the publication of a lease that waits for its turn, or for the store.
void ServedTag::WatchMark() {
  mark_timer_.Cancel();
  // Ids of these come with the time, or by request.
  if (context_.is_stopping || !is_known() || IsSnowflake() || IsTicket()) return;
  if (!ids_.HasOpenRing()) return;
  const MarkWatch::Plan plan =
      mark_watch_.Look(MonotonicClock::now(), ids_.Claimed(), ids_.ring()->ToNextMark());
  if (plan.next_look.has_value()) {
    mark_timer_.At(*plan.next_look, [this] { WatchMark(); });
  }
  if (!plan.is_due || AwaitsStore()) return;
  ObserveRing();
  ids_.CloseExhausted();
  MaybeLease();
}

// The lease that is under way is what the claim that takes the mark would ask for.
void ServedTag::ClearMarkThatIsDue() {
  const std::optional<std::uint64_t> to_mark = ids_.ring()->ToNextMark();
  const bool is_due =
      to_mark.has_value() && *to_mark <= mark_watch_.Expected(MonotonicClock::now());
  if (is_due) ids_.ring()->ClearNextMark();
}

Result<ObserveGrant> ServedTag::Observe() const {
  if (ids_.ring() == nullptr || !is_known() || IsClaimedBySocket()) return ObserveGrant();
  Result<ScopedFd> cursors_fd = ids_.ring()->ReadOnlyCursors();
  if (!cursors_fd.ok()) return cursors_fd.status();
  return ObserveGrant{.ring_id = ids_.ring()->ring_id(),
                      .table_fd = ids_.ring()->table_fd(),
                      .cursors_fd = std::move(cursors_fd).value(),
                      .cursors_bytes = ids_.ring()->cursors_bytes()};
}

void ServedTag::Serve() {
  if (context_.drains.IsDrained(name_)) return Drain();
  const bool needs_ring = is_known() && !ids_.HasOpenRing();
  if (needs_ring && !context_.new_rings.MayMake(name_)) return ArmDeadline();
  static_cast<void>(ids_.Resume());  // without memory for a ring, the next try fails as well
  if (!is_known()) {
    ArmDeadline();
    AskAgain();
    LookUp();
    return;
  }
  if (needs_ring) {
    if (Status status = ids_.EnsureRing(); !status.ok()) {
      waiters_.FailAll(status);
      return;
    }
    context_.new_rings.OnMade();
  }
  SizeLanes();
  // The ring is checked before it serves any request: a forged ring must give out neither ids nor
  // its memory.
  FollowTime();
  ids_.CloseExhausted();
  if (ids_.ring() == nullptr)
    return;  // quarantined, no memory for another: every waiter has failed
  ServeAttaches();
  ServeClaims([this](std::uint64_t count) { return TakeFromRing(count); }, waiters_.newest());
  ids_.CloseExhausted();  // these claims may have used segments up, or found the ring forged
  FailTicketsIfDown();
  ExpireWaiters();
  if (!waiters_.empty() && ids_.ring() != nullptr) ObserveRing();
  AskAgain();
  MaybeLease();
}

shm::IdRange ServedTag::TakeFromRing(std::uint64_t count) {
  return IsSnowflake() ? time_.Claim(count) : ids_.ring()->Claim(count);
}

void ServedTag::ServeClaims(const WaitQueue::Take& take, std::uint64_t last,
                            const std::function<void()>& before_send) {
  const WaitQueue::Take counted = [this, &take](std::uint64_t count) {
    const shm::IdRange ids = take(count);
    counts_.by_socket += ids.size();
    return ids;
  };
  while (true) {
    WaitQueue::Answers answers = waiters_.ServeOldest(counted, last);
    if (answers.empty()) return;
    if (before_send) before_send();
    answers.Send(AttachedRing());
  }
}

void ServedTag::ServeAttaches() {
  AttachGrant grant;
  TagRing& ring = *ids_.ring();
  if (!IsClaimedBySocket()) {
    grant = {.ring_id = ring.ring_id(),
             .table_fd = ring.table_fd(),
             .cursors_fd = ring.cursors_fd(),
             .cursors_bytes = ring.cursors_bytes()};
  }
  if (record_.has_value()) grant.mode = TagModeName(record_->mode);
  if (waiters_.AnswerAttaches(grant) && grant.ring_id != 0) ring.MarkShared();
}

void ServedTag::ExpireWaiters() {
  waiters_.FailExpired([this] { return NoIdsBeforeDeadline(WhyItWaits()); });
  ArmDeadline();
}

void ServedTag::ArmDeadline() {
  if (waiters_.empty()) {
    deadline_timer_.Cancel();
    return;
  }
  deadline_timer_.At(waiters_.FirstDeadline(), [this] {
    ExpireWaiters();
    context_.owner.OnMayBeUnused(name_);
  });
}

WaitFacts ServedTag::WhyItWaits() const {
  WaitFacts facts{.tag = name_, .health = context_.health, .last_error = store_.last_error};
  if (store_.is_busy) facts.asked_at = store_.asked_at;
  if (ids_.WasQuarantinedRecently()) facts.quarantined_at = ids_.quarantined_at();
  if (IsSnowflake()) facts.clock = time_.Reason();
  facts.awaits_ring = context_.new_rings.Awaits(name_);
  return facts;
}

// Operators.

void ServedTag::OnChanged(const TagRecord& record) {
  if (is_known()) {
    Configure(record);
    EnforceSettings();
  }
  OnCreated();
}

// The pause before the next lease or look-up is over.
void ServedTag::OnCreated() {
  store_.last_error.clear();
  EndPause();
  if (is_known()) {
    MaybeLease();
  } else if (!waiters_.empty()) {
    LookUp();
  }
}

void ServedTag::OnDeleted() {
  waiters_.FailAll({Code::kNoSuchTag, "tag '" + name_ + "' was deleted"});
  context_.drains.Forget(name_);
  ids_.Abandon();
}

bool ServedTag::Withdraw(std::uint64_t ring_id) {
  if (!ids_.HasOpenRing() || ids_.ring()->ring_id() != ring_id) return true;
  if (!ids_.ReplaceRing("a user who has it may not use it any more", MarkOf())) return false;
  MaybeLease();
  return true;
}

void ServedTag::Drain() {
  waiters_.FailAll(context_.drains.Refusal(name_));
  ArmDeadline();
  if (!ids_.Drain()) return;
  EndPause();  // the ids that go back can be leased once the tag is resumed
  store_.hands_back = store_.is_busy;
  HandBackTails();
}

// A restart, and a stop.

void ServedTag::Inherit(const TagRecord& record) {
  Configure(record);
  store_.data_set = kInheritedDataSet;
}

void ServedTag::Inherit(const TagRecord& record, std::unique_ptr<TagRing> ring,
                        const std::vector<LeaseUse>& leases) {
  Inherit(record);
  if (IsTicket()) {
    ids_.Inherit(std::move(ring), 0);
    for (const LeaseUse& use : leases) ids_.CloseUnpublished(use.lease, use.claimed);
    return;
  }
  ids_.Inherit(std::move(ring), leases.front().lease.ids.first);
  for (const LeaseUse& use : leases) {
    ids_.Publish(use.lease, use.claimed, MarkOf()(use.lease.ids));
    counts_.inherited += use.claimed;
    ++counts_.leases;
    log::Info("lease.inherited", {{"tag", name_},
                                  {"token", use.lease.token},
                                  {"first", use.lease.ids.first + use.claimed},
                                  {"limit", use.lease.ids.limit}});
  }
  store_.leased_to = leases.back().lease.ids.limit;
  SizeLanes();
  if (IsSnowflake()) {
    counter_ = leases.back().lease.tag;
    time_.Inherit(leases);
    time_.Use();
  }
  PublishStats();
}

void ServedTag::OnForged(const std::vector<std::string>& tokens) {
  const std::vector<LeaseUse> uses = ids_.InRing();
  const bool is_spoilt = std::any_of(uses.begin(), uses.end(), [&tokens](const LeaseUse& use) {
    return std::find(tokens.begin(), tokens.end(), use.lease.token) != tokens.end();
  });
  if (is_spoilt) ids_.Quarantine();
}

bool ServedTag::Shutdown() {
  mark_timer_.Cancel();
  deadline_timer_.Cancel();
  retry_timer_.Cancel();
  time_.Stop();
  waiters_.FailAll(Stopping());
  if (ids_.ring() == nullptr) return false;
  ids_.Retire();
  if (context_.health.up || !context_.handover.descriptors.keeps()) {
    HandBackTails();
  } else {
    ids_.KeepTails();
  }
  return ids_.ring()->shared();
}

// Looking.

void ServedTag::Poll(MonotonicTime now) {
  if (ids_.ring() == nullptr) return;
  ids_.ring()->ClearOldEnds();
  if (!ids_.HasOpenRing()) {
    usage_.Observe(now, ids_.closed_claimed());
    return;
  }
  if (IsSnowflake()) return PollTime(now);
  // A waiter may wait for something that was unknown when it came (LeaseCloser::knows_all()).
  const bool is_quiet = waiters_.empty();
  if (is_quiet && idle_polls_ >= kIdlePolls && ++idle_polls_ % kIdlePollEvery != 0) return;
  EnforceSettings();                   // if that failed when they changed
  if (ids_.ring() == nullptr) return;  // quarantined, and no memory for another
  // Nothing has happened, and no shown value is fading. Many tags are in this state.
  const std::uint64_t claimed = ids_.Claimed();
  if (is_quiet && usage_.IsIdleAt(claimed) && !ids_.ring()->forged()) {
    usage_.SkipTo(now);
    history_.Observe(now, now, claimed);
    if (idle_polls_ < kIdlePolls) ++idle_polls_;
    PublishStats();
    return;
  }
  idle_polls_ = 0;
  ids_.CloseExhausted();
  if (ids_.ring() == nullptr) return;  // quarantined, and no memory for another
  ObserveRing();
  SizeLanes();
  MaybeLease();
  WatchMark();
  usage_.Observe(now, claimed);
  PublishStats();
  ForecastExhaustion(now);
}

// Moves a snowflake ring with the time. If its cursors are too far ahead, other ids are leased:
// what lies below the cursor may not be handed out, and the rest would have to wait.
void ServedTag::FollowTime(bool is_use) {
  if (!IsSnowflake() || !ids_.HasOpenRing()) return;
  if (!time_.IsPlausible()) ids_.Quarantine();
  if (ids_.ring() == nullptr) return;
  if (is_use) {
    time_.Use();
  } else {
    time_.Poll();
  }
}

// A snowflake tag has no rate: what its cursors pass over was not all claimed.
void ServedTag::PollTime(MonotonicTime now) {
  EnforceSettings();
  if (ids_.ring() == nullptr) return;  // quarantined, and no memory for another
  FollowTime(false);
  ids_.CloseExhausted();
  if (ids_.ring() == nullptr) return;
  clock_error_ = time_.LookAhead();
  MaybeLease();
  usage_.SkipTo(now);
  PublishStats();
  exhaustion_.UpdateDays(name_, time_.DaysLeft(), now);
}

// Forecasts from the ids that are not leased yet and the unclaimed ids in the ring.
void ServedTag::ForecastExhaustion(MonotonicTime now) {
  std::optional<double> left;
  if (store_.leased_to != 0) {
    left = static_cast<double>(record_->max_id - std::min(record_->max_id, store_.leased_to)) +
           static_cast<double>(ids_.Level().available);
  }
  exhaustion_.Update(name_, left, usage_, now);
}

// Views.

TagFacts ServedTag::Facts() const {
  return {.tag = name_,
          .record = *record_,
          .history = history_,
          .last_error = store_.last_error.empty() ? clock_error_ : store_.last_error,
          .is_drained = context_.drains.IsDrained(name_),
          .is_refused = !store_.refusal.ok(),
          .has_ring = ids_.ring() != nullptr,
          .was_quarantined_recently = ids_.WasQuarantinedRecently(),
          .quarantined_at = ids_.quarantined_at(),
          .quarantines = ids_.quarantines(),
          .closed_claimed = ids_.closed_claimed(),
          .claimed_by_ring = counts_.by_ring,
          .claimed_by_socket = counts_.by_socket,
          .leases_taken = counts_.leases,
          .fallbacks = counts_.fallbacks,
          .rate_per_s = usage_.rate_per_s(),
          .planning_rate_per_s = policy_->RatePerSecond(),
          .exhausted_in_days = exhaustion_.in_days()};
}

void ServedTag::PublishStats() {
  if (ids_.ring() != nullptr && is_known()) ids_.ring()->PublishStats(NumbersOf(Facts()));
}

TagSnapshot ServedTag::Snapshot() const {
  TagFacts facts = Facts();
  facts.lanes = ids_.Lanes();
  return SnapshotOf(facts, ids_.InRing());
}

TagSample ServedTag::Sample() {
  const RingLevel level = ids_.Level();
  const std::uint64_t claimed = ids_.closed_claimed() + level.claimed;
  const std::uint64_t others = counts_.inherited + counts_.by_socket;
  // A forged cursor may seem to go back. The counter must not, or ids would count twice.
  counts_.by_ring = std::max(counts_.by_ring, claimed - std::min(claimed, others));
  TagFacts facts = Facts();
  facts.lanes = ids_.Lanes();
  return SampleOf(facts, level.available);
}

bool ServedTag::IsUnobservable() const {
  return ids_.ring() == nullptr || IsClaimedBySocket() || !Facts().last_error.empty();
}

}  // namespace idd::daemon
