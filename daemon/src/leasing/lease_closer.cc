// SPDX-License-Identifier: Apache-2.0
#include "leasing/lease_closer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "platform/logging.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

// At most this many ends are journalled in one transaction: leases that are due must not wait for
// all the ends that an outage has left.
constexpr std::size_t kMaxAtOnce = 100;
// How long an ended lease waits for others, to be journalled with them.
constexpr std::chrono::seconds kGathering(1);

const char* HandedBackHow(const Result<ReturnOutcome>& outcome) {
  if (!outcome.ok()) {
    return "failed; if the store was unavailable, idd tries again, and so does the next idd if it "
           "inherits the lease";
  }
  switch (outcome.value()) {
    case ReturnOutcome::kLowered:
      return "max_id lowered";
    case ReturnOutcome::kListed:
      return "listed as returned";
    case ReturnOutcome::kAbandoned:
      return "journalled as abandoned: the database was replaced under it";
    case ReturnOutcome::kStale:
      break;
  }
  return "stale; nothing changed";
}

// Whether the journal has the lease, which ends at `limit`, as active. If its ids went back
// earlier, they may have been leased again, and the mark belongs to the later lease.
Result<bool> IsActive(const LeaseClosure& closure, std::uint64_t limit, Store& store) {
  LeaseFilter filter;
  filter.tag = closure.tag;
  filter.state = LeaseState::kActive;
  filter.containing = limit - 1;
  const Result<std::vector<LeaseRecord>> records = store.ListLeases(filter);
  if (!records.ok()) return records.status();
  return std::any_of(
      records.value().begin(), records.value().end(),
      [&closure](const LeaseRecord& record) { return record.token == closure.token; });
}

// Finds the asked leases that the journal has as active. From here on `session` holds them.
Result<std::vector<Lease>> FindUnanswered(const AskedLeases& asked, Store& store,
                                          const std::string& host, StoreSession& session) {
  std::set<std::string> tags;
  for (const auto& [token, tag] : asked) tags.insert(tag);
  std::vector<Lease> found;
  for (const std::string& tag : tags) {
    LeaseFilter active{.tag = tag, .host = host, .state = LeaseState::kActive};
    const Result<std::vector<LeaseRecord>> records = store.ListLeases(active);
    if (!records.ok()) return records.status();
    for (const LeaseRecord& record : records.value()) {
      if (!asked.contains(record.token)) continue;
      // The mark before the lease is unknown; the lease's base is never too low.
      found.push_back({.token = record.token,
                       .tag = record.tag,
                       .ids = record.ids,
                       .previous_mark = record.ids.first});
    }
  }
  for (const Lease& lease : found) session.held[lease.token] = lease;
  for (const auto& [token, tag] : asked) session.unanswered.erase(token);
  return found;
}

void LogHandedBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
  log::Info("lease.handed_back", {{"tag", use.lease.tag},
                                  {"first", use.lease.ids.first + use.claimed},
                                  {"limit", use.lease.ids.limit},
                                  {"outcome", HandedBackHow(outcome)},
                                  {"error", outcome.status().message()}});
}

}  // namespace

LeaseCloser::LeaseCloser(LeaseWorker& worker, HeldLeases& held, std::function<void()> on_idle,
                         OnAnswer on_answer)
    : worker_(worker),
      held_(held),
      on_idle_(std::move(on_idle)),
      on_answer_(std::move(on_answer)),
      most_at_once_(kMaxAtOnce) {}

bool IsWorthRetrying(const Status& status) {
  return IsOfStore(status) || status.code() == Code::kTimeout;
}

LeaseClosure Abandoned(const LeaseUse& use) {
  return {.token = use.lease.token,
          .tag = use.lease.tag,
          .state = use.available() == 0 ? LeaseState::kExhausted : LeaseState::kAbandoned,
          .claimed = use.claimed};
}

void LeaseCloser::Close(std::vector<LeaseClosure> closures) {
  for (LeaseClosure& closure : closures) {
    held_.RecordClosing(closure.token, closure.claimed);
    closing_.emplace(closure.token, std::move(closure));
  }
  const bool is_due = is_hurried_ || closing_.size() >= kMaxAtOnce ||
                      MonotonicClock::now() - journalled_at_ >= kGathering;
  if (is_due) JournalAll();
}

void LeaseCloser::Flush() {
  LookUpUnanswered();
  ReturnAgain();
  may_try_refused_ = true;
  JournalAll();
}

void LeaseCloser::JournalAll() {
  due_ = closing_.size();
  JournalSome();
}

// The next ends to journal together. Those that were refused alone do not keep the others waiting.
std::vector<LeaseClosure> LeaseCloser::NextEnds() {
  std::vector<LeaseClosure> batch;
  for (const auto& [token, closure] : closing_) {
    if (batch.size() == most_at_once_) break;
    if (!refused_ends_.contains(token)) batch.push_back(closure);
  }
  if (batch.empty() && may_try_refused_ && !refused_ends_.empty()) {
    may_try_refused_ = false;
    auto next = refused_ends_.upper_bound(tried_last_);
    if (next == refused_ends_.end()) next = refused_ends_.begin();
    tried_last_ = *next;
    batch.push_back(closing_.at(tried_last_));
  }
  return batch;
}

void LeaseCloser::JournalSome() {
  if (flushing_) return;
  const std::vector<LeaseClosure> batch = NextEnds();
  if (batch.empty()) return;
  flushing_ = true;
  journalled_at_ = MonotonicClock::now();
  worker_.SubmitWithSession<bool>(
      [batch](Store& store, HighWaterMarks&, StoreSession& session) -> Result<bool> {
        if (Status status = store.CloseLeases(batch); !status.ok()) return status;
        for (const LeaseClosure& closure : batch) session.held.erase(closure.token);
        return true;
      },
      [this, batch](const Result<bool>& done) { OnJournalled(batch, done.status()); });
}

void LeaseCloser::OnJournalled(const std::vector<LeaseClosure>& batch, const Status& status) {
  flushing_ = false;
  const bool is_halved = !status.ok() && !IsOfStore(status) && batch.size() > 1;
  if (!is_halved) due_ -= std::min(due_, batch.size());
  bool goes_on = due_ > 0;
  if (status.ok()) {
    most_at_once_ = std::min(2 * most_at_once_, kMaxAtOnce);
    ended_ += batch.size();
    for (const LeaseClosure& closure : batch) {
      closing_.erase(closure.token);
      refused_ends_.erase(closure.token);
      held_.Forget(closure.token);
    }
  } else if (IsOfStore(status)) {
    goes_on = false;  // the ends stay, and go with the next batch
  } else if (is_halved) {
    most_at_once_ = batch.size() / 2;
    goes_on = true;
  } else {
    const LeaseClosure& closure = batch.front();
    if (refused_ends_.insert(closure.token).second) {
      log::Error("lease.end_refused", {{"tag", closure.tag},
                                       {"token", closure.token},
                                       {"error", status.message()},
                                       {"action", "tried again; other leases are not affected"}});
    }
    goes_on = closing_.size() > refused_ends_.size();
  }
  if (goes_on) JournalSome();
  if (idle()) on_idle_();
}

void LeaseCloser::HandBack(const LeaseUse& use) {
  if (use.available() == 0) {
    Close({Abandoned(use)});
    return;
  }
  const LeaseClosure closure{.token = use.lease.token,
                             .tag = use.lease.tag,
                             .state = LeaseState::kReturned,
                             .claimed = use.claimed};
  // This host's mark without the tail. For an unused lease it is not the lease's base: the ids
  // between the earlier mark and the base belong to other hosts, which may hand them back.
  const std::uint64_t mark =
      use.claimed == 0 ? use.lease.previous_mark : use.lease.ids.first + use.claimed;
  // From here on the allocator may have the tail, so it is never published again.
  held_.RecordReturning(closure.token, closure.claimed);
  returning_[closure.token] = closure;
  const auto was_open = std::make_shared<bool>(false);
  worker_.SubmitWithSession<ReturnOutcome>(
      [closure, mark, limit = use.lease.ids.limit, was_open](
          Store& store, HighWaterMarks& marks, StoreSession& session) -> Result<ReturnOutcome> {
        *was_open = true;
        // The mark is lowered first: the tail is drained, so no id of it was handed out, and a
        // range below the mark could not be leased again. A mark that has moved on belongs to a
        // later lease and stays.
        const Result<std::uint64_t> now = marks.Get(closure.tag);
        if (!now.ok()) return now.status();
        if (now.value() == limit) {
          const Result<bool> active = IsActive(closure, limit, store);
          if (!active.ok()) return active.status();
          Status status = active.value() ? marks.Lower(closure.tag, mark) : Status::Ok();
          if (!status.ok()) return status;
        }
        Result<ReturnOutcome> outcome = store.ReturnTail(closure);
        if (!IsWorthRetrying(outcome.status())) session.held.erase(closure.token);
        return outcome;
      },
      [this, use, was_open](const Result<ReturnOutcome>& outcome) {
        if (*was_open && IsWorthRetrying(outcome.status())) {
          has_refused_ = true;
          refused_.insert(use.lease.tag);
        }
        OnHandedBack(use, outcome);
      });
}

void LeaseCloser::OnHandedBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
  returning_.erase(use.lease.token);
  if (IsWorthRetrying(outcome.status())) {
    unreturned_.push_back(use);
  } else {
    held_.Forget(use.lease.token);
    refused_.erase(use.lease.tag);
    ++ended_;
  }
  const bool is_deleted = outcome.status().code() == Code::kNoSuchTag;
  if (is_deleted || (outcome.ok() && outcome.value() == ReturnOutcome::kAbandoned)) {
    worker_.meter().AddWaste(ServedName(use.lease.tag), use.available());
  }
  if (on_answer_) on_answer_(use, outcome);
  if (IsNews(use, outcome)) LogHandedBack(use, outcome);
  if (idle()) on_idle_();
}
// An unavailable store is reported once per tail, although each tail is tried again each second.
bool LeaseCloser::IsNews(const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
  if (IsWorthRetrying(outcome.status()))
    return reported_unavailable_.insert(use.lease.token).second;
  reported_unavailable_.erase(use.lease.token);
  return true;
}

bool LeaseCloser::HasUnreturned(const std::string& tag) const {
  return std::any_of(unreturned_.begin(), unreturned_.end(),
                     [&tag](const LeaseUse& use) { return ServedName(use.lease.tag) == tag; });
}

bool LeaseCloser::HasOpenEnds(const std::string& scope) const {
  if (scope == kWholeHost) return !closing_.empty();
  return std::any_of(closing_.begin(), closing_.end(),
                     [&scope](const auto& end) { return ServedName(end.second.tag) == scope; });
}

bool LeaseCloser::HasUntried() const {
  return has_refused_ &&
         std::any_of(unreturned_.begin(), unreturned_.end(),
                     [this](const LeaseUse& use) { return !refused_.contains(use.lease.tag); });
}

// The tags that the store has refused go last: rows of a server may be locked while others are
// free.
void LeaseCloser::ReturnAgain() {
  if (!returning_.empty() || unreturned_.empty()) return;
  std::vector<LeaseUse> again = std::exchange(unreturned_, {});
  const auto first_refused = std::stable_partition(
      again.begin(), again.end(),
      [this](const LeaseUse& use) { return !refused_.contains(use.lease.tag); });
  if (first_refused == again.begin()) refused_.clear();
  has_refused_ = false;
  for (const LeaseUse& use : again) HandBack(use);
}

void LeaseCloser::HandBackUnanswered(AskedLeases asked) {
  unanswered_ = std::move(asked);
  LookUpUnanswered();
}

void LeaseCloser::LookUpUnanswered() {
  if (unanswered_.empty() || looking_up_) return;
  looking_up_ = true;
  worker_.SubmitWithSession<std::vector<Lease>>(
      [asked = unanswered_, host = held_.host_id()](Store& store, HighWaterMarks&,
                                                    StoreSession& session) {
        return FindUnanswered(asked, store, host, session);
      },
      [this](const Result<std::vector<Lease>>& found) {
        looking_up_ = false;
        if (!found.ok()) return;  // the next Flush() tries again
        AskedLeases unknown = std::exchange(unanswered_, {});
        for (const Lease& lease : found.value()) {
          unknown.erase(lease.token);
          HandBack({.lease = lease, .claimed = 0});
        }
        for (const auto& [token, tag] : unknown) held_.Forget(token);
        if (idle()) on_idle_();
      });
}

std::map<std::string, LeaseClosure, std::less<>> LeaseCloser::Open() const {
  std::map<std::string, LeaseClosure, std::less<>> open = closing_;
  for (const auto& [token, closure] : returning_) {
    LeaseClosure& active = open[token] = closure;
    active.state = LeaseState::kActive;
  }
  for (const LeaseUse& use : unreturned_) {
    open[use.lease.token] = {.token = use.lease.token,
                             .tag = use.lease.tag,
                             .state = LeaseState::kActive,
                             .claimed = use.claimed};
  }
  return open;
}

}  // namespace idd::daemon
