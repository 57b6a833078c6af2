// SPDX-License-Identifier: Apache-2.0
//
// ServedTag: its settings and its leases, from the store's answers.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "platform/logging.h"
#include "platform/random.h"
#include "refill/lane_block.h"
#include "refill/snowflake_policy.h"
#include "refill/ticket_policy.h"
#include "store/tag_row.h"
#include "tags/served_tag.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// The pause after the store has refused, for another reason than being unavailable ...
constexpr std::chrono::milliseconds kRefusalPause(1000);
// ... and while requests wait: each costs the store at most one question in this time.
constexpr std::chrono::milliseconds kAskAgainAfter(100);
// The pause after a failure while the store is up (another session holds a lock on the tag's row).
constexpr std::chrono::milliseconds kShortPause(20);
// The same for a snowflake tag, which may wait for a clock, or for a worker id.
constexpr std::chrono::milliseconds kClockPause(200);

// The table may have a name that no new tag gets, such as "*". It is served, because programs may
// use it.
void ReportName(const std::string& tag) {
  if (CheckNewTagName(tag).ok()) return;
  log::Warning(
      "tag.name_is_pattern",
      {{"tag", tag},
       {"action", "served; in a rule of idd.toml this name stands for other tags as well"}});
}

}  // namespace

// The store.

void ServedTag::LookUp() {
  if (store_.is_busy || store_.is_pausing || context_.is_stopping) return;
  store_.is_busy = true;
  store_.asked_at = MonotonicClock::now();
  store_.last_waiter = waiters_.newest();
  context_.worker.Submit<TagRecord>(
      [name = name_](Store& store, HighWaterMarks&) { return store.FindTag(name); },
      [&owner = context_.owner, name = name_, instance = instance_](Result<TagRecord> record) {
        owner.OnLookedUp(name, instance, std::move(record));
      });
}

void ServedTag::OnLookedUp(Result<TagRecord> record) {
  store_.is_busy = false;
  if (context_.is_stopping) return;
  if (!record.ok()) {
    // A tag that is not used then is removed.
    if (!OnStoreFailure(record.status()) && !waiters_.empty()) LookUp();
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
  if (!is_known()) ReportName(record.tag);
  const bool is_new_mode = !is_known() || record_->mode != record.mode;
  if (record.mode == TagMode::kTicket) {
    if (is_new_mode) policy_ = std::make_unique<TicketPolicy>();
  } else if (record.mode == TagMode::kSnowflake) {
    if (is_new_mode) policy_ = std::make_unique<SnowflakePolicy>(record.refill);
    policy_->Configure(record.refill);
  } else if (policy_ == nullptr || record_->refill.rule != record.refill.rule) {
    policy_ = MakeRefillPolicy(record.refill);
  } else if (record_->refill != record.refill) {
    policy_->Configure(record.refill);
  }
  history_.SetWindow(record.refill.outage_tolerance);
  ids_.SetShape(ShapeOf(record));
  time_.Configure(record.snowflake);
  record_ = std::move(record);
}

// If there is no memory for a new ring, clients keep the old one until a later try.
void ServedTag::EnforceSettings() {
  if (!ids_.HasOpenRing()) return;
  if (ids_.ring()->shared() && IsClaimedBySocket()) {
    static_cast<void>(ids_.ReplaceRing("the tag's ids are claimed over the socket now", MarkOf()));
  } else if (ids_.ring()->shape() != ShapeOf(*record_)) {
    // An operator has changed the order, or the tag was deleted and made again with another clock
    // or max_ahead.
    static_cast<void>(ids_.ReplaceRing("the tag's order or layout has changed", MarkOf()));
  }
  SizeLanes();
}

// Leasing.

RefillView ServedTag::View() const {
  const RingLevel level = ids_.Level();
  const MonotonicTime now = MonotonicClock::now();
  return {.now = now,
          .claimed = ids_.closed_claimed() + level.claimed,
          .available = level.available,
          .soon = mark_watch_.Expected(now),
          .open_segments = level.open_segments,
          .newest_size = level.newest_size,
          .waiting = waiters_.IdsWanted(),
          .earned = history_.Most(now),
          .time = IsSnowflake() ? time_.View() : TimeView()};
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
  if (!ids_.HasOpenRing() || !ids_.ring()->CanPublish()) return 0;
  if (IsSnowflake() && ids_.IsSpoiltOften()) return 0;
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
  ClearMarkThatIsDue();
  LeaseOrder order{.tag = name_,
                   .counter = IsSnowflake() ? counter_ : name_,
                   .instance = instance_,
                   .token = RandomToken(),
                   .wanted = wanted,
                   .step = record_->refill.step,
                   .available = View().available,
                   .floor = ids_.ring()->floor(),
                   .has_leased = counts_.leases != 0,
                   .data_set = store_.data_set};
  context_.handover.leases.RecordAsked(order.token, order.counter.empty() ? name_ : order.counter);
  return order;
}

bool ServedTag::OnOutcome(Result<LeaseOutcome> outcome) {
  // A drain of the whole host may not have reached this tag yet.
  if (context_.drains.IsDrained(name_) && !context_.is_stopping) {
    Drain();
    store_.hands_back = true;
  }
  store_.is_busy = false;
  const bool is_drained = std::exchange(store_.hands_back, false);
  if (!outcome.ok() || outcome.value().counter.empty()) store_.has_taken_worker = false;
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
  // A window begins where the clock is, beyond the end of the last one.
  if (lease.lifted_from.has_value() && !IsSnowflake()) {
    log::Error("store.went_backwards", {{"tag", name_},
                                        {"store_max_id", *lease.lifted_from},
                                        {"high_water_mark", lease.ids.first},
                                        {"action", "lifted the store; the ids between are a gap"}});
  }
  log::Debug("lease.granted", {{"tag", name_},
                               {"token", lease.token},
                               {"base", lease.ids.first},
                               {"limit", lease.ids.limit}});
  EnforceSettings();  // another host may have changed them
  FollowTime();
  ids_.CloseExhausted();  // a lease that comes into a forged ring is lost with it
  if (Status status = ids_.EnsureRing(); !status.ok()) {
    context_.closer.HandBack({.lease = lease, .claimed = 0});
    waiters_.FailAll(status);
    return;
  }
  if (!ids_.FitsRing(lease)) {
    if (Status status = ids_.ChangeWorker(); !status.ok()) {
      context_.closer.HandBack({.lease = lease, .claimed = 0});
      waiters_.FailAll(status);
      return;
    }
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
  // The queue gets its ids before claimers can reach the segment: first come, first served. Those
  // of a snowflake tag are claimed from the ring, which knows the time.
  const std::uint64_t served = IsSnowflake() ? 0 : GiveToWaiters(lease, waiters_.newest());
  const RefillView view = NoteView(served);
  store_.leased_to = lease.ids.limit;
  policy_->OnLeased(view, lease.ids.size(), view.now - store_.asked_at);
  SizeLanes();
  ids_.Publish(lease, served, policy_->MarkOf(lease.ids, view));
  if (IsSnowflake()) time_.Use();
  context_.meter.refills.Increment();
  PublishStats();
  Serve();
  WatchMark();
}

void ServedTag::SizeLanes() {
  const std::uint32_t lanes = ids_.ring() == nullptr ? 0 : ids_.ring()->shape().lane_count;
  if (lanes == 0) return;
  ids_.ring()->SetLaneBlock(LaneBlockOf({.configured = record_->lane_block,
                                         .lanes = lanes,
                                         .max_prefetch = record_->refill.max_prefetch,
                                         .rate_per_s = policy_->RatePerSecond()}));
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
  if (!outcome.counter.empty()) {
    // It may be the one that this host had, if another host took that in between.
    if (outcome.counter != counter_) {
      log::Info("worker.taken", {{"tag", name_}, {"counter", outcome.counter}});
    }
    counter_ = outcome.counter;
    // Hosts that are short of worker ids take them from each other until one of them has leased. If
    // each waited for its next turn in between, none might ever lease.
    store_.has_taken_worker = !store_.has_taken_worker;
    return store_.has_taken_worker ? context_.scheduler.GoOn(name_) : MaybeLease();
  }
  store_.last_error = "nothing is leased yet: " + outcome.reason;
  RetryAt(std::max(outcome.not_before,
                   MonotonicClock::now() + (IsSnowflake() ? kShortPause : milliseconds(0))));
}

bool ServedTag::OnStoreFailure(const Status& status) {
  switch (status.code()) {
    case Code::kNoSuchTag:
      store_.last_error = status.message();
      waiters_.FailUpTo(store_.last_waiter, status);
      return false;
    case Code::kUnavailable:
    case Code::kSystem:
    case Code::kIncompatible:
    case Code::kTimeout:
      context_.meter.lease_failures.Increment();
      // Another try may succeed in time, so the waiters wait until their deadlines.
      store_.last_error = status.message();
      FailTicketsIfDown();
      RetryAt(std::max(context_.health.next_try,
                       MonotonicClock::now() + (IsSnowflake() ? kClockPause : kShortPause)));
      return true;
    default:
      Refuse(status);
      return true;
  }
}

// Fails the requests that came before the store was asked.
void ServedTag::Refuse(const Status& status) {
  context_.meter.leases_refused.Increment();
  if (store_.last_error != status.message()) {
    log::Error("lease.refused", {{"tag", name_}, {"error", status.message()}});
  }
  store_.last_error = status.message();
  store_.refusal = status;
  waiters_.FailUpTo(store_.last_waiter, status);
  RetryAt(MonotonicClock::now() + kRefusalPause);
  AskAgain();
}

// What the store has refused it may grant now, as another host, an operator or this host's own
// hand-back has changed the tag. So no request gets an answer from before it came.
void ServedTag::AskAgain() {
  if (!waiters_.empty() && !store_.refusal.ok()) RetryAt(store_.asked_at + kAskAgainAfter);
}

void ServedTag::EndPause() {
  store_.refusal = Status::Ok();
  store_.is_pausing = false;
  retry_timer_.Cancel();
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

}  // namespace idd::daemon
