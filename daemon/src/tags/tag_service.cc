// SPDX-License-Identifier: Apache-2.0
#include "tags/tag_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "platform/logging.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

// How long a stop waits for claimers that lost their processor between the add and the look, so
// that they can find out that they may keep their ids.
constexpr std::chrono::milliseconds kOvertakenPatience(50);
// A store that takes longer to fail after a stop has begun is not tried again: a server that hangs
// takes as long each time.
constexpr std::chrono::seconds kSecondTryWithin(4);
// A server refuses a locked row sooner.
constexpr std::chrono::seconds kShortTry(2);

struct Alarm {
  const char* kind;
  const char* event;
};
// Events at the store that can cost ids or uniqueness; the log has each with its numbers.
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

// Adds the counts of failed dry claims, for the codes that such a claim can fail with.
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

TagService::TagService(EventLoop& loop, LeaseWorker& worker, Handover handover,
                       std::uint32_t leases_per_s)
    : scheduler_(
          loop, worker, leases_per_s,
          [this](const std::string& name) {
            ServedTag* const tag = Find(name);
            return tag == nullptr ? std::nullopt : tag->TakeTurn();
          },
          [this](const LeaseOrder& order, Result<LeaseOutcome> outcome) {
            OnOutcome(order, std::move(outcome));
          }),
      closer_(
          worker, handover.leases, [this] { FinishShutdownIfIdle(); },
          [this](const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
            OnHandedBack(use, outcome);
          }),
      new_rings_(handover.descriptors, [this](const std::string& tag) { ServeWithRing(tag); }),
      context_{.loop = loop,
               .worker = worker,
               .handover = handover,
               .scheduler = scheduler_,
               .closer = closer_,
               .drains = drains_,
               .new_rings = new_rings_,
               .meter = meter_,
               .owner = *this},
      takeover_(
          context_,
          [this](const InheritedTag& tag, std::unique_ptr<TagRing> ring) {
            OnTaken(tag, std::move(ring));
          },
          [this](const std::string& tag, const std::vector<std::string>& tokens) {
            OnForged(tag, tokens);
          }),
      warm_up_([this](const std::string& tag) { return StartWarming(tag); }),
      drain_turns_(loop,
                   [this](std::function<void()> go_on) { WhenRingsAreKept(std::move(go_on)); }),
      poll_turns_(loop),
      overtaken_timer_(loop),
      next_try_timer_(loop),
      look_timer_(loop) {}

// If a stop timed out, there are tails that wait for a lease under way.
TagService::~TagService() {
  for (const auto& [name, tag] : tags_) tag->KeepTails();
}

ServedTag* TagService::Find(std::string_view tag) const {
  const auto it = tags_.find(tag);
  return it == tags_.end() ? nullptr : it->second.get();
}

ServedTag* TagService::TagAfter(const std::string& name) const {
  const auto it = tags_.upper_bound(name);
  return it == tags_.end() ? nullptr : it->second.get();
}

ServedTag& TagService::GetTag(const std::string& name) {
  takeover_.TakeIfLeft(name);
  TagPtr& entry = tags_[name];
  if (entry == nullptr) entry = std::make_unique<ServedTag>(name, context_);
  return *entry;
}

// A name without a tag must not stay in memory, because clients choose the names.
void TagService::ForgetIfUnused(const std::string& name) {
  const auto it = tags_.find(name);
  if (it != tags_.end() && it->second->IsUnused()) tags_.erase(it);
}

// Requests.

void TagService::Attach(const std::string& tag, RequestContext context, AttachDone done) {
  if (context_.is_stopping) return done(Stopping());
  if (drains_.IsDrained(tag)) return done(drains_.Refusal(tag));
  if (Status status = CheckIsNoCounter(tag); !status.ok()) return done(std::move(status));
  GetTag(tag).Attach(context, std::move(done));
}

void TagService::Claim(const std::string& tag, std::uint64_t ring_id, std::uint64_t count,
                       RequestContext context, ClaimDone done) {
  if (context_.is_stopping) return done(Stopping());
  if (drains_.IsDrained(tag)) return done(drains_.Refusal(tag));
  if (Status status = CheckIsNoCounter(tag); !status.ok()) return done(std::move(status));
  GetTag(tag).Claim(context, ring_id, count, std::move(done));
}

// Ignores a tag that is not taken over yet: its turn will come, and a claim that finds it dry takes
// it over at once. If each refill mark took its tag over, a claim would have to wait for many tags.
void TagService::Refill(const std::string& tag) {
  meter_.refill_notices.Increment();
  if (ServedTag* const served = Find(tag)) served->OnRefillMark();
}

Result<ObserveGrant> TagService::Observe(std::string_view tag) const {
  const ServedTag* const served = Find(tag);
  if (context_.is_stopping || served == nullptr) return ObserveGrant();
  return served->Observe();
}

void TagService::DropOwner(std::uint64_t owner) {
  for (auto it = tags_.begin(); it != tags_.end();) {
    const std::string& name = it->first;
    it->second->DropOwner(owner);
    ++it;  // before ForgetIfUnused may erase the tag
    ForgetIfUnused(name);
  }
}

// The store.

void TagService::OnStoreHealth(const StoreHealth& health) {
  StoreHealth& known = context_.health;
  const bool changed = health.up != known.up || known.since == MonotonicTime{};
  if (changed && health.up) log::Info("store.up", {});
  if (!health.up && (changed || health.last_error != known.last_error)) {
    log::Error("store.down", {{"error", health.last_error}});
  }
  if (health.since != known.since) health_since_ = UnixTimeOf(health.since);
  known = health;
  if (health.agreement.looks_soon) LookSoon();
  if (health.up) return;
  for (const auto& [name, tag] : tags_) tag->OnStoreDown();
}

// While something waits for witnesses.
void TagService::LookSoon() {
  constexpr std::chrono::milliseconds kSoon(200);
  if (std::exchange(looks_soon_, true)) return;
  look_timer_.After(kSoon, [this] {
    looks_soon_ = false;
    if (context_.is_stopping) return;
    context_.worker.CheckStore();
    if (context_.health.up && context_.health.agreement.looks_soon) LookSoon();
  });
}

void TagService::OnLookedUp(const std::string& tag, std::uint64_t instance,
                            Result<TagRecord> record) {
  ServedTag* const asked = Find(tag);
  if (asked != nullptr && asked->instance() == instance) asked->OnLookedUp(std::move(record));
  ForgetIfUnused(tag);
  const ServedTag* const served = Find(tag);
  if (served == nullptr || !served->AwaitsStore()) warm_up_.OnSettled(tag);
  FinishShutdownIfIdle();
}

void TagService::OnOutcome(const LeaseOrder& order, Result<LeaseOutcome> outcome) {
  HeldLeases& held = context_.handover.leases;
  const bool is_leased = outcome.ok() && outcome.value().lease.has_value();
  if (is_leased) {
    held.RecordGranted(*outcome.value().lease, outcome.value().record);
  } else {
    held.Forget(order.token);
  }
  ServedTag* const tag = Find(order.tag);
  if (tag == nullptr || tag->instance() != order.instance) {
    // There is no ring to publish the lease in, so it goes back whole.
    if (is_leased) closer_.HandBack({.lease = *outcome.value().lease, .claimed = 0});
  } else if (!tag->OnOutcome(std::move(outcome))) {
    OnTagDeleted(order.tag);
  }
  warm_up_.OnSettled(order.tag);
  FinishShutdownIfIdle();
}

// A tag that was resumed meanwhile may have waited for this tail.
void TagService::OnHandedBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
  drains_.OnAnswered(use, outcome);
  ServedTag* const tag = Find(ServedName(use.lease.tag));
  if (tag != nullptr && tag->is_known()) tag->MaybeLease();
}

void TagService::Warm(const std::vector<std::string>& tags, std::function<void()> done) {
  warm_up_.Begin(tags, std::move(done));
}

bool TagService::StartWarming(const std::string& tag) {
  if (context_.is_stopping) return false;
  ServedTag& served = GetTag(tag);
  served.Warm();
  return served.AwaitsStore();
}

// Operators.

void TagService::OnTagChanged(const TagRecord& record) {
  takeover_.TakeIfLeft(record.tag);
  ServedTag* const tag = Find(record.tag);
  if (tag == nullptr) return;
  ++context_.tags_version;
  tag->OnChanged(record);
}

void TagService::OnTagsCreated(const std::vector<std::string>& tags) {
  ++context_.tags_version;
  for (const std::string& tag : tags) {
    takeover_.TakeIfLeft(tag);
    if (ServedTag* const served = Find(tag)) served->OnCreated();
  }
}

void TagService::OnTagDeleted(const std::string& tag) {
  takeover_.TakeIfLeft(tag);
  const auto it = tags_.find(tag);
  if (it == tags_.end()) return;
  ++context_.tags_version;
  const TagPtr gone = std::move(it->second);
  tags_.erase(it);
  gone->OnDeleted();
}

bool TagService::Withdraw(const std::string& tag, std::uint64_t ring_id) {
  ServedTag* const served = Find(tag);
  return context_.is_stopping || served == nullptr || served->Withdraw(ring_id);
}

void TagService::LoadDrained(const std::vector<std::string>& scopes) {
  for (const std::string& scope : scopes) drains_.Begin(scope);
}

void TagService::Drain(const std::string& scope) {
  if (context_.is_stopping) return;  // the stop hands all back, and the next idd begins drained
  if (scope == kWholeHost) {
    drains_.Begin(scope);
    return FollowDrains();
  }
  takeover_.TakeIfLeft(scope);
  drains_.Begin(scope);
  if (ServedTag* const tag = Find(scope)) tag->Drain();
  closer_.Flush();  // the ends do not wait for others
}

void TagService::Resume(const std::string& scope) {
  if (context_.is_stopping) return;
  if (scope == kWholeHost) {
    drains_.End(scope);
    return FollowDrains();
  }
  takeover_.TakeIfLeft(scope);
  drains_.End(scope);
  ServedTag* const tag = Find(scope);
  if (tag != nullptr && !drains_.IsDrained(scope) && tag->Resume()) warm_up_.Add(scope);
  FinishResume();
}

// Work that is under way begins again: the tags that it has seen may have to follow another order
// now, and those that follow it already cost nothing.
void TagService::FollowDrains() {
  drained_to_.clear();
  drain_turns_.Begin([this] { return FollowDrain(); });
}

// Tags come and go between two steps. A tag that comes is drained, or not, from its beginning.
Turns::Next TagService::FollowDrain() {
  if (takeover_.TakeOne()) return Turns::Next::kTurn;
  ServedTag* const tag = TagAfter(drained_to_);
  if (tag == nullptr) {
    closer_.Flush();  // the ends do not wait for others
    FinishResume();
    return Turns::Next::kEnd;
  }
  drained_to_ = tag->name();
  if (drains_.IsDrained(tag->name())) {
    tag->Drain();
    return Turns::Next::kStep;
  }
  if (!tag->Resume()) return Turns::Next::kStep;
  warm_up_.Add(tag->name());
  return Turns::Next::kTurn;  // it has a new ring
}

// Resumed tags lease again as at the start: of a host's thousands of tags, those that are asked for
// go first. A tag that waited for its turn when it was drained has no turn any more.
void TagService::FinishResume() {
  warm_up_.Recheck([this](const std::string& name) {
    const ServedTag* const tag = Find(name);
    return tag != nullptr && tag->AwaitsStore();
  });
}

TagService::DrainProgress TagService::ProgressOf(const std::string& scope) const {
  DrainProgress progress{.count = drains_.CountOf(scope),
                         .is_closing = IsClosing(scope),
                         .has_open_ends = closer_.HasOpenEnds(scope)};
  for (const auto& [name, tag] : tags_) {
    if (scope != kWholeHost && scope != name) continue;
    if (tag->is_known() && drains_.IsDrained(name)) ++progress.tags;
    if (tag->hands_back()) progress.is_leasing = true;
  }
  return progress;
}

bool TagService::Knows(std::string_view tag) const {
  const ServedTag* const served = Find(tag);
  return served != nullptr && served->is_known();
}

const TagRecord* TagService::RecordOf(std::string_view tag) const {
  const ServedTag* const served = Find(tag);
  return served == nullptr ? nullptr : served->record();
}

// A restart, and a stop.

void TagService::Inherit(Inheritance& inheritance, std::function<void()> done) {
  // Warming up would take over all tags at once, in one turn of the loop, so it waits for the
  // takeover.
  warm_up_.Hold();
  takeover_.Begin(inheritance, [this, done = std::move(done)] {
    warm_up_.Release();
    if (done) done();
  });
}

void TagService::ServeWithRing(const std::string& tag) {
  ServedTag* const served = Find(tag);
  if (served == nullptr || context_.is_stopping) return;
  served->ServeWithRing();
  if (!served->AwaitsStore()) warm_up_.OnSettled(tag);
}

void TagService::OnTaken(const InheritedTag& inherited, std::unique_ptr<TagRing> ring) {
  ServedTag& tag = GetTag(inherited.record.tag);
  if (ring == nullptr) return tag.Inherit(inherited.record);
  tag.Inherit(inherited.record, std::move(ring), inherited.leases);
}

void TagService::OnForged(const std::string& tag, const std::vector<std::string>& tokens) {
  ServedTag* const served = Find(tag);
  if (served != nullptr && !context_.is_stopping) served->OnForged(tokens);
}

void TagService::Shutdown(std::function<void()> done) {
  drain_turns_.Cancel();
  poll_turns_.Cancel();
  takeover_.TakeAll();
  context_.is_stopping = true;
  closer_.Hurry();
  scheduler_.Stop();
  shutdown_done_ = std::move(done);
  // A stop does not wait for a store that is known to be down.
  if (context_.health.up) next_try_ = NextTry::kPossible;
  second_try_until_ = MonotonicClock::now() + kSecondTryWithin;
  try_began_ = MonotonicClock::now();
  ended_before_ = closer_.ended();
  for (auto& [name, tag] : tags_) {
    if (tag->Shutdown()) overtaken_are_through_ = false;
  }
  closer_.Flush();  // including ends that an earlier try could not journal
  if (!overtaken_are_through_) {
    overtaken_timer_.After(kOvertakenPatience, [this] {
      overtaken_are_through_ = true;
      FinishShutdownIfIdle();
    });
  }
  FinishShutdownIfIdle();
}

void TagService::FinishShutdownIfIdle() {
  if (!context_.is_stopping || !shutdown_done_) return;
  if (!closer_.idle() || !overtaken_are_through_) return;
  for (const auto& [name, tag] : tags_) {
    if (tag->is_at_store()) return;
  }
  if (next_try_ == NextTry::kPlanned || EndAgain()) return;
  std::exchange(shutdown_done_, nullptr)();
}

// A store may fail for a moment, as its session ends or its file is made smaller, and the next use
// opens it again. What is not journalled now, the next idd journals as abandoned, and then it is
// unknown how much of it was claimed.
bool TagService::EndAgain() {
  if (next_try_ != NextTry::kPossible || !closer_.HasFailed()) return false;
  // A row of a server may be locked while others are free. So a try that brought something to its
  // end is followed by another, and so is one that was short, found the store open and was refused
  // for one tag while others wait. Without that, there is a second try only after a short one.
  const MonotonicTime now = MonotonicClock::now();
  const bool has_ended = closer_.ended() != std::exchange(ended_before_, closer_.ended());
  const bool has_untried = now - try_began_ < kShortTry && closer_.HasUntried();
  const bool is_second = now <= std::exchange(second_try_until_, {});
  if (!has_ended && !has_untried && !is_second) {
    next_try_ = NextTry::kNone;
    return false;
  }
  next_try_ = NextTry::kPlanned;
  next_try_timer_.At(context_.health.next_try, [this] {
    next_try_ = NextTry::kPossible;
    try_began_ = MonotonicClock::now();
    closer_.Flush();
    FinishShutdownIfIdle();
  });
  return true;
}

// A poll that is still under way after a second goes on instead.
void TagService::Poll() {
  if (!poll_turns_.is_under_way()) {
    polled_to_.clear();
    watched_ = 0;
    poll_turns_.Begin([this] { return PollNext(); });
  }
  // Even without a request for ids, this notices a store that comes back or was replaced. If a
  // replaced store has no terms, its other hosts wait for our marks only during the grace period.
  if (!context_.is_stopping) context_.worker.CheckStore();
}

Turns::Next TagService::PollNext() {
  if (ServedTag* const tag = TagAfter(polled_to_)) {
    polled_to_ = tag->name();
    tag->Poll(MonotonicClock::now());
    return Turns::Next::kStep;
  }
  if (takeover_.WatchOldRing(watched_)) {
    ++watched_;
    return Turns::Next::kStep;
  }
  closer_.Flush();
  return Turns::Next::kEnd;
}

// Views.

std::size_t TagService::rings() const {
  return static_cast<std::size_t>(std::count_if(tags_.begin(), tags_.end(), [](const auto& entry) {
    return entry.second->ids().ring() != nullptr;
  }));
}

std::vector<TagSnapshot> TagService::Snapshot() const {
  std::vector<TagSnapshot> snapshots;
  snapshots.reserve(tags_.size());
  for (std::string at; SnapshotNext(at, snapshots);) {
  }
  return snapshots;
}

std::vector<TagSnapshot> TagService::SnapshotOf(std::string_view tag) const {
  std::vector<TagSnapshot> snapshots;
  const ServedTag* const served = Find(tag);
  if (served != nullptr && served->is_known()) snapshots.push_back(served->Snapshot());
  return snapshots;
}

bool TagService::SnapshotNext(std::string& at, std::vector<TagSnapshot>& snapshots) const {
  const ServedTag* const tag = TagAfter(at);
  if (tag == nullptr) return false;
  at = tag->name();
  if (tag->is_known()) snapshots.push_back(tag->Snapshot());
  return true;
}

bool TagService::UnobservedNext(std::string& at, const MayObserve& may_observe,
                                std::vector<TagSnapshot>& snapshots) const {
  const ServedTag* const tag = TagAfter(at);
  if (tag == nullptr) return false;
  at = tag->name();
  if (tag->is_known() && (tag->IsUnobservable() || !may_observe(at))) {
    snapshots.push_back(tag->Snapshot());
  }
  return true;
}

std::map<std::string, LeaseClosure, std::less<>> TagService::LiveLeases() const {
  std::map<std::string, LeaseClosure, std::less<>> live = closer_.Open();
  for (const auto& [name, tag] : tags_) tag->ids().AddLive(live);
  return live;
}

std::map<std::string, LeaseClosure, std::less<>> TagService::LiveLeases(
    const std::string& tag) const {
  std::map<std::string, LeaseClosure, std::less<>> live = closer_.Open();
  if (const ServedTag* const served = Find(ServedName(tag))) served->ids().AddLive(live);
  std::erase_if(live, [&tag](const auto& lease) { return lease.second.tag != tag; });
  return live;
}

std::optional<std::string> TagService::SampleTags(const std::string& after, std::size_t most,
                                                  std::vector<TagSample>& samples) {
  auto it = tags_.upper_bound(after);
  for (std::size_t i = 0; i < most && it != tags_.end(); ++i, ++it) {
    if (it->second->is_known()) samples.push_back(it->second->Sample());
  }
  if (it == tags_.end()) return std::nullopt;
  return std::prev(it)->first;
}

void TagService::AddFamilies(FamilyBuilder& families) const {
  const StoreMeter& store = context_.worker.meter();
  const StoreHealth& health = context_.health;
  families.Add(metric::kStoreUp, health.up ? 1 : 0);
  if (health.since != MonotonicTime{}) families.Add(metric::kStoreChangeTime, health_since_);
  families.Add(metric::kStoreFailures, store.failures);
  AddAlarms(families);
  families.Add(metric::kLeasesTaken, meter_.leases_taken);
  families.Add(metric::kLeasesRefused, meter_.leases_refused);
  families.Add(metric::kLeaseFailures, meter_.lease_failures);
  families.Add(metric::kLeaseDuration, store.lease_duration);
  families.Add(metric::kAwaitingTurn, static_cast<double>(scheduler_.waiting()));
  families.Add(metric::kInheritedRings, static_cast<double>(takeover_.old_rings()));
  families.Add(metric::kInheritedLeases, static_cast<double>(takeover_.leases()));
  families.Add(metric::kRefills, meter_.refills);
  families.Add(metric::kRefillNotices, meter_.refill_notices);
  families.Add(metric::kDryClaims, meter_.dry_claims);
  families.Add(metric::kClaimWait, meter_.claim_wait);
  AddFailedClaims(meter_, families);
  std::size_t waiting = 0;
  for (const auto& [name, tag] : tags_) waiting += tag->waiting();
  families.Add(metric::kWaiting, static_cast<double>(waiting));
}

}  // namespace idd::daemon
