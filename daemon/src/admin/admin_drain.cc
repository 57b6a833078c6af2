// SPDX-License-Identifier: Apache-2.0
//
// Admin: taking a tag, or the whole host, out of use and back.
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/admin.h"
#include "admin/admin_fields.h"
#include "platform/event_loop.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// What one request may wait for the store to take the tails, and does without a word.
constexpr std::uint64_t kMaxWaitMs = 600'000;
constexpr std::uint64_t kDefaultWaitMs = 60'000;
constexpr milliseconds kLookPause(20);

// The tag that is named, or kWholeHost.
Result<std::string> ReadScope(const Request& request) {
  const Result<std::optional<std::string>> tag = TextField(request, "tag");
  if (!tag.ok()) return tag.status();
  if (!tag.value().has_value()) return std::string(kWholeHost);
  return TagField(request);
}

Result<milliseconds> ReadWait(const Request& request) {
  const Result<std::optional<std::uint64_t>> wait_ms = NumberField(request, "wait_ms");
  if (!wait_ms.ok()) return wait_ms.status();
  const std::uint64_t wait = wait_ms.value().value_or(kDefaultWaitMs);
  if (wait <= kMaxWaitMs) return milliseconds(wait);
  return Status(Code::kInvalid, "'wait_ms' must be at most " + std::to_string(kMaxWaitMs));
}

Json ScopeJson(const std::string& scope) {
  const bool is_host = scope == kWholeHost;
  return {{"scope", is_host ? "host" : "tag"}, {"tag", is_host ? Json(nullptr) : Json(scope)}};
}

void LogDrained(const std::string& scope, const TagService::DrainProgress& progress, uid_t uid) {
  const std::uint64_t ids = progress.count.ids_pending + progress.count.ids_returned;
  if (scope == kWholeHost) {
    log::Warning("host.drained", {{"tags", progress.tags}, {"ids", ids}, {"uid", uid}});
  } else {
    log::Warning("tag.drained", {{"tag", scope}, {"ids", ids}, {"uid", uid}});
  }
}

void LogResumed(const std::string& scope, uid_t uid) {
  if (scope == kWholeHost) {
    log::Info("host.resumed", {{"uid", uid}});
  } else {
    log::Info("tag.resumed", {{"tag", scope}, {"uid", uid}});
  }
}

}  // namespace

// The store is asked only about a tag that nothing here knows of, or that is being deleted: what is
// noted of it behind its deletion would be its namesake's.
void Admin::FindScope(const std::string& scope, std::function<void(const Status&)> then) {
  const bool is_known = tags_.drains().Has(scope) || tags_.Knows(scope);
  if (scope == kWholeHost || (is_known && !deleting_.contains(scope))) return then(Status::Ok());
  worker_.Submit<TagRecord>([scope](Store& store, HighWaterMarks&) { return store.FindTag(scope); },
                            [this, scope, then = std::move(then)](const Result<TagRecord>& record) {
                              if (record.ok() && deleting_.contains(scope))
                                return FindScope(scope, then);
                              then(record.status());
                            });
}

void Admin::SetDrained(const std::string& scope, bool is_drained,
                       std::function<void(const Status&)> then) {
  // What is known here is what is noted, unless a change is on its way, or the last one failed and
  // may be noted all the same.
  const bool is_sure = drain_changes_ == 0 && !unsure_drains_.contains(scope);
  if (is_sure && tags_.drains().Has(scope) == is_drained) return then(Status::Ok());
  ++drain_changes_;
  worker_.SubmitForMarks<bool>(
      [scope, is_drained](HighWaterMarks& marks) -> Result<bool> {
        if (Status status = marks.SetDrained(scope, is_drained); !status.ok()) return status;
        return true;
      },
      [this, scope, then = std::move(then)](const Result<bool>& noted) {
        --drain_changes_;
        if (noted.ok()) {
          unsure_drains_.erase(scope);
        } else {
          unsure_drains_.insert(scope);
        }
        then(noted.status());
      });
}

// Noted first, closed then: a daemon that dies in between closes at its next start, and one that
// cannot note it closes nothing.
void Admin::Drain(const Request& request, const PeerRights& rights, Done done) {
  const Result<std::string> scope = ReadScope(request);
  const Result<milliseconds> wait = ReadWait(request);
  if (!scope.ok()) return Fail(done, scope.status());
  if (!wait.ok()) return Fail(done, wait.status());
  const DrainWait drain{.scope = scope.value(),
                        .was_drained = tags_.drains().Has(scope.value()),
                        .deadline = Deadline::After(wait.value()),
                        .done = std::move(done)};
  FindScope(drain.scope, [this, drain, uid = rights.peer().uid](const Status& known) {
    if (!known.ok()) return Fail(drain.done, known);
    SetDrained(drain.scope, true, [this, drain, uid](const Status& noted) {
      if (!noted.ok()) return Fail(drain.done, noted.WithContext("the drain cannot be noted"));
      tags_.Drain(drain.scope);
      if (!drain.was_drained) LogDrained(drain.scope, tags_.ProgressOf(drain.scope), uid);
      AwaitDrain(drain);
    });
  });
}

// Looks again until everything is back, or the store is away, or the time is up.
void Admin::AwaitDrain(const DrainWait& wait) {
  const TagService::DrainProgress progress = tags_.ProgressOf(wait.scope);
  const StoreHealth& health = tags_.store_health();
  if (progress.done() || !health.up || wait.deadline.passed()) {
    Json document = ScopeJson(wait.scope);
    document["was_drained"] = wait.was_drained;
    document["done"] = progress.done();
    document["tags"] = progress.tags;
    document["ids_returned"] = progress.count.ids_returned;
    document["ids_abandoned"] = progress.count.ids_abandoned;
    document["ids_pending"] = progress.count.ids_pending;
    document["leases_pending"] = progress.count.leases_pending;
    document["store"] = health.up ? "up" : "down";
    document["store_error"] = health.up ? Json(nullptr) : Json(health.last_error);
    return wait.done(Status::Ok(), Dump(document));
  }
  auto timer = std::make_shared<Timer>(loop_);
  timer->After(kLookPause, [this, timer, wait] { AwaitDrain(wait); });
}

void Admin::Resume(const Request& request, const PeerRights& rights, Done done) {
  const Result<std::string> scope = ReadScope(request);
  if (!scope.ok()) return Fail(done, scope.status());
  const std::string& tag = scope.value();
  if (tag != kWholeHost && tags_.drains().Has(kWholeHost)) {
    return Fail(done, {Code::kInvalid,
                       "the whole host is drained; 'idctl resume' without a tag ends that"});
  }
  FindScope(tag, [this, tag = scope.value(), rights, done = std::move(done)](const Status& known) {
    if (!known.ok()) return Fail(done, known);
    const bool was_drained = tags_.drains().Has(tag);
    SetDrained(tag, false, [this, tag, rights, done, was_drained](const Status& noted) {
      if (!noted.ok()) return Fail(done, noted.WithContext("the drain's end cannot be noted"));
      tags_.Resume(tag);
      if (was_drained) LogResumed(tag, rights.peer().uid);
      Json document = ScopeJson(tag);
      document["was_drained"] = was_drained;
      document["still_drained"] = Json::array();
      for (const std::string& other : tags_.drains().Tags()) {
        if (rights.MaySee(other)) document["still_drained"].push_back(other);
      }
      done(Status::Ok(), Dump(document));
    });
  });
}

}  // namespace idd::daemon
