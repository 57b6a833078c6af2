// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "idd/base/clock.h"
#include "leasing/recovery.h"
#include "platform/logging.h"
#include "restart/descriptor_names.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

// The slow poll, for changes that no wake-up has reported.
constexpr std::chrono::seconds kPollInterval(1);
// A start waits at most this long for a store that does not answer.
constexpr std::chrono::milliseconds kStartPatience(2500);
// A stop waits at most this long for the store to take another tail back,
constexpr std::chrono::seconds kStopPatience(10);
// and this long for all of them: less than TimeoutStopSec of the unit.
constexpr std::chrono::seconds kStopAtMost(45);

}  // namespace

Result<Inheritance> TakeInheritance(std::vector<PassedDescriptor> passed,
                                    const std::string& host_id, HighWaterMarks& marks) {
  const Result<std::string> list = marks.HeldList();
  if (!list.ok()) return list.status();
  Result<Inheritance> inheritance = Inherit(passed, host_id, list.value());
  if (!inheritance.ok()) return inheritance;
  for (const PassedDescriptor& descriptor : passed) {
    log::Warning("descriptor.unknown", {{"name", descriptor.name}, {"action", "closed"}});
    inheritance.value().names.push_back(descriptor.name);
  }
  const std::string id = inheritance.value().held->id();
  if (id == list.value()) return inheritance;
  // Before anything is recorded in the list: from here on no older list is valid.
  if (Status status = marks.SetHeldList(id); !status.ok()) return status;
  return inheritance;
}

Engine::Engine(EventLoop& loop, DescriptorStore& descriptors, Settings settings, Parts parts,
               Events events)
    : host_(std::move(parts.host)),
      settings_(std::move(settings)),
      events_(std::move(events)),
      descriptors_(descriptors),
      inheritance_(std::move(parts.inheritance)),
      worker_(std::move(parts.store), std::move(parts.marks),
              [&loop](std::function<void()> done) { loop.Post(std::move(done)); }),
      tags_(loop, worker_, {.leases = *inheritance_.held, .descriptors = descriptors},
            settings_.leases_per_s),
      journal_(loop, worker_, settings_.journal_retention),
      poll_timer_(loop),
      patience_(loop) {
  tags_.LoadDrained(parts.drained);
}

void Engine::Start() {
  Inherit();
  worker_.Start(Recover, [this](const StoreHealth& health) { tags_.OnStoreHealth(health); });
  worker_.Submit<bool>([](Store&, HighWaterMarks&) -> Result<bool> { return true; },
                       [this](const Result<bool>& opened) { OnFirstContact(opened.status()); });
  patience_.After(kStartPatience, [this] { Settle(); });
}

// Runs before the worker starts, so that the worker knows its leases before it opens the store.
void Engine::Inherit() {
  StoreSession session;
  session.agreement = Agreement({.host = host_.id, .now_ms = settings_.boot_time_ms});
  for (const LeftTag& tag : inheritance_.tags) {
    for (const HeldLease& held : tag.leases) session.held[held.lease.token] = held.lease;
  }
  for (const auto* ended : {&inheritance_.closing, &inheritance_.returning}) {
    for (const LeaseUse& use : *ended) session.held[use.lease.token] = use.lease;
  }
  for (const auto& [token, tag] : inheritance_.asked) session.unanswered.insert(token);
  worker_.Assume(std::move(session));
  for (const std::string& name : inheritance_.names) DropInherited(descriptors_, name);
  for (const LeftTag& tag : inheritance_.tags) {
    for (const LeftTagRing& ring : tag.rings) {
      for (const std::string& name : ring.names) ReserveInherited(descriptors_, name);
    }
  }
  if (!inheritance_.held_is_kept) {
    descriptors_.Keep(kHeldLeasesName, inheritance_.held->fd());
  }
  // Claimers whose ring is about to be closed will ask for the next one and must not wait for the
  // store.
  if (!inheritance_.tags.empty() && !events_.listen()) return;
  tags_.Inherit(inheritance_, [this] {
    has_taken_over_ = true;
    BecomeReady();
  });
}

void Engine::OnFirstContact(const Status& status) {
  // Another program's file, a newer schema or a corrupt file needs an operator, and is not touched
  // until then. An unavailable store may come back without one.
  if (status.code() == Code::kIncompatible && !has_settled_) return events_.on_failed(status);
  if (!status.ok()) return Settle();
  // Lease for the tags that this host has served before, so that they have ids before a client can
  // ask. If that takes too long, the remaining tags get ids when they are asked for.
  worker_.Submit<std::vector<TagMark>>(
      [](Store&, HighWaterMarks& marks) { return marks.All(); },
      [this](const Result<std::vector<TagMark>>& marks) { WarmUp(marks); });
}

void Engine::WarmUp(const Result<std::vector<TagMark>>& marks) {
  if (!marks.ok() || is_stopping_ || has_settled_) return Settle();
  std::vector<std::string> known;
  std::set<std::string> seen;  // a snowflake tag has a mark for each worker id
  for (const TagMark& mark : marks.value()) {
    std::string name = ServedName(mark.tag);
    if (seen.insert(name).second) known.push_back(std::move(name));
  }
  if (known.size() > settings_.most_tags_to_warm) known.resize(settings_.most_tags_to_warm);
  tags_.Warm(known, [this] { Settle(); });
}

void Engine::Settle() {
  if (has_settled_ || is_stopping_) return;
  has_settled_ = true;
  patience_.Cancel();
  tags_.StopWarming();
  BecomeReady();
}

void Engine::BecomeReady() {
  if (!has_settled_ || !has_taken_over_ || is_stopping_ || !events_.listen()) return;
  is_ready_ = true;
  SchedulePoll();
  journal_.Start();
  events_.on_ready();
}

void Engine::SchedulePoll() {
  poll_timer_.After(kPollInterval, [this] {
    const std::chrono::nanoseconds lateness = MonotonicClock::now() - poll_timer_.expiry();
    tags_.Poll();
    events_.on_poll(lateness);
    SchedulePoll();
  });
}

void Engine::Leave() {
  is_stopping_ = true;
  journal_.Stop();
  worker_.DropQueued();
}

void Engine::Stop(std::function<void(bool is_clean)> done) {
  is_stopping_ = true;
  poll_timer_.Cancel();
  journal_.Stop();
  const MonotonicTime now = MonotonicClock::now();
  LimitStop({.ended = tags_.ended(), .at = now, .until = now + kStopAtMost}, done);
  tags_.Shutdown([done = std::move(done)] { done(true); });
}

void Engine::LimitStop(StopProgress progress, std::function<void(bool is_clean)> done) {
  const MonotonicTime now = MonotonicClock::now();
  if (tags_.ended() != progress.ended) {
    progress.ended = tags_.ended();
    progress.at = now;
  }
  const MonotonicTime end = std::min(progress.at + kStopPatience, progress.until);
  if (now >= end) {
    worker_.DropQueued();
    return done(false);
  }
  patience_.At(std::min(now + kPollInterval, end),
               [this, progress, done = std::move(done)] { LimitStop(progress, done); });
}

}  // namespace idd::daemon
