// SPDX-License-Identifier: Apache-2.0
#include "tags/wait_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "idd/base/check.h"

namespace idd::daemon {

void WaitQueue::Waiter::Fail(const Status& status) const {
  if (attach_done) {
    attach_done(status);
  } else {
    claim_done(status);
  }
}

void WaitQueue::PushAttach(RequestContext context, AttachDone done) {
  waiters_.push_back(
      {.context = context, .number = ++newest_, .attach_done = std::move(done), .claim_done = {}});
}

void WaitQueue::PushClaim(RequestContext context, std::uint64_t ring_id, std::uint64_t count,
                          ClaimDone done) {
  waiters_.push_back({.context = context,
                      .ring_id = ring_id,
                      .count = count,
                      .number = ++newest_,
                      .turn = turn_,
                      .attach_done = {},
                      .claim_done = std::move(done)});
}

std::uint64_t WaitQueue::IdsWanted() const {
  std::uint64_t ids = 0;
  for (const Waiter& waiter : waiters_) {
    if (waiter.claim_done) ids += std::min(waiter.count, kMaxForOneWaiter);
  }
  return ids;
}

MonotonicTime WaitQueue::FirstDeadline() const {
  IDD_CHECK(!waiters_.empty());
  const auto first =
      std::min_element(waiters_.begin(), waiters_.end(), [](const Waiter& a, const Waiter& b) {
        return a.context.deadline.at() < b.context.deadline.at();
      });
  return first->context.deadline.at();
}

bool WaitQueue::AnswerAttaches(const AttachGrant& grant) {
  std::list<Waiter> attaches;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const auto next = std::next(it);
    if (it->attach_done) attaches.splice(attaches.end(), waiters_, it);
    it = next;
  }
  for (const Waiter& waiter : attaches) waiter.attach_done(grant);
  return !attaches.empty();
}

WaitQueue::Answers WaitQueue::ServeOldest(const Take& take, std::uint64_t last) {
  Answers answers;
  if (waiters_.empty()) return answers;
  const std::uint64_t owner = waiters_.front().context.owner;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if (it->number > last) break;
    if (it->context.owner != owner) {
      ++it;
      continue;
    }
    IDD_CHECK(it->claim_done);
    const shm::IdRange ids = take(it->count);
    if (ids.empty()) break;
    answers.claims_.push_back({.done = std::move(it->claim_done),
                               .ring_id = it->ring_id,
                               .ids = ids,
                               .has_waited = it->turn != turn_});
    it = waiters_.erase(it);
  }
  return answers;
}

void WaitQueue::Answers::Send(std::uint64_t ring_id) {
  const std::vector<Answer> claims = std::exchange(claims_, {});
  for (std::size_t i = 0; i < claims.size(); ++i) {
    claims[i].done(ClaimGrant{.ids = claims[i].ids,
                              .attach_again = claims[i].ring_id != ring_id,
                              .more_follow = i + 1 < claims.size(),
                              .has_waited = claims[i].has_waited});
  }
}

void WaitQueue::FailUpTo(std::uint64_t last, const Status& status) {
  const auto next = std::find_if(waiters_.begin(), waiters_.end(),
                                 [last](const Waiter& waiter) { return waiter.number > last; });
  std::list<Waiter> failed;
  failed.splice(failed.end(), waiters_, waiters_.begin(), next);
  for (const Waiter& waiter : failed) waiter.Fail(status);
}

void WaitQueue::FailExpired(const std::function<Status()>& reason) {
  std::list<Waiter> expired;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const auto next = std::next(it);
    if (it->context.deadline.passed()) expired.splice(expired.end(), waiters_, it);
    it = next;
  }
  for (const Waiter& waiter : expired) waiter.Fail(reason());
}

void WaitQueue::Drop(std::uint64_t owner) {
  waiters_.remove_if([owner](const Waiter& waiter) { return waiter.context.owner == owner; });
}

}  // namespace idd::daemon
