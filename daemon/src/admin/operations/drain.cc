// SPDX-License-Identifier: Apache-2.0
//
// `drain`: takes a tag, or the whole host, out of use.
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/drain_scope.h"
#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "platform/event_loop.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// How long a request may wait for the store to take the tails, and how long it waits by default.
constexpr std::uint64_t kMaxWaitMs = 600'000;
constexpr std::uint64_t kDefaultWaitMs = 60'000;
constexpr milliseconds kLookPause(20);

Result<milliseconds> ReadWait(const AdminRequest& request) {
  const Result<std::optional<std::uint64_t>> wait_ms = NumberField(request, "wait_ms");
  if (!wait_ms.ok()) return wait_ms.status();
  const std::uint64_t wait = wait_ms.value().value_or(kDefaultWaitMs);
  if (wait <= kMaxWaitMs) return milliseconds(wait);
  return Status(Code::kInvalid, "'wait_ms' must be at most " + std::to_string(kMaxWaitMs));
}

struct DrainWait {
  std::string scope;
  bool was_drained = false;
  uid_t uid = 0;
  Deadline deadline;
  AdminDone done;
  bool is_logged = false;
};

void LogDrained(const std::string& scope, const TagService::DrainProgress& progress, uid_t uid) {
  const std::uint64_t ids = progress.count.ids_pending + progress.count.ids_returned;
  if (scope == kWholeHost) {
    log::Warning("host.drained", {{"tags", progress.tags}, {"ids", ids}, {"uid", uid}});
  } else {
    log::Warning("tag.drained", {{"tag", scope}, {"ids", ids}, {"uid", uid}});
  }
}

// Checks again until all rings are closed, and then until everything is back, the store is
// unavailable, or the time is up. No id is handed out after the reply.
void AwaitDrain(AdminContext& context, DrainWait wait) {
  const StoreHealth& health = context.tags.store_health();
  const auto look_again = [&context, &wait] {
    auto timer = std::make_shared<Timer>(context.loop);
    timer->After(kLookPause,
                 [&context, timer, wait = std::move(wait)] { AwaitDrain(context, wait); });
  };
  if (context.tags.IsClosing(wait.scope)) return look_again();
  if (!wait.was_drained && !std::exchange(wait.is_logged, true)) {
    LogDrained(wait.scope, context.tags.ProgressOf(wait.scope), wait.uid);
  }
  const bool has_to_end = !health.up || wait.deadline.passed();
  if (!has_to_end && !context.tags.MayBeDone(wait.scope)) return look_again();
  const TagService::DrainProgress progress = context.tags.ProgressOf(wait.scope);
  if (!has_to_end && !progress.done()) return look_again();
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
  wait.done(Status::Ok(), Dump(document));
}

}  // namespace

// The drain is recorded before the rings are closed. If the daemon dies in between, it closes them
// at its next start; if it cannot record the drain, it closes nothing.
void Drain(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
           AdminDone done) {
  const Result<std::string> scope = ReadScope(request);
  const Result<milliseconds> wait = ReadWait(request);
  if (!scope.ok()) return Fail(done, scope.status());
  if (!wait.ok()) return Fail(done, wait.status());
  const DrainWait drain{.scope = scope.value(),
                        .was_drained = context.tags.drains().Has(scope.value()),
                        .uid = rights.peer().uid,
                        .deadline = Deadline::After(wait.value()),
                        .done = std::move(done)};
  context.drains.FindScope(drain.scope, [&context, drain](const Status& known) {
    if (!known.ok()) return Fail(drain.done, known);
    context.drains.SetDrained(drain.scope, true, [&context, drain](const Status& noted) {
      if (!noted.ok()) return Fail(drain.done, noted.WithContext("the drain cannot be noted"));
      context.tags.Drain(drain.scope);
      AwaitDrain(context, drain);
    });
  });
}

}  // namespace idd::daemon
