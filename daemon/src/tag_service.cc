// SPDX-License-Identifier: Apache-2.0
#include "tag_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "idd/base/check.h"
#include "logging.h"
#include "random.h"
#include "refill_policy.h"

namespace idd::daemon {
namespace {

// A refusal that is not the store's absence is asked again no sooner than this.
constexpr std::chrono::milliseconds kRefusalPause(1000);
// How long a replaced ring is told in `status`; the log has it for ever.
constexpr std::chrono::seconds kQuarantineShown(60);
// Weight of the newest second in the shown rate.
constexpr double kRateWeight = 0.3;
// A store that takes longer than this is what a waiter is told of.
constexpr std::chrono::milliseconds kSlowStore(100);

LeaseClosure Abandoned(const LeaseUse& use) {
  return {.token = use.lease.token,
          .tag = use.lease.tag,
          .state = use.available() == 0 ? LeaseState::kExhausted : LeaseState::kAbandoned,
          .claimed = use.claimed};
}

std::string Seconds(MonotonicTime since) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - since);
  return std::to_string(seconds.count()) + " s";
}

}  // namespace

// One request in a tag's queue; exactly one of the two callbacks is set.
struct TagService::Waiter {
  RequestContext context;
  std::uint64_t ring_id = 0;
  std::uint64_t count = 0;
  AttachDone attach_done;
  ClaimDone claim_done;

  void Fail(const Status& status) const {
    if (attach_done) {
      attach_done(status);
    } else {
      claim_done(status);
    }
  }
};

struct TagService::LeaseOutcome {
  TagRecord record;
  std::optional<Lease> lease;
  std::uint64_t data_set = 0;  // where the lease was taken
  // Without a lease: the tag is not in a data set that is not the one the ring was leased from ...
  Status missing;
  // ... or it is too early to lease from it.
  MonotonicTime not_before{};
};

struct TagService::Tag {
  Tag(boost::asio::io_context& loop, std::string tag_name)
      : name(std::move(tag_name)), instance(RandomId()), deadline_timer(loop), retry_timer(loop) {}

  const std::string name;
  const std::uint64_t instance;  // tells a re-created tag's callbacks from its namesake's
  std::optional<TagRecord> record;
  std::unique_ptr<TagRing> ring;
  std::list<Waiter> waiters;
  std::vector<LeaseUse> tails;  // while stopping: what goes back, oldest first
  boost::asio::steady_timer deadline_timer;
  boost::asio::steady_timer retry_timer;
  bool store_busy = false;         // a look-up or a lease is under way
  MonotonicTime store_asked_at{};  // since then
  bool retry_armed = false;        // the next try waits for retry_timer
  Status refusal;  // until then: what the store said to the last try, not ok if it refused
  std::string last_error;
  std::uint64_t floor = 0;  // where a ring that replaces a quarantined one begins
  std::uint64_t quarantines = 0;
  MonotonicTime quarantined_at{};
  std::uint64_t closed_claimed = 0;  // of leases that left the ring
  std::uint64_t leases_taken = 0;
  std::uint64_t data_set = 0;  // StoreSession::data_set of the newest lease
  std::uint64_t fallbacks = 0;
  std::uint64_t polled_claimed = 0;
  MonotonicTime polled_at{};
  double rate_per_s = 0;

  [[nodiscard]] bool HasClaimWaiter() const {
    return std::any_of(waiters.begin(), waiters.end(),
                       [](const Waiter& waiter) { return static_cast<bool>(waiter.claim_done); });
  }
  [[nodiscard]] std::uint64_t Claimed() const {
    std::uint64_t claimed = closed_claimed;
    if (ring != nullptr) {
      for (const LeaseUse& use : ring->Look()) claimed += use.claimed;
    }
    return claimed;
  }
  // Precondition: the record is known.
  [[nodiscard]] bool ClaimsBySocket() const { return record->access == TagAccess::kSocket; }
  // Whether a client that named `ring_id` shall attach again. Precondition: there is a ring.
  [[nodiscard]] bool IsOtherRing(std::uint64_t ring_id) const {
    return ring_id != (ClaimsBySocket() ? 0 : ring->ring_id());
  }
  [[nodiscard]] bool IsDry() const { return ring == nullptr || ring->Level().open_segments == 0; }
};

TagService::TagService(boost::asio::io_context& loop, LeaseWorker& worker)
    : loop_(loop), worker_(worker) {}
TagService::~TagService() = default;

// Requests.

void TagService::Attach(const std::string& tag, RequestContext context, AttachDone done) {
  Enqueue(GetTag(tag), {.context = context, .attach_done = std::move(done), .claim_done = {}});
}

void TagService::Claim(const std::string& tag, std::uint64_t ring_id, std::uint64_t count,
                       RequestContext context, ClaimDone done) {
  Tag& entry = GetTag(tag);
  // Where claims go by the socket, only those that find the ring dry are what the counter tells of.
  const bool by_socket = entry.record.has_value() && entry.ClaimsBySocket();
  if (!by_socket || entry.IsDry()) ++entry.fallbacks;
  Enqueue(entry, {.context = context,
                  .ring_id = ring_id,
                  .count = count,
                  .attach_done = {},
                  .claim_done = std::move(done)});
}

void TagService::Refill(const std::string& tag) {
  const auto it = tags_.find(tag);
  if (it == tags_.end()) return;
  CloseExhausted(*it->second);
  MaybeLease(*it->second);
}

void TagService::DropOwner(std::uint64_t owner) {
  for (auto it = tags_.begin(); it != tags_.end();) {
    const std::string& name = it->first;
    it->second->waiters.remove_if(
        [owner](const Waiter& waiter) { return waiter.context.owner == owner; });
    ++it;  // before ForgetIfUnused may erase the tag
    ForgetIfUnused(name);
  }
}

TagService::Tag& TagService::GetTag(const std::string& name) {
  TagPtr& entry = tags_[name];
  if (entry == nullptr) entry = std::make_unique<Tag>(loop_, name);
  return *entry;
}

void TagService::Enqueue(Tag& tag, Waiter waiter) {
  if (stopping_) {
    waiter.Fail({Code::kUnavailable, "idd is stopping"});
    return;
  }
  tag.waiters.push_back(std::move(waiter));
  Serve(tag);
}

// Serves what can be served now, then sees to the rest.
void TagService::Serve(Tag& tag) {
  if (!tag.record.has_value()) {
    if (!tag.refusal.ok()) return FailWaiters(tag, tag.refusal);
    ArmDeadline(tag);
    LookUp(tag);
    return;
  }
  if (Status status = EnsureRing(tag); !status.ok()) {
    FailWaiters(tag, status);
    return;
  }
  ServeAttaches(tag);
  std::vector<std::function<void()>> replies;
  for (auto it = tag.waiters.begin(); it != tag.waiters.end();) {
    const shm::IdRange ids = tag.ring->Claim(it->count);
    if (ids.empty()) break;
    const bool other_ring = tag.IsOtherRing(it->ring_id);
    replies.emplace_back([done = std::move(it->claim_done), ids, other_ring] {
      done(ClaimGrant{.ids = ids, .attach_again = other_ring});
    });
    it = tag.waiters.erase(it);
  }
  for (const auto& reply : replies) reply();
  // The ring is dry and the store has just said no: nobody is kept waiting for the same answer.
  if (!tag.refusal.ok()) FailWaiters(tag, tag.refusal);
  ExpireWaiters(tag);
  CloseExhausted(tag);
  MaybeLease(tag);
}

void TagService::ServeAttaches(Tag& tag) {
  AttachGrant grant;
  if (!tag.ClaimsBySocket()) {
    grant = {.ring_id = tag.ring->ring_id(),
             .table_fd = tag.ring->table_fd(),
             .cursors_fd = tag.ring->cursors_fd()};
  }
  for (auto it = tag.waiters.begin(); it != tag.waiters.end();) {
    if (!it->attach_done) {
      ++it;
      continue;
    }
    if (grant.ring_id != 0) tag.ring->MarkShared();
    AttachDone done = std::move(it->attach_done);
    it = tag.waiters.erase(it);
    done(grant);
  }
}

void TagService::FailWaiters(Tag& tag, const Status& status) {
  std::list<Waiter> failed = std::exchange(tag.waiters, {});
  for (Waiter& waiter : failed) waiter.Fail(status);
}

void TagService::ExpireWaiters(Tag& tag) {
  std::list<Waiter> expired;
  for (auto it = tag.waiters.begin(); it != tag.waiters.end();) {
    const auto next = std::next(it);
    if (it->context.deadline.passed()) expired.splice(expired.end(), tag.waiters, it);
    it = next;
  }
  for (Waiter& waiter : expired) waiter.Fail({Code::kTimeout, WaitReason(tag)});
  ArmDeadline(tag);
}

void TagService::ArmDeadline(Tag& tag) {
  if (tag.waiters.empty()) {
    tag.deadline_timer.cancel();
    return;
  }
  const auto first = std::min_element(tag.waiters.begin(), tag.waiters.end(),
                                      [](const Waiter& a, const Waiter& b) {
                                        return a.context.deadline.at() < b.context.deadline.at();
                                      });
  tag.deadline_timer.expires_at(first->context.deadline.at());
  tag.deadline_timer.async_wait([this, name = tag.name](const boost::system::error_code& error) {
    if (error) return;
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
    return prefix + "the store has been down for " + Seconds(health_.since) + ": " +
           health_.last_error;
  }
  const auto asked = MonotonicClock::now() - tag.store_asked_at;
  if (tag.store_busy && asked > kSlowStore) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(asked).count();
    return prefix + "the store has not answered for " + std::to_string(ms) +
           " ms; is it locked or slow?";
  }
  if (!tag.last_error.empty()) return prefix + tag.last_error;
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

// Looking tags up.

void TagService::LookUp(Tag& tag) {
  if (tag.store_busy || tag.retry_armed || stopping_) return;
  tag.store_busy = true;
  tag.store_asked_at = MonotonicClock::now();
  worker_.Submit<TagRecord>(
      [name = tag.name](Store& store, HighWaterMarks&) { return store.FindTag(name); },
      [this, name = tag.name](Result<TagRecord> record) { OnLookUp(name, std::move(record)); });
}

void TagService::OnLookUp(const std::string& name, Result<TagRecord> record) {
  const auto it = tags_.find(name);
  if (it == tags_.end()) return;
  Tag& tag = *it->second;
  tag.store_busy = false;
  if (stopping_) return FinishShutdownIfIdle();
  if (record.ok() && record.value().mode != "segment") {
    record = Status(Code::kInvalid, "tag '" + name + "': mode " + record.value().mode +
                                        " is not available in this version");
  }
  if (record.ok()) {
    tag.record = std::move(record).value();
    tag.last_error.clear();
    Serve(tag);
    return;
  }
  OnStoreFailure(tag, record.status());
  ForgetIfUnused(name);
}

// Leasing.

Status TagService::EnsureRing(Tag& tag) {
  if (tag.ring != nullptr) return Status::Ok();
  Result<std::unique_ptr<TagRing>> ring = TagRing::Create(tag.name, tag.floor);
  if (!ring.ok()) {
    log::Error("ring.create_failed", {{"tag", tag.name}, {"error", ring.status().message()}});
    return ring.status();
  }
  tag.ring = std::move(ring).value();
  log::Info("ring.created", {{"tag", tag.name}, {"ring", tag.ring->ring_id()}});
  return Status::Ok();
}

// A tag whose ids are claimed by the socket must not have a ring that clients can write. The one
// they have is closed, and another takes its place, with the same leases and as much of them
// claimed: no id is lost, and they go on rising. If there is no memory for it, clients keep the old
// one until a later try.
void TagService::EnforceAccess(Tag& tag) {
  if (tag.ring == nullptr || !tag.ring->shared() || !tag.ClaimsBySocket()) return;
  const std::vector<LeaseUse> before = tag.ring->Look();
  const std::uint64_t floor = before.empty() ? tag.ring->floor() : before.front().lease.ids.first;
  Result<std::unique_ptr<TagRing>> ring = TagRing::Create(tag.name, floor);
  if (!ring.ok()) {
    log::Error("ring.create_failed", {{"tag", tag.name}, {"error", ring.status().message()}});
    return;
  }
  std::vector<LeaseUse> drained = tag.ring->Retire();
  if (tag.ring->forged()) return Quarantine(tag, std::move(drained));
  log::Info("ring.retired", {{"tag", tag.name},
                             {"ring", tag.ring->ring_id()},
                             {"reason", "the tag's ids are claimed by the socket now"}});
  tag.ring = std::move(ring).value();
  log::Info("ring.created", {{"tag", tag.name}, {"ring", tag.ring->ring_id()}});
  // Also what is used up, so that it is closed as ever, and the floor stays where it was.
  for (const LeaseUse& use : drained) tag.ring->Publish(use.lease, use.claimed);
  CloseExhausted(tag);
}

void TagService::MaybeLease(Tag& tag) {
  if (stopping_ || tag.store_busy || tag.retry_armed) return;
  if (tag.ring == nullptr || !tag.ring->CanPublish()) return;
  if (!tag.HasClaimWaiter() && !RefillPolicy::WantsSegment(tag.ring->Level())) return;
  StartLease(tag);
}

void TagService::StartLease(Tag& tag) {
  tag.store_busy = true;
  tag.store_asked_at = MonotonicClock::now();
  LeaseRequest request{.tag = tag.name, .floor = tag.ring->floor(), .token = RandomToken()};
  StoreSession& session = worker_.session();
  // Whether an answer that there is no such tag is about the tag that the ring has.
  const std::uint64_t data_set = tag.data_set;
  const bool has_leased = tag.leases_taken != 0;
  const auto work = [request, data_set, has_leased, &session](
                        Store& store, HighWaterMarks& marks) mutable -> Result<LeaseOutcome> {
    LeaseOutcome outcome;
    outcome.data_set = session.data_set;
    Result<TagRecord> record = store.FindTag(request.tag);  // a changed step counts from now on
    if (record.status().code() == Code::kNoSuchTag && has_leased && data_set != session.data_set) {
      outcome.missing = record.status();
      return outcome;
    }
    if (!record.ok()) return record.status();
    outcome.record = std::move(record).value();
    if (MonotonicClock::now() < session.lease_from) {
      outcome.not_before = session.lease_from;
      return outcome;
    }
    const Result<std::uint64_t> mark = marks.Get(request.tag);
    if (!mark.ok()) return mark.status();
    request.count = outcome.record.step;
    request.high_water_mark = mark.value();
    Result<Lease> lease = store.TakeLease(request);
    if (!lease.ok()) return lease.status();
    lease.value().previous_mark = mark.value();
    // Before the segment can be published: a host that forgot its mark would believe a store that
    // was set back.
    if (Status status = marks.Raise(request.tag, lease.value().ids.limit); !status.ok()) {
      const LeaseClosure unused{
          .token = request.token, .tag = request.tag, .state = LeaseState::kReturned, .claimed = 0};
      static_cast<void>(store.ReturnTail(unused));
      return status.WithContext("the high-water mark cannot be kept");
    }
    session.held[request.token] = lease.value();
    outcome.lease = std::move(lease).value();
    return outcome;
  };
  worker_.Submit<LeaseOutcome>(
      work, [this, name = tag.name, instance = tag.instance](Result<LeaseOutcome> outcome) {
        const auto it = tags_.find(name);
        if (it == tags_.end() || it->second->instance != instance) {
          // Nobody is there to publish it: it goes back whole.
          if (outcome.ok() && outcome.value().lease.has_value()) {
            HandBack({.lease = *outcome.value().lease, .claimed = 0});
          }
          return;
        }
        it->second->store_busy = false;
        if (!stopping_) return OnLease(name, std::move(outcome));
        if (outcome.ok() && outcome.value().lease.has_value()) {
          it->second->tails.push_back({.lease = *outcome.value().lease, .claimed = 0});
        }
        HandBackTails(*it->second);
      });
}

void TagService::OnLease(const std::string& name, Result<LeaseOutcome> outcome) {
  Tag& tag = *tags_.find(name)->second;
  if (!outcome.ok()) {
    OnStoreFailure(tag, outcome.status());
    return;
  }
  if (!outcome.value().lease.has_value()) return OnNotLeased(tag, outcome.value());
  const Lease& lease = *outcome.value().lease;
  tag.record = outcome.value().record;
  tag.data_set = outcome.value().data_set;
  tag.last_error.clear();
  ++tag.leases_taken;
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
  EnforceAccess(tag);  // another host may have changed it
  if (Status status = EnsureRing(tag); !status.ok()) {
    HandBack({.lease = lease, .claimed = 0});
    FailWaiters(tag, status);
    return;
  }
  PublishLease(tag, lease);
}

void TagService::PublishLease(Tag& tag, const Lease& lease) {
  if (lease.ids.first < tag.ring->floor()) {
    log::Error("lease.out_of_order", {{"tag", tag.name},
                                      {"base", lease.ids.first},
                                      {"floor", tag.ring->floor()},
                                      {"action", "abandoned"}});
    Close({Abandoned({.lease = lease, .claimed = 0})});
    RetryLater(tag, MonotonicClock::now() + kRefusalPause);
    return;
  }
  // What the queue gets is set aside before claimers can reach the segment: first come, first
  // served.
  std::vector<std::function<void()>> replies;
  std::uint64_t next = lease.ids.first;
  for (auto it = tag.waiters.begin(); it != tag.waiters.end() && next < lease.ids.limit;) {
    const shm::IdRange ids{next, next + std::min(it->count, lease.ids.limit - next)};
    const bool other_ring = tag.IsOtherRing(it->ring_id);
    replies.emplace_back([done = std::move(it->claim_done), ids, other_ring] {
      done(ClaimGrant{.ids = ids, .attach_again = other_ring});
    });
    next = ids.limit;
    it = tag.waiters.erase(it);
  }
  tag.ring->Publish(lease, next - lease.ids.first);
  for (const auto& reply : replies) reply();
  Serve(tag);
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
  tag.last_error = "the database was replaced or set back; nothing is leased from it for a while";
  RetryLater(tag, outcome.not_before);
}

void TagService::OnStoreFailure(Tag& tag, const Status& status) {
  switch (status.code()) {
    case Code::kNoSuchTag:
      tag.last_error = status.message();
      FailWaiters(tag, status);
      if (tag.record.has_value()) OnTagDeleted(tag.name);
      return;
    case Code::kUnavailable:
    case Code::kSystem:
    case Code::kIncompatible:
      // The store's failure: the waiters keep their deadlines, it may come back in time.
      tag.last_error = status.message();
      RetryLater(tag, health_.next_try);
      return;
    default:
      Refuse(tag, status);
  }
}

// Nobody is kept waiting: the same answer would come again.
void TagService::Refuse(Tag& tag, const Status& status) {
  if (tag.last_error != status.message()) {
    log::Error("lease.refused", {{"tag", tag.name}, {"error", status.message()}});
  }
  tag.last_error = status.message();
  tag.refusal = status;
  FailWaiters(tag, status);
  RetryLater(tag, MonotonicClock::now() + kRefusalPause);
}

void TagService::RetryLater(Tag& tag, MonotonicTime when) {
  if (stopping_) return;
  tag.retry_armed = true;
  tag.retry_timer.expires_at(when);
  tag.retry_timer.async_wait([this, name = tag.name](const boost::system::error_code& error) {
    if (error) return;
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
  health_ = health;
}

// Closing leases.

void TagService::CloseExhausted(Tag& tag) {
  if (tag.ring == nullptr) return;
  std::vector<LeaseClosure> closures;
  for (const LeaseUse& use : tag.ring->TakeExhausted()) {
    tag.closed_claimed += use.claimed;
    closures.push_back(Abandoned(use));
  }
  if (!closures.empty()) Close(std::move(closures));
  if (tag.ring->forged()) Quarantine(tag);
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
  std::vector<LeaseClosure> closures;
  for (const LeaseUse& use : drained) {
    tag.closed_claimed += use.claimed;
    closures.push_back(Abandoned(use));
  }
  log::Error("ring.quarantined", {{"tag", tag.name},
                                  {"ring", tag.ring->ring_id()},
                                  {"leases", closures.size()},
                                  {"reason", "a client forged a cursor"},
                                  {"action", "its segments are abandoned, a new ring is made"}});
  tag.ring.reset();
  if (!closures.empty()) Close(std::move(closures));
  if (Status status = EnsureRing(tag); !status.ok()) FailWaiters(tag, status);
}

void TagService::Close(std::vector<LeaseClosure> closures) {
  for (LeaseClosure& closure : closures) closing_.emplace(closure.token, std::move(closure));
  FlushClosing();
}

void TagService::FlushClosing() {
  if (closing_.empty() || flushing_) return;
  flushing_ = true;
  std::vector<LeaseClosure> batch;
  for (const auto& [token, closure] : closing_) batch.push_back(closure);
  worker_.Submit<bool>(
      [batch, &session = worker_.session()](Store& store, HighWaterMarks&) -> Result<bool> {
        if (Status status = store.CloseLeases(batch); !status.ok()) return status;
        for (const LeaseClosure& closure : batch) session.held.erase(closure.token);
        return true;
      },
      [this, batch](const Result<bool>& done) {
        flushing_ = false;
        // What could not be journalled stays, and goes with the next batch: Poll() sees to it.
        if (done.ok()) {
          for (const LeaseClosure& closure : batch) closing_.erase(closure.token);
          FlushClosing();
        }
        FinishShutdownIfIdle();
      });
}

void TagService::HandBack(const LeaseUse& use) {
  if (use.available() == 0) {
    Close({Abandoned(use)});
    return;
  }
  const LeaseClosure closure{.token = use.lease.token,
                             .tag = use.lease.tag,
                             .state = LeaseState::kReturned,
                             .claimed = use.claimed};
  const std::uint64_t first_unclaimed = use.lease.ids.first + use.claimed;
  // Where this host's knowledge ends without the tail. Of an unused lease that is not its base:
  // what lies between the earlier mark and it belongs to other hosts, which may hand it back.
  const std::uint64_t mark = use.claimed == 0 ? use.lease.previous_mark : first_unclaimed;
  const std::uint64_t limit = use.lease.ids.limit;
  returning_[closure.token] = closure;
  worker_.Submit<ReturnOutcome>(
      [closure, mark, limit, &session = worker_.session()](
          Store& store, HighWaterMarks& marks) -> Result<ReturnOutcome> {
        // It is drained: if it cannot go back, whatever re-opens the store abandons it.
        session.held.erase(closure.token);
        // First the mark, whatever the store answers: the tail is drained, so that nobody was given
        // an id of it, and a range below the mark could not be taken back. A mark that has moved on
        // is a later lease's and stays.
        const Result<std::uint64_t> now = marks.Get(closure.tag);
        if (!now.ok()) return now.status();
        if (now.value() == limit) {
          if (Status status = marks.Lower(closure.tag, mark); !status.ok()) return status;
        }
        return store.ReturnTail(closure);
      },
      [this, closure, limit, first_unclaimed](const Result<ReturnOutcome>& outcome) {
        returning_.erase(closure.token);
        const char* how = "failed; will be journalled as abandoned";
        if (outcome.ok()) {
          how = outcome.value() == ReturnOutcome::kLowered  ? "max_id lowered"
                : outcome.value() == ReturnOutcome::kListed ? "listed as returned"
                : outcome.value() == ReturnOutcome::kAbandoned
                    ? "journalled as abandoned: the database was replaced under it"
                    : "stale; nothing changed";
        }
        log::Info("lease.handed_back", {{"tag", closure.tag},
                                        {"first", first_unclaimed},
                                        {"limit", limit},
                                        {"outcome", how},
                                        {"error", outcome.status().message()}});
        FinishShutdownIfIdle();
      });
}

void TagService::OnTagChanged(const TagRecord& record) {
  const auto it = tags_.find(record.tag);
  if (it == tags_.end()) return;
  if (it->second->record.has_value()) it->second->record = record;
  it->second->last_error.clear();
  it->second->refusal = Status::Ok();
  it->second->retry_armed = false;
  it->second->retry_timer.cancel();
  EnforceAccess(*it->second);
  MaybeLease(*it->second);
}

void TagService::OnTagDeleted(const std::string& tag) {
  const auto it = tags_.find(tag);
  if (it == tags_.end()) return;
  const TagPtr gone = std::move(it->second);
  tags_.erase(it);
  FailWaiters(*gone, {Code::kNoSuchTag, "tag '" + tag + "' was deleted"});
  if (gone->ring == nullptr) return;
  std::vector<LeaseClosure> closures;
  for (const LeaseUse& use : gone->ring->Retire()) closures.push_back(Abandoned(use));
  log::Info("ring.retired", {{"tag", tag}, {"reason", "the tag was deleted"}});
  Close(std::move(closures));
}

// Looking.

void TagService::Poll() {
  const MonotonicTime now = MonotonicClock::now();
  for (auto& [name, tag] : tags_) {
    if (tag->ring == nullptr) continue;
    EnforceAccess(*tag);  // if it could not be done at the change
    CloseExhausted(*tag);
    MaybeLease(*tag);
    const std::uint64_t claimed = tag->Claimed();
    const double seconds = std::chrono::duration<double>(now - tag->polled_at).count();
    if (tag->polled_at != MonotonicTime{} && seconds > 0) {
      // A forged cursor may make the count fall.
      const std::uint64_t more = claimed - std::min(claimed, tag->polled_claimed);
      const double rate = static_cast<double>(more) / seconds;
      tag->rate_per_s += kRateWeight * (rate - tag->rate_per_s);
    }
    tag->polled_claimed = claimed;
    tag->polled_at = now;
  }
  FlushClosing();
  // So that a store that comes back, or is replaced, is noticed and told without anybody asking for
  // ids: the other hosts of one that was replaced wait no longer than kLeaseGrace for our marks.
  if (!stopping_) worker_.LookAtStore();
}

const char* TagService::StateOf(const Tag& tag, std::uint64_t available) const {
  const bool recently =
      tag.quarantines != 0 && MonotonicClock::now() - tag.quarantined_at < kQuarantineShown;
  if (recently) return "quarantined";
  return tag.ring != nullptr && available == 0 ? "dry" : "ok";
}

std::vector<TagSnapshot> TagService::Snapshot() const {
  std::vector<TagSnapshot> snapshots;
  for (const auto& [name, tag] : tags_) {
    if (!tag->record.has_value()) continue;
    TagSnapshot& snapshot = snapshots.emplace_back();
    snapshot.tag = name;
    snapshot.mode = tag->record->mode;
    snapshot.step = tag->record->step;
    if (tag->ring != nullptr) snapshot.leases = tag->ring->Look();
    snapshot.claimed = tag->closed_claimed;
    std::uint64_t available = 0;
    for (const LeaseUse& use : snapshot.leases) {
      snapshot.claimed += use.claimed;
      available += use.available();
    }
    snapshot.state = StateOf(*tag, available);
    snapshot.rate_per_s = tag->rate_per_s;
    snapshot.fallbacks = tag->fallbacks;
    snapshot.leases_taken = tag->leases_taken;
    snapshot.last_error = tag->last_error;
  }
  return snapshots;
}

std::map<std::string, LeaseClosure, std::less<>> TagService::LiveLeases() const {
  std::map<std::string, LeaseClosure, std::less<>> live = closing_;
  for (const auto& [token, closure] : returning_) {
    live[token] = closure;
    live[token].state = LeaseState::kActive;  // until the store has it back
  }
  for (const auto& [name, tag] : tags_) {
    if (tag->ring == nullptr) continue;
    for (const LeaseUse& use : tag->ring->Look()) {
      live[use.lease.token] = {.token = use.lease.token,
                               .tag = name,
                               .state = LeaseState::kActive,
                               .claimed = use.claimed};
    }
  }
  return live;
}

// Ending.

void TagService::Shutdown(std::function<void()> done) {
  stopping_ = true;
  shutdown_done_ = std::move(done);
  for (auto& [name, tag] : tags_) {
    tag->deadline_timer.cancel();
    tag->retry_timer.cancel();
    FailWaiters(*tag, {Code::kUnavailable, "idd is stopping"});
    if (tag->ring == nullptr) continue;
    tag->tails = tag->ring->Retire();
    if (tag->ring->forged()) {
      // Some of what looks unclaimed may have been handed out: none of it may be leased again.
      std::vector<LeaseClosure> closures;
      for (const LeaseUse& use : std::exchange(tag->tails, {})) closures.push_back(Abandoned(use));
      log::Error("ring.quarantined", {{"tag", name},
                                      {"ring", tag->ring->ring_id()},
                                      {"leases", closures.size()},
                                      {"reason", "a client forged a cursor"},
                                      {"action", "nothing of it is handed back"}});
      Close(std::move(closures));
    }
    HandBackTails(*tag);
  }
  FlushClosing();  // also what an earlier try could not journal
  FinishShutdownIfIdle();
}

// The newest first: each lowers max_id to where the one before it ends. So a lease that is still
// under way has to be waited for: it is the newest.
void TagService::HandBackTails(Tag& tag) {
  if (tag.store_busy) return;
  while (!tag.tails.empty()) {
    const LeaseUse newest = std::move(tag.tails.back());
    tag.tails.pop_back();
    HandBack(newest);
  }
  FinishShutdownIfIdle();
}

void TagService::FinishShutdownIfIdle() {
  if (!stopping_ || !shutdown_done_ || !returning_.empty() || flushing_) return;
  for (const auto& [name, tag] : tags_) {
    if (tag->store_busy) return;
  }
  std::exchange(shutdown_done_, nullptr)();
}

}  // namespace idd::daemon
