// SPDX-License-Identifier: Apache-2.0
#include "wait_queue.h"

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
  waiters_.push_back({.context = context, .attach_done = std::move(done), .claim_done = {}});
}

void WaitQueue::PushClaim(RequestContext context, std::uint64_t ring_id, std::uint64_t count,
                          ClaimDone done) {
  waiters_.push_back({.context = context,
                      .ring_id = ring_id,
                      .count = count,
                      .attach_done = {},
                      .claim_done = std::move(done)});
}

std::uint64_t WaitQueue::IdsWanted() const {
  std::uint64_t ids = 0;
  for (const Waiter& waiter : waiters_) {
    if (waiter.claim_done) ids += std::min(waiter.count, kMostForOneWaiter);
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

WaitQueue::Answers WaitQueue::ServeClaims(const Take& take) {
  Answers answers;
  while (!waiters_.empty()) {
    Waiter& first = waiters_.front();
    IDD_CHECK(first.claim_done);
    const shm::IdRange ids = take(first.count);
    if (ids.empty()) break;
    answers.claims_.push_back(
        {.done = std::move(first.claim_done), .ring_id = first.ring_id, .ids = ids});
    waiters_.pop_front();
  }
  return answers;
}

void WaitQueue::Answers::Send(std::uint64_t ring_id) {
  const std::vector<Answer> claims = std::exchange(claims_, {});
  for (const Answer& answer : claims) {
    answer.done(ClaimGrant{.ids = answer.ids,
                           .attach_again = answer.ring_id != ring_id,
                           .among_others = claims.size() > 1});
  }
}

void WaitQueue::FailAll(const Status& status) {
  for (const Waiter& waiter : std::exchange(waiters_, {})) waiter.Fail(status);
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
