// SPDX-License-Identifier: Apache-2.0
//
// Requests and refills. How rings begin and end is in tag_service_rings.cc.
#include "tags/tag_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "idd/base/check.h"
#include "platform/logging.h"
#include "platform/random.h"
#include "tags/served_tag.h"

namespace idd::daemon {
namespace {

// A refusal that is not the store's absence is asked again no sooner than this.
constexpr std::chrono::milliseconds kRefusalPause(1000);
// What failed while the store is up (somebody held a lock on the tag's row) is asked again then.
constexpr std::chrono::milliseconds kShortPause(20);
// A tag of which nothing was claimed in so many polls is looked at in every fourth one only.
constexpr unsigned kIdlePolls = 10;
constexpr unsigned kIdlePollEvery = 4;
constexpr double kExhaustionWarning = 90;  // days
constexpr std::chrono::hours kWarningPause(24);
// Tags that are leased for at once before anybody asks.
constexpr std::size_t kWarmedAtOnce = 4;
// A store that takes longer than this is what a waiter is told of.
constexpr std::chrono::milliseconds kSlowStore(100);

std::string SecondsSince(MonotonicTime since) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - since);
  return std::to_string(seconds.count()) + " s";
}

}  // namespace

TagService::TagService(EventLoop& loop, LeaseWorker& worker, Handover handover,
                       std::uint32_t leases_per_s)
    : loop_(loop),
      worker_(worker),
      handover_(handover),
      scheduler_(
          loop, worker, leases_per_s, [this](const std::string& name) { return OrderOf(name); },
          [this](const LeaseOrder& order, Result<LeaseOutcome> outcome) {
            OnOutcome(order, std::move(outcome));
          }),
      closer_(
          worker, handover.leases, [this] { FinishShutdownIfIdle(); },
          [this](const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
            AfterHandBack(use, outcome);
          }),
      takeover_timer_(loop),
      overtaken_timer_(loop) {}

// A stop that was given up leaves tails that wait for a lease under way.
TagService::~TagService() {
  for (const auto& [name, tag] : tags_) KeepForNext(*tag, handover_.leases);
}

// Requests.

void TagService::Attach(const std::string& tag, RequestContext context, AttachDone done) {
  if (stopping_) return done(Stopping());
  if (drains_.IsDrained(tag)) return done(drains_.Refusal(tag));
  Tag& entry = GetTag(tag);
  entry.waiters.PushAttach(context, std::move(done));
  Serve(entry);
}

void TagService::Claim(const std::string& tag, std::uint64_t ring_id, std::uint64_t count,
                       RequestContext context, ClaimDone done) {
  if (stopping_) return done(Stopping());
  if (drains_.IsDrained(tag)) return done(drains_.Refusal(tag));
  Tag& entry = GetTag(tag);
  // Where claims go by the socket, only those that find the ring dry are what the counter tells of.
  const bool by_socket = context.by_socket || (entry.record.has_value() && entry.ClaimsBySocket());
  const bool is_dry = entry.IsDry();
  if (!by_socket || is_dry) ++entry.fallbacks;
  if (is_dry) done = MeterDryClaim(std::move(done));
  entry.waiters.PushClaim(context, ring_id, count, std::move(done));
  Serve(entry);
}

void TagService::Refill(const std::string& tag) {
  meter_.refill_notices.Increment();
  // Of a tag that is not taken over yet: its turn comes, and a claim that finds it dry has it at
  // once. Many tags may be due, and a claim of one would wait for all.
  const auto it = tags_.find(tag);
  if (it == tags_.end()) return;
  Tag& entry = *it->second;
  entry.idle_polls = 0;
  if (entry.ring != nullptr) entry.Look();
  CloseExhausted(entry);
  MaybeLease(entry);
}

void TagService::DropOwner(std::uint64_t owner) {
  for (auto it = tags_.begin(); it != tags_.end();) {
    const std::string& name = it->first;
    it->second->waiters.Drop(owner);
    ++it;  // before ForgetIfUnused may erase the tag
    ForgetIfUnused(name);
  }
}

TagService::Tag& TagService::GetTag(const std::string& name) {
  TakeOverIfLeft(name);
  TagPtr& entry = tags_[name];
  if (entry == nullptr) entry = std::make_unique<Tag>(loop_, name);
  return *entry;
}

// Serves what can be served now, then sees to the rest.
void TagService::Serve(Tag& tag) {
  if (drains_.IsDrained(tag.name)) return tag.waiters.FailAll(drains_.Refusal(tag.name));
  if (!tag.record.has_value()) {
    if (!tag.refusal.ok()) return tag.waiters.FailAll(tag.refusal);
    ArmDeadline(tag);
    LookUp(tag);
    return;
  }
  if (Status status = EnsureRing(tag); !status.ok()) {
    tag.waiters.FailAll(status);
    return;
  }
  // A look before the ring serves any request: a forged ring gives neither ids nor its memory.
  CloseExhausted(tag);
  if (tag.ring == nullptr) return;  // quarantined, no memory for another: every waiter has failed
  ServeAttaches(tag);
  ServeClaims(tag, [&tag](std::uint64_t count) { return tag.ring->Claim(count); });
  CloseExhausted(tag);  // what these claims used up; or they found the ring forged
  // The ring is dry and the store has just said no: nobody is kept waiting for the same answer.
  if (!tag.refusal.ok()) tag.waiters.FailAll(tag.refusal);
  ExpireWaiters(tag);
  if (!tag.waiters.empty()) tag.Look();
  MaybeLease(tag);
}

void TagService::ServeClaims(Tag& tag, const WaitQueue::Take& take,
                             const std::function<void()>& before_send) {
  const WaitQueue::Take counted = [&take, &tag](std::uint64_t count) {
    const shm::IdRange ids = take(count);
    tag.socket_claimed += ids.size();
    return ids;
  };
  while (true) {
    WaitQueue::Answers answers = tag.waiters.ServeOldest(counted);
    if (answers.empty()) return;
    if (before_send) before_send();
    answers.Send(tag.AttachedRing());
  }
}

void TagService::ServeAttaches(Tag& tag) {
  AttachGrant grant;
  if (!tag.ClaimsBySocket()) {
    grant = {.ring_id = tag.ring->ring_id(),
             .table_fd = tag.ring->table_fd(),
             .cursors_fd = tag.ring->cursors_fd()};
  }
  if (tag.waiters.AnswerAttaches(grant) && grant.ring_id != 0) tag.ring->MarkShared();
}

void TagService::ExpireWaiters(Tag& tag) {
  tag.waiters.FailExpired([&] { return Status(Code::kTimeout, WaitReason(tag)); });
  ArmDeadline(tag);
}

void TagService::ArmDeadline(Tag& tag) {
  if (tag.waiters.empty()) {
    tag.deadline_timer.Cancel();
    return;
  }
  tag.deadline_timer.At(tag.waiters.FirstDeadline(), [this, name = tag.name] {
    const auto it = tags_.find(name);
    if (it == tags_.end()) return;
    ExpireWaiters(*it->second);
    ForgetIfUnused(name);
  });
}

std::string TagService::WaitReason(const Tag& tag) const {
  const std::string prefix = "tag '" + tag.name + "': no ids before the deadline; ";
  if (health_.since == MonotonicTime{}) return prefix + "the store has not answered yet";
  if (!health_.up) {
    return prefix + "the store has been down for " + SecondsSince(health_.since) + ": " +
           health_.last_error;
  }
  const auto asked = MonotonicClock::now() - tag.store_asked_at;
  if (tag.store_busy && asked > kSlowStore) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(asked).count();
    return prefix + "the store has not answered for " + std::to_string(ms) +
           " ms; is it locked or slow?";
  }
  if (!tag.last_error.empty()) return prefix + tag.last_error;
  if (IsFreshlyQuarantined(tag)) {
    return prefix + "its ring was quarantined " + SecondsSince(tag.quarantined_at) +
           " ago, as a client had forged a cursor; the new one's segment is on its way";
  }
  return prefix + "the next segment is on its way";
}

// A name that somebody asked for in vain must not stay: names are the client's choice.
void TagService::ForgetIfUnused(const std::string& name) {
  const auto it = tags_.find(name);
  if (it == tags_.end()) return;
  const Tag& tag = *it->second;
  if (tag.record.has_value() || !tag.waiters.empty() || tag.store_busy) return;
  tags_.erase(it);
}

// Warming up.

void TagService::Warm(const std::vector<std::string>& tags, std::function<void()> done) {
  to_warm_.assign(tags.begin(), tags.end());
  warmed_ = std::move(done);
  WarmNext();
}

void TagService::StopWarming() { to_warm_.clear(); }

// Few at a time, so that a tag that is asked for now waits behind few. Not before every tag is
// taken over: each that is named here would be at once, all in one turn of the loop.
void TagService::WarmNext() {
  if (!left_.empty()) return;
  while (!to_warm_.empty() && warming_.size() < kWarmedAtOnce && !stopping_) {
    const std::string name = std::move(to_warm_.front());
    to_warm_.pop_front();
    Tag& tag = GetTag(name);
    if (!tag.record.has_value()) {
      LookUp(tag);
    } else if (tag.ring != nullptr && tag.ring->IsDry()) {  // else somebody has asked for it
      MaybeLease(tag);
    }
    if (tag.store_busy || scheduler_.Awaits(name)) warming_.insert(name);
  }
  if (warming_.empty() && warmed_) std::exchange(warmed_, nullptr)();
}

void TagService::Warmed(const std::string& name) {
  if (warming_.erase(name) != 0) WarmNext();
}

// Looking tags up.

void TagService::LookUp(Tag& tag) {
  if (tag.store_busy || tag.retry_armed || stopping_) return;
  tag.store_busy = true;
  tag.store_asked_at = MonotonicClock::now();
  worker_.Submit<TagRecord>(
      [name = tag.name](Store& store, HighWaterMarks&) { return store.FindTag(name); },
      [this, name = tag.name, instance = tag.instance](Result<TagRecord> record) {
        const auto it = tags_.find(name);
        if (it == tags_.end() || it->second->instance != instance) return Warmed(name);
        OnLookUp(*it->second, std::move(record));
      });
}

void TagService::OnLookUp(Tag& tag, Result<TagRecord> record) {
  const std::string name = tag.name;  // the tag may be forgotten on the way
  tag.store_busy = false;
  if (stopping_) return FinishShutdownIfIdle();
  if (record.ok() && record.value().mode != "segment") {
    record = Status(Code::kInvalid, "tag '" + name + "': mode " + record.value().mode +
                                        " is not available in this version");
  }
  if (record.ok()) {
    Configure(tag, std::move(record).value());
    tag.last_error.clear();
    Serve(tag);
    if (!tag.store_busy && !scheduler_.Awaits(name)) Warmed(name);  // no ring could be made for it
    return;
  }
  OnStoreFailure(tag, record.status());
  ForgetIfUnused(name);
  Warmed(name);
}

// Leasing.

void TagService::Configure(Tag& tag, TagRecord record) {
  if (tag.policy == nullptr || tag.record->refill.rule != record.refill.rule) {
    tag.policy = MakeRefillPolicy(record.refill);
  } else if (tag.record->refill != record.refill) {
    tag.policy->Configure(record.refill);
  }
  tag.history.SetWindow(record.refill.outage_tolerance);
  tag.record = std::move(record);
}

std::uint64_t TagService::IdsToLease(const Tag& tag) const {
  if (stopping_ || tag.store_busy || tag.retry_armed || !closer_.knows_all()) return 0;
  if (drains_.IsDrained(tag.name) || drains_.IsReturning(tag.name)) return 0;
  if (closer_.HasUnreturned(tag.name)) return 0;
  if (tag.ring == nullptr || !tag.ring->CanPublish()) return 0;
  return tag.policy->Wanted(tag.View());
}

void TagService::MaybeLease(Tag& tag) {
  if (IdsToLease(tag) != 0) scheduler_.Ask(tag.name);
}

// What the tag leases now that it is its turn. From here on the next idd looks for the lease under
// its token.
std::optional<LeaseOrder> TagService::OrderOf(const std::string& name) {
  const auto it = tags_.find(name);
  if (it == tags_.end()) return std::nullopt;
  Tag& tag = *it->second;
  const std::uint64_t wanted = IdsToLease(tag);
  if (wanted == 0) return std::nullopt;
  tag.store_busy = true;
  tag.store_asked_at = MonotonicClock::now();
  LeaseOrder order{.tag = tag.name,
                   .instance = tag.instance,
                   .token = RandomToken(),
                   .wanted = wanted,
                   .step = tag.record->refill.step,
                   .available = tag.View().available,
                   .floor = tag.ring->floor(),
                   .has_leased = tag.leases_taken != 0,
                   .data_set = tag.data_set};
  handover_.leases.RecordAsked(order.token, order.tag);
  return order;
}

void TagService::OnOutcome(const LeaseOrder& order, Result<LeaseOutcome> outcome) {
  const bool is_leased = outcome.ok() && outcome.value().lease.has_value();
  if (is_leased) {
    handover_.leases.RecordGranted(*outcome.value().lease, outcome.value().record);
  } else {
    handover_.leases.Forget(order.token);
  }
  const auto it = tags_.find(order.tag);
  if (it == tags_.end() || it->second->instance != order.instance) {
    // Nobody is there to publish it: it goes back whole.
    if (is_leased) closer_.HandBack({.lease = *outcome.value().lease, .claimed = 0});
    return Warmed(order.tag);
  }
  Tag& tag = *it->second;
  tag.store_busy = false;
  const bool is_drained = std::exchange(tag.hands_back, false);
  if (!stopping_ && !is_drained) return OnLease(order.tag, std::move(outcome));
  if (is_leased) {
    tag.tails.push_back({.lease = *outcome.value().lease, .claimed = 0});
    if (is_drained) drains_.OnClosed(tag.tails.back());
  }
  HandBackTails(tag);
  Warmed(order.tag);
  FinishShutdownIfIdle();
}

void TagService::OnLease(const std::string& name, Result<LeaseOutcome> outcome) {
  Tag& tag = *tags_.find(name)->second;
  if (!outcome.ok()) {
    OnStoreFailure(tag, outcome.status());
    return Warmed(name);
  }
  if (!outcome.value().lease.has_value()) {
    OnNotLeased(tag, outcome.value());
    return Warmed(name);
  }
  const Lease& lease = *outcome.value().lease;
  Configure(tag, outcome.value().record);
  tag.data_set = outcome.value().data_set;
  tag.last_error.clear();
  ++tag.leases_taken;
  meter_.leases_taken.Increment();
  if (lease.lifted_from.has_value()) {
    log::Error("store.went_backwards", {{"tag", name},
                                        {"store_max_id", *lease.lifted_from},
                                        {"high_water_mark", lease.ids.first},
                                        {"action", "lifted the store; the ids between are a gap"}});
  }
  log::Debug("lease.granted", {{"tag", name},
                               {"token", lease.token},
                               {"base", lease.ids.first},
                               {"limit", lease.ids.limit}});
  EnforceAccess(tag);   // another host may have changed it
  CloseExhausted(tag);  // a lease that comes into a forged ring is lost with it
  if (Status status = EnsureRing(tag); !status.ok()) {
    closer_.HandBack({.lease = lease, .claimed = 0});
    tag.waiters.FailAll(status);
    return Warmed(name);
  }
  PublishLease(tag, lease);
}

void TagService::PublishLease(Tag& tag, const Lease& lease) {
  if (lease.ids.first < tag.ring->floor()) {
    log::Error("lease.out_of_order", {{"tag", tag.name},
                                      {"base", lease.ids.first},
                                      {"floor", tag.ring->floor()},
                                      {"action", "abandoned"}});
    worker_.meter().AddWaste(tag.name, lease.ids.size());
    closer_.Close({Abandoned({.lease = lease, .claimed = 0})});
    RetryLater(tag, MonotonicClock::now() + kRefusalPause);
    return Warmed(tag.name);
  }
  // What the queue gets goes to it before claimers can reach the segment: first come, first served.
  std::uint64_t next = lease.ids.first;
  ServeClaims(
      tag,
      [&next, &lease](std::uint64_t count) {
        const std::uint64_t first = next;
        next += std::min({count, kMaxForOneWaiter, lease.ids.limit - next});
        return shm::IdRange{first, next};
      },
      [&] { handover_.leases.RecordUsed(lease.token, next, 0); });
  const RefillView view = tag.NoteView(next - lease.ids.first);
  tag.leased_to = lease.ids.limit;
  tag.policy->OnLeased(view, lease.ids.size(), view.now - tag.store_asked_at);
  handover_.leases.RecordUsed(lease.token, next, tag.ring->ring_id());
  tag.ring->Publish(lease, next - lease.ids.first, tag.policy->MarkOf(lease.ids, view),
                    handover_.leases.NextOf(lease.token));
  meter_.refills.Increment();
  PublishStats(tag);
  Serve(tag);
  Warmed(tag.name);
}

// The ring stays what it is.
void TagService::OnNotLeased(Tag& tag, const LeaseOutcome& outcome) {
  if (!outcome.missing.ok()) {
    Refuse(tag, {outcome.missing.code(),
                 outcome.missing.message() +
                     ", which is not the database that the ring was leased from; restore that "
                     "database or create the tag"});
    return;
  }
  tag.last_error = "nothing is leased yet: " + outcome.reason;
  RetryLater(tag, outcome.not_before);
}

void TagService::OnStoreFailure(Tag& tag, const Status& status) {
  switch (status.code()) {
    case Code::kNoSuchTag:
      tag.last_error = status.message();
      tag.waiters.FailAll(status);
      if (tag.record.has_value()) OnTagDeleted(tag.name);
      return;
    case Code::kUnavailable:
    case Code::kSystem:
    case Code::kIncompatible:
      meter_.lease_failures.Increment();
      // The store's failure: the waiters keep their deadlines, it may come back in time.
      tag.last_error = status.message();
      RetryLater(tag, std::max(health_.next_try, MonotonicClock::now() + kShortPause));
      return;
    default:
      Refuse(tag, status);
  }
}

// Nobody is kept waiting: the same answer would come again.
void TagService::Refuse(Tag& tag, const Status& status) {
  meter_.leases_refused.Increment();
  if (tag.last_error != status.message()) {
    log::Error("lease.refused", {{"tag", tag.name}, {"error", status.message()}});
  }
  tag.last_error = status.message();
  tag.refusal = status;
  tag.waiters.FailAll(status);
  RetryLater(tag, MonotonicClock::now() + kRefusalPause);
}

void TagService::RetryLater(Tag& tag, MonotonicTime when) {
  if (stopping_) return;
  tag.retry_armed = true;
  tag.retry_timer.At(when, [this, name = tag.name] {
    const auto it = tags_.find(name);
    if (it == tags_.end()) return;
    Tag& due = *it->second;
    due.retry_armed = false;
    due.refusal = Status::Ok();
    if (due.record.has_value()) {
      MaybeLease(due);
    } else if (!due.waiters.empty()) {
      LookUp(due);
    }
    ForgetIfUnused(name);
  });
}

void TagService::OnStoreHealth(const StoreHealth& health) {
  const bool changed = health.up != health_.up || health_.since == MonotonicTime{};
  if (changed && health.up) log::Info("store.up", {});
  if (!health.up && (changed || health.last_error != health_.last_error)) {
    log::Error("store.down", {{"error", health.last_error}});
  }
  if (health.since != health_.since) health_since_ = UnixTimeOf(health.since);
  health_ = health;
}

// Looking.

void TagService::Poll() {
  const MonotonicTime now = MonotonicClock::now();
  for (auto& [name, tag] : tags_) {
    if (tag->ring == nullptr) continue;
    tag->ring->ForgetOldEnds();
    if (tag->ring->IsDrained()) {
      tag->usage.Observe(now, tag->closed_claimed);
      continue;
    }
    // Who waits may wait for what was not known when he came (LeaseCloser::knows_all()).
    const bool is_quiet = tag->waiters.empty();
    if (is_quiet && tag->idle_polls >= kIdlePolls && ++tag->idle_polls % kIdlePollEvery != 0)
      continue;
    EnforceAccess(*tag);                 // if it could not be done at the change
    if (tag->ring == nullptr) continue;  // quarantined, and no memory for another
    // Nothing has happened, nor is anything fading that is shown: many tags are like this.
    const std::uint64_t claimed = tag->closed_claimed + tag->ring->Level().claimed;
    if (is_quiet && tag->usage.IsIdleAt(claimed) && !tag->ring->forged()) {
      tag->usage.SkipTo(now);
      tag->history.Observe(now, now, claimed);
      if (tag->idle_polls < kIdlePolls) ++tag->idle_polls;
      PublishStats(*tag);
      continue;
    }
    tag->idle_polls = 0;
    CloseExhausted(*tag);
    if (tag->ring == nullptr) continue;  // quarantined, and no memory for another
    tag->Look();
    MaybeLease(*tag);
    tag->usage.Observe(now, claimed);
    PublishStats(*tag);
    CheckExhaustion(*tag, now);
  }
  WatchOldRings();
  closer_.Flush();
  // So that a store that comes back, or is replaced, is noticed and told without anybody asking for
  // ids: the other hosts of one that was replaced wait no longer than the grace for our marks.
  if (!stopping_) worker_.CheckStore();
}

// Of what is neither claimed nor leased yet; this host's rate, other hosts' leases count when they
// are seen.
void TagService::CheckExhaustion(Tag& tag, MonotonicTime now) {
  const double left =
      static_cast<double>(tag.record->max_id - std::min(tag.record->max_id, tag.leased_to)) +
      static_cast<double>(tag.View().available);
  tag.exhausted_in_days.reset();
  if (tag.leased_to != 0) tag.exhausted_in_days = tag.usage.DaysFor(left);
  if (tag.exhausted_in_days.value_or(kExhaustionWarning) >= kExhaustionWarning) return;
  if (tag.warned_at != MonotonicTime{} && now - tag.warned_at < kWarningPause) return;
  tag.warned_at = now;
  log::Warning("tag.exhaustion",
               {{"tag", tag.name},
                {"days", static_cast<std::uint64_t>(*tag.exhausted_in_days)},
                {"ids_left", static_cast<std::uint64_t>(left)},
                {"rate_per_s", static_cast<std::uint64_t>(tag.usage.rate_per_s())},
                {"action", "raise max_id, or move the column to 64 bits"}});
}

void TagService::AddLive(const Tag& tag, std::map<std::string, LeaseClosure, std::less<>>& live) {
  std::vector<LeaseUse> uses = tag.tails;
  if (tag.ring != nullptr) {
    const std::vector<LeaseUse> published = tag.ring->Look();
    uses.insert(uses.end(), published.begin(), published.end());
  }
  for (const LeaseUse& use : uses) {
    live[use.lease.token] = {.token = use.lease.token,
                             .tag = tag.name,
                             .state = LeaseState::kActive,
                             .claimed = use.claimed};
  }
}

std::map<std::string, LeaseClosure, std::less<>> TagService::LiveLeases() const {
  std::map<std::string, LeaseClosure, std::less<>> live = closer_.Open();
  for (const auto& [name, tag] : tags_) AddLive(*tag, live);
  return live;
}

std::map<std::string, LeaseClosure, std::less<>> TagService::LiveLeases(
    const std::string& tag) const {
  std::map<std::string, LeaseClosure, std::less<>> live = closer_.Open();
  std::erase_if(live, [&tag](const auto& lease) { return lease.second.tag != tag; });
  if (const auto served = tags_.find(tag); served != tags_.end()) AddLive(*served->second, live);
  return live;
}

}  // namespace idd::daemon
