// SPDX-License-Identifier: Apache-2.0
#include "tags/served_tag.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "platform/logging.h"
#include "platform/random.h"
#include "refill/ticket_policy.h"

namespace idd::daemon {
namespace {

// The pause after the store has refused, for another reason than being unavailable.
constexpr std::chrono::milliseconds kRefusalPause(1000);
// The pause after a failure while the store is up (another session holds a lock on the tag's row).
constexpr std::chrono::milliseconds kShortPause(20);
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
  if (ids_.ring() != nullptr) ObserveRing();
  ids_.CloseExhausted();
  MaybeLease();
}

Result<ObserveGrant> ServedTag::Observe() const {
  if (ids_.ring() == nullptr || !is_known() || IsClaimedBySocket()) return ObserveGrant();
  Result<ScopedFd> cursors_fd = ids_.ring()->ReadOnlyCursors();
  if (!cursors_fd.ok()) return cursors_fd.status();
  return ObserveGrant{.ring_id = ids_.ring()->ring_id(),
                      .table_fd = ids_.ring()->table_fd(),
                      .cursors_fd = std::move(cursors_fd).value()};
}

void ServedTag::Serve() {
  if (context_.drains.IsDrained(name_)) return waiters_.FailAll(context_.drains.Refusal(name_));
  if (!is_known()) {
    if (!store_.refusal.ok()) return waiters_.FailAll(store_.refusal);
    ArmDeadline();
    LookUp();
    return;
  }
  if (Status status = ids_.EnsureRing(); !status.ok()) {
    waiters_.FailAll(status);
    return;
  }
  // The ring is checked before it serves any request: a forged ring must give out neither ids nor
  // its memory.
  ids_.CloseExhausted();
  if (ids_.ring() == nullptr)
    return;  // quarantined, no memory for another: every waiter has failed
  ServeAttaches();
  ServeClaims([this](std::uint64_t count) { return ids_.ring()->Claim(count); }, waiters_.newest());
  ids_.CloseExhausted();  // these claims may have used segments up, or found the ring forged
  // The ring is dry and the store has just said no: the same answer would come again.
  if (!store_.refusal.ok()) waiters_.FailAll(store_.refusal);
  FailTicketsIfDown();
  ExpireWaiters();
  if (!waiters_.empty() && ids_.ring() != nullptr) ObserveRing();
  MaybeLease();
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
    grant = {
        .ring_id = ring.ring_id(), .table_fd = ring.table_fd(), .cursors_fd = ring.cursors_fd()};
  }
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
  return facts;
}

// The store.

void ServedTag::LookUp() {
  if (store_.is_busy || store_.is_pausing || context_.is_stopping) return;
  store_.is_busy = true;
  store_.asked_at = MonotonicClock::now();
  context_.worker.Submit<TagRecord>(
      [name = name_](Store& store, HighWaterMarks&) { return store.FindTag(name); },
      [&owner = context_.owner, name = name_, instance = instance_](Result<TagRecord> record) {
        owner.OnLookedUp(name, instance, std::move(record));
      });
}

void ServedTag::OnLookedUp(Result<TagRecord> record) {
  store_.is_busy = false;
  if (context_.is_stopping) return;
  if (record.ok() && record.value().mode == TagMode::kSnowflake) {
    record =
        Status(Code::kInvalid, "tag '" + name_ + "': mode " + TagModeName(record.value().mode) +
                                   " is not available in this version");
  }
  if (!record.ok()) {
    static_cast<void>(OnStoreFailure(record.status()));  // an unused tag is then removed
    return;
  }
  Configure(std::move(record).value());
  store_.last_error.clear();
  Serve();
}

void ServedTag::Warm() {
  if (!is_known()) {
    LookUp();
  } else if (ids_.ring() != nullptr && ids_.IsDry()) {  // else it has ids, or can have no ring now
    MaybeLease();
  }
}

void ServedTag::Configure(TagRecord record) {
  if (record.mode == TagMode::kTicket) {
    if (!IsTicket()) policy_ = std::make_unique<TicketPolicy>();
  } else if (policy_ == nullptr || record_->refill.rule != record.refill.rule) {
    policy_ = MakeRefillPolicy(record.refill);
  } else if (record_->refill != record.refill) {
    policy_->Configure(record.refill);
  }
  history_.SetWindow(record.refill.outage_tolerance);
  record_ = std::move(record);
}

void ServedTag::EnforceAccess() {
  if (!ids_.HasOpenRing() || !ids_.ring()->shared() || !IsClaimedBySocket()) return;
  // If there is no memory for a new ring, clients keep the old one until a later try.
  static_cast<void>(ids_.ReplaceRing("the tag's ids are claimed over the socket now", MarkOf()));
}

// Leasing.

RefillView ServedTag::View() const {
  const RingLevel level = ids_.Level();
  const MonotonicTime now = MonotonicClock::now();
  return {.now = now,
          .claimed = ids_.closed_claimed() + level.claimed,
          .available = level.available,
          .open_segments = level.open_segments,
          .newest_size = level.newest_size,
          .waiting = waiters_.IdsWanted(),
          .earned = history_.Most(now)};
}

RefillView ServedTag::NoteView(std::uint64_t served) {
  const MonotonicTime before = MonotonicClock::now();
  RefillView view = View();
  view.claimed += served;
  history_.Observe(before, view.now, view.claimed);
  view.earned = history_.Most(view.now);
  return view;
}

LeasedIds::MarkOf ServedTag::MarkOf() const {
  return [this](shm::IdRange ids) { return policy_->MarkOf(ids, View()); };
}

std::uint64_t ServedTag::IdsToLease() const {
  if (context_.is_stopping || store_.is_busy || store_.is_pausing) return 0;
  if (!context_.closer.knows_all() || context_.closer.HasUnreturned(name_)) return 0;
  if (context_.drains.IsDrained(name_) || context_.drains.IsReturning(name_)) return 0;
  if (ids_.ring() == nullptr || !ids_.ring()->CanPublish()) return 0;
  return policy_->Wanted(View());
}

void ServedTag::MaybeLease() {
  if (IdsToLease() != 0) context_.scheduler.Ask(name_);
}

std::optional<LeaseOrder> ServedTag::TakeTurn() {
  const std::uint64_t wanted = IdsToLease();
  if (wanted == 0) return std::nullopt;
  store_.is_busy = true;
  store_.asked_at = MonotonicClock::now();
  store_.last_waiter = waiters_.newest();
  LeaseOrder order{.tag = name_,
                   .instance = instance_,
                   .token = RandomToken(),
                   .wanted = wanted,
                   .step = record_->refill.step,
                   .available = View().available,
                   .floor = ids_.ring()->floor(),
                   .has_leased = counts_.leases != 0,
                   .data_set = store_.data_set};
  context_.handover.leases.RecordAsked(order.token, order.tag);
  return order;
}

bool ServedTag::OnOutcome(Result<LeaseOutcome> outcome) {
  store_.is_busy = false;
  const bool is_drained = std::exchange(store_.hands_back, false);
  if (context_.is_stopping || is_drained) {
    if (outcome.ok() && outcome.value().lease.has_value()) {
      const Lease& lease = *outcome.value().lease;
      ids_.AddTail(lease);
      if (is_drained) context_.drains.OnClosed({.lease = lease, .claimed = 0});
    }
    HandBackTails();
    return true;
  }
  if (!outcome.ok()) return OnStoreFailure(outcome.status());
  if (outcome.value().lease.has_value()) {
    OnLeased(std::move(outcome).value());
  } else {
    OnNotLeased(outcome.value());
  }
  return true;
}

void ServedTag::OnLeased(LeaseOutcome outcome) {
  const Lease& lease = *outcome.lease;
  Configure(std::move(outcome.record));
  store_.data_set = outcome.data_set;
  store_.last_error.clear();
  ++counts_.leases;
  context_.meter.leases_taken.Increment();
  if (lease.lifted_from.has_value()) {
    log::Error("store.went_backwards", {{"tag", name_},
                                        {"store_max_id", *lease.lifted_from},
                                        {"high_water_mark", lease.ids.first},
                                        {"action", "lifted the store; the ids between are a gap"}});
  }
  log::Debug("lease.granted", {{"tag", name_},
                               {"token", lease.token},
                               {"base", lease.ids.first},
                               {"limit", lease.ids.limit}});
  EnforceAccess();        // another host may have changed the access
  ids_.CloseExhausted();  // a lease that comes into a forged ring is lost with it
  if (Status status = ids_.EnsureRing(); !status.ok()) {
    context_.closer.HandBack({.lease = lease, .claimed = 0});
    waiters_.FailAll(status);
    return;
  }
  PublishLease(lease);
}

void ServedTag::PublishLease(const Lease& lease) {
  if (lease.ids.first < ids_.ring()->floor()) {
    log::Error("lease.out_of_order", {{"tag", name_},
                                      {"base", lease.ids.first},
                                      {"floor", ids_.ring()->floor()},
                                      {"action", "abandoned"}});
    context_.worker.meter().AddWaste(name_, lease.ids.size());
    context_.closer.Close({Abandoned({.lease = lease, .claimed = 0})});
    return RetryAt(MonotonicClock::now() + kRefusalPause);
  }
  if (IsTicket()) return GiveTickets(lease);
  // The queue gets its ids before claimers can reach the segment: first come, first served.
  const std::uint64_t served = GiveToWaiters(lease, waiters_.newest());
  const RefillView view = NoteView(served);
  store_.leased_to = lease.ids.limit;
  policy_->OnLeased(view, lease.ids.size(), view.now - store_.asked_at);
  ids_.Publish(lease, served, policy_->MarkOf(lease.ids, view));
  context_.meter.refills.Increment();
  PublishStats();
  Serve();
}

// Gives ids of the lease to the claims up to number `last`. Returns how many.
std::uint64_t ServedTag::GiveToWaiters(const Lease& lease, std::uint64_t last) {
  std::uint64_t next = lease.ids.first;
  ServeClaims(
      [&next, &lease](std::uint64_t count) {
        const std::uint64_t first = next;
        next += std::min({count, kMaxForOneWaiter, lease.ids.limit - next});
        return shm::IdRange{first, next};
      },
      last, [&] { context_.handover.leases.RecordUsed(lease.token, next, 0); });
  return next - lease.ids.first;
}

// A claim that came after this lease was asked for gets no id of it: by then, another host may have
// given out a greater one. For the same reason, ids for claims that no longer wait are given up.
void ServedTag::GiveTickets(const Lease& lease) {
  const std::uint64_t given = GiveToWaiters(lease, store_.last_waiter);
  static_cast<void>(NoteView(given));
  store_.leased_to = lease.ids.limit;
  ids_.CloseUnpublished(lease, given);
  PublishStats();
  Serve();
}

void ServedTag::FailTicketsIfDown() {
  const StoreHealth& health = context_.health;
  if (!IsTicket() || health.up || health.since == MonotonicTime{} || waiters_.empty()) return;
  waiters_.FailAll(NoTicketWithoutStore(name_, health));
}

// The ring stays as it is.
void ServedTag::OnNotLeased(const LeaseOutcome& outcome) {
  if (!outcome.missing.ok()) {
    Refuse({outcome.missing.code(),
            outcome.missing.message() +
                ", which is not the database that the ring was leased from; restore that "
                "database or create the tag"});
    return;
  }
  store_.last_error = "nothing is leased yet: " + outcome.reason;
  RetryAt(outcome.not_before);
}

bool ServedTag::OnStoreFailure(const Status& status) {
  switch (status.code()) {
    case Code::kNoSuchTag:
      store_.last_error = status.message();
      waiters_.FailAll(status);
      return false;
    case Code::kUnavailable:
    case Code::kSystem:
    case Code::kIncompatible:
      context_.meter.lease_failures.Increment();
      // The store failed, but may come back in time, so the waiters wait until their deadlines.
      store_.last_error = status.message();
      FailTicketsIfDown();
      RetryAt(std::max(context_.health.next_try, MonotonicClock::now() + kShortPause));
      return true;
    default:
      Refuse(status);
      return true;
  }
}

// Fails the waiters, because another try would get the same answer.
void ServedTag::Refuse(const Status& status) {
  context_.meter.leases_refused.Increment();
  if (store_.last_error != status.message()) {
    log::Error("lease.refused", {{"tag", name_}, {"error", status.message()}});
  }
  store_.last_error = status.message();
  store_.refusal = status;
  waiters_.FailAll(status);
  RetryAt(MonotonicClock::now() + kRefusalPause);
}

void ServedTag::RetryAt(MonotonicTime when) {
  if (context_.is_stopping) return;
  store_.is_pausing = true;
  retry_timer_.At(when, [this] {
    store_.is_pausing = false;
    store_.refusal = Status::Ok();
    if (is_known()) {
      MaybeLease();
    } else if (!waiters_.empty()) {
      LookUp();
    }
    context_.owner.OnMayBeUnused(name_);
  });
}

// A lease under way is the newest, so the tails wait for it.
void ServedTag::HandBackTails() {
  if (!store_.is_busy) ids_.HandBackTails();
}

// Operators.

void ServedTag::OnChanged(const TagRecord& record) {
  if (is_known()) Configure(record);
  store_.last_error.clear();
  store_.refusal = Status::Ok();
  store_.is_pausing = false;
  retry_timer_.Cancel();
  if (!is_known()) {
    // The pause before the next look-up is over.
    if (!waiters_.empty()) LookUp();
    return;
  }
  EnforceAccess();
  MaybeLease();
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
  deadline_timer_.Cancel();
  retry_timer_.Cancel();
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
  // A waiter may wait for something that was unknown when it came (LeaseCloser::knows_all()).
  const bool is_quiet = waiters_.empty();
  if (is_quiet && idle_polls_ >= kIdlePolls && ++idle_polls_ % kIdlePollEvery != 0) return;
  EnforceAccess();                     // if that failed when the access changed
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
  MaybeLease();
  usage_.Observe(now, claimed);
  PublishStats();
  ForecastExhaustion(now);
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
          .last_error = store_.last_error,
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

TagSnapshot ServedTag::Snapshot() const { return SnapshotOf(Facts(), ids_.InRing()); }

TagSample ServedTag::Sample() {
  const RingLevel level = ids_.Level();
  const std::uint64_t claimed = ids_.closed_claimed() + level.claimed;
  const std::uint64_t others = counts_.inherited + counts_.by_socket;
  // A forged cursor may seem to go back. The counter must not, or ids would count twice.
  counts_.by_ring = std::max(counts_.by_ring, claimed - std::min(claimed, others));
  return SampleOf(Facts(), level.available);
}

bool ServedTag::IsUnobservable() const {
  return ids_.ring() == nullptr || IsClaimedBySocket() || !store_.last_error.empty();
}

}  // namespace idd::daemon
