// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/claimable.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "admin/shared/admin_context.h"
#include "idd/base/clock.h"
#include "platform/event_loop.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMaxWaitMs = 600'000;
constexpr std::uint64_t kDefaultWaitMs = 5000;
// As often as a host looks at the term while something waits for the witnesses.
constexpr milliseconds kLookPause(200);

struct ClaimableWait {
  std::vector<std::string> tags;  // still to be asked for in this round
  Coverage found;                 // of this round
  Deadline deadline;
  std::function<void(const Coverage&)> done;
};

void GoOn(AdminContext& context, const std::shared_ptr<ClaimableWait>& wait);

// Every tag is asked for at least once: that raises its ceiling, even if the wait is over then.
void EndRound(AdminContext& context, const std::shared_ptr<ClaimableWait>& wait) {
  if (wait->found.waiting.empty() || wait->deadline.passed()) return wait->done(wait->found);
  wait->tags = std::exchange(wait->found, Coverage()).waiting;
  auto timer = std::make_shared<Timer>(context.loop);
  timer->After(kLookPause, [&context, timer, wait] { GoOn(context, wait); });
}

void Add(Coverage part, Coverage& found) {
  found.waiting.insert(found.waiting.end(), part.waiting.begin(), part.waiting.end());
  if (part.waiting.empty()) return;
  found.reason = std::move(part.reason);
  found.waits = std::move(part.waits);
}

void GoOn(AdminContext& context, const std::shared_ptr<ClaimableWait>& wait) {
  if (wait->tags.empty()) return EndRound(context, wait);
  const std::size_t rest = wait->tags.size() - std::min(wait->tags.size(), kMaxTagsToCover);
  const auto begin = wait->tags.begin() + static_cast<std::ptrdiff_t>(rest);
  const std::vector<std::string> part(begin, wait->tags.end());
  wait->tags.resize(rest);
  context.worker.SubmitWithSession<Coverage>(
      [part](Store& store, HighWaterMarks& marks, StoreSession& session) {
        return CoverTags(part, store, marks, session);
      },
      [&context, wait, part](Result<Coverage> covered) {
        Add(covered.ok()
                ? std::move(covered).value()
                : Coverage{.waiting = part, .reason = covered.status().message(), .waits = {}},
            wait->found);
        GoOn(context, wait);
      });
}

}  // namespace

Result<milliseconds> WaitField(const AdminRequest& request) {
  const Result<std::optional<std::uint64_t>> wait_ms = NumberField(request, "wait_ms");
  if (!wait_ms.ok()) return wait_ms.status();
  const std::uint64_t wait = wait_ms.value().value_or(kDefaultWaitMs);
  if (wait <= kMaxWaitMs) return milliseconds(wait);
  return Status(Code::kInvalid, "'wait_ms' must be at most " + std::to_string(kMaxWaitMs));
}

void AwaitClaimable(AdminContext& context, std::vector<std::string> tags, milliseconds wait,
                    std::function<void(const Coverage&)> done) {
  GoOn(context, std::make_shared<ClaimableWait>(ClaimableWait{.tags = std::move(tags),
                                                              .found = {},
                                                              .deadline = Deadline::After(wait),
                                                              .done = std::move(done)}));
}

void AddClaimable(const Coverage& coverage, Json& reply) {
  reply["claimable"] = coverage.waiting.empty();
  reply["reason"] = OrNull(coverage.reason);
  reply["waits_for"] = WaitsJson(coverage.waits);
}

}  // namespace idd::daemon
