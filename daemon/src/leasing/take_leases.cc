// SPDX-License-Identifier: Apache-2.0
#include "leasing/take_leases.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "leasing/snowflake_windows.h"
#include "store/term_store.h"

namespace idd::daemon {
namespace {

// Witnesses look once a second, and more often while something waits.
constexpr std::chrono::milliseconds kCeilingPause(100);

// The settings may have changed since `wanted` was computed; the new ones count.
std::uint64_t ClampToSettings(const LeaseOrder& order, const RefillSettings& refill) {
  const std::uint64_t room = refill.max_prefetch - std::min(refill.max_prefetch, order.available);
  const std::uint64_t wanted = order.wanted == order.step ? refill.step : order.wanted;
  return std::max<std::uint64_t>(std::min({wanted, refill.max_step, room}), 1);
}

// What is asked of the store for an order.
struct Asked {
  LeaseRequest request;
  TagRecord row;          // of leaf_alloc that it leases from
  std::size_t place = 0;  // of the order
};

Result<Asked> AskFor(const LeaseOrder& order, const TagRecord& record, HighWaterMarks& marks) {
  const Result<std::uint64_t> mark = marks.Get(order.tag);
  if (!mark.ok()) return mark.status();
  const bool is_ticket = record.mode == TagMode::kTicket;
  Asked asked;
  asked.request = {.tag = order.tag,
                   .count = is_ticket ? order.wanted : ClampToSettings(order, record.refill),
                   .high_water_mark = mark.value(),
                   .floor = order.floor,
                   .token = order.token,
                   .rises = is_ticket};
  asked.row = record;
  return asked;
}

// The same for a snowflake tag. Nothing: `outcome` says what to do instead.
Result<std::optional<Asked>> AskForWindow(const LeaseOrder& order, LeaseOutcome& outcome,
                                          Store& store, HighWaterMarks& marks) {
  Result<WindowPlan> plan = PlanWindow(
      {.tag = order.tag, .counter = order.counter, .token = order.token, .floor = order.floor},
      outcome.record, WallClock::now_ms(), store, marks);
  if (!plan.ok()) return plan.status();
  outcome.counter = std::move(plan.value().counter);
  outcome.not_before = plan.value().not_before;
  outcome.reason = std::move(plan.value().reason);
  if (!plan.value().request.has_value()) return std::optional<Asked>();
  Asked asked;
  asked.request = std::move(*plan.value().request);
  asked.row = std::move(plan.value().row);
  return std::optional<Asked>(std::move(asked));
}

void WaitForWitnesses(const StoreSession& session, LeaseOutcome& outcome) {
  outcome.not_before = MonotonicClock::now() + kCeilingPause;
  outcome.reason = session.agreement.Reason();
}

// Begins an outcome, as far as the tag's record decides it.
Result<LeaseOutcome> Begin(const LeaseOrder& order, Result<TagRecord> record,
                           const StoreSession& session) {
  LeaseOutcome outcome;
  outcome.data_set = session.data_set;
  if (record.status().code() == Code::kNoSuchTag && order.has_leased &&
      order.data_set != session.data_set) {
    outcome.missing = record.status();
    return outcome;
  }
  if (!record.ok()) return record.status();
  outcome.record = std::move(record).value();
  if (MonotonicClock::now() < session.lease_from) {
    outcome.not_before = session.lease_from;
    outcome.reason = "the database has just started, or was replaced or set back";
  } else if (outcome.record.ceiling.has_value() && !session.agreement.may_lease()) {
    WaitForWitnesses(session, outcome);
  }
  return outcome;
}

bool MayLease(const Result<LeaseOutcome>& outcome) {
  return outcome.ok() && outcome.value().missing.ok() &&
         outcome.value().not_before == MonotonicTime{};
}

// Limits each request to its tag's ceiling, and raises ceilings that are nearly reached. Drops a
// request that has no room now; its tag waits for the ceiling.
Status ApplyCeilings(Store& store, HighWaterMarks& marks, StoreSession& session,
                     LeaseOutcomes& outcomes, std::vector<Asked>& asked) {
  if (store.terms() == nullptr) return Status::Ok();
  std::vector<CeilingNeed> needs;
  for (const Asked& one : asked) {
    needs.push_back({.tag = one.request.tag,
                     .base = std::max({one.row.next_id, one.row.used_limit,
                                       one.request.high_water_mark, one.request.floor}),
                     .count = one.request.count,
                     .last = one.row.max_id,
                     .ceiling = one.row.ceiling.value_or(0),
                     .wanted = one.row.wanted_ceiling,
                     .is_window = one.request.is_of_worker});
  }
  if (Status status = session.agreement.Cover(*store.terms(), marks, needs); !status.ok()) {
    return status;
  }
  std::vector<Asked> kept;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (needs[i].Waits()) {
      WaitForWitnesses(session, outcomes[asked[i].place].value());
    } else {
      kept.push_back(std::move(asked[i]));
    }
  }
  asked = std::move(kept);
  return Status::Ok();
}

// Gives back leases of which no id was used.
void HandBack(const std::vector<LeaseRequest>& requests, const Store::LeaseResults& leases,
              Store& store) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!leases[i].ok()) continue;
    static_cast<void>(store.ReturnTail({.token = requests[i].token,
                                        .tag = requests[i].tag,
                                        .state = LeaseState::kReturned,
                                        .claimed = 0}));
  }
}

// If the marks cannot be kept, the leases go back: without its marks a host would trust a store
// that was set back.
Status KeepMarks(const std::vector<LeaseRequest>& requests, const Store::LeaseResults& leases,
                 Store& store, HighWaterMarks& marks) {
  std::vector<TagMark> raised;
  for (const Result<Lease>& lease : leases) {
    if (lease.ok()) raised.push_back({.tag = lease.value().tag, .mark = lease.value().ids.limit});
  }
  if (raised.empty()) return Status::Ok();
  Status status = marks.RaiseAll(raised);
  if (status.ok()) return status;
  HandBack(requests, leases, store);
  return status.WithContext("the high-water mark cannot be kept");
}

// What to ask the store for, for all orders that may lease now. The others have their outcomes.
std::vector<Asked> AskForAll(const std::vector<LeaseOrder>& orders, Store::TagResults& records,
                             Store& store, HighWaterMarks& marks, const StoreSession& session,
                             LeaseOutcomes& outcomes) {
  std::vector<Asked> all;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    outcomes.push_back(Begin(orders[i], std::move(records[i]), session));
    if (!MayLease(outcomes.back())) continue;
    LeaseOutcome& outcome = outcomes.back().value();
    Result<std::optional<Asked>> asked = std::optional<Asked>();
    if (outcome.record.mode == TagMode::kSnowflake) {
      asked = AskForWindow(orders[i], outcome, store, marks);
    } else {
      Result<Asked> one = AskFor(orders[i], outcome.record, marks);
      asked = one.ok() ? Result<std::optional<Asked>>(std::move(one).value()) : one.status();
    }
    if (!asked.ok()) {
      outcomes.back() = asked.status();
    } else if (asked.value().has_value()) {
      asked.value()->place = i;
      all.push_back(std::move(*asked.value()));
    }
  }
  return all;
}

}  // namespace

Result<LeaseOutcomes> TakeLeases(const std::vector<LeaseOrder>& orders, Store& store,
                                 HighWaterMarks& marks, StoreSession& session) {
  std::vector<std::string> tags;
  tags.reserve(orders.size());
  for (const LeaseOrder& order : orders) tags.push_back(order.tag);
  Result<Store::TagResults> records = store.FindTagsCached(tags);
  if (!records.ok()) return records.status();

  LeaseOutcomes outcomes;
  std::vector<Asked> asked = AskForAll(orders, records.value(), store, marks, session, outcomes);
  if (Status status = ApplyCeilings(store, marks, session, outcomes, asked); !status.ok()) {
    return status;
  }
  if (asked.empty()) return outcomes;
  std::vector<LeaseRequest> requests;
  requests.reserve(asked.size());
  for (Asked& one : asked) requests.push_back(std::move(one.request));

  const MonotonicTime began = MonotonicClock::now();
  Result<Store::LeaseResults> leases = store.TakeLeases(requests);
  if (session.meter != nullptr) {
    session.meter->lease_duration.Observe(Seconds(MonotonicClock::now() - began));
  }
  if (!leases.ok()) return leases.status();
  if (session.agreement.IsLate()) {  // it was suspended while it asked
    HandBack(requests, leases.value(), store);
    return Status(Code::kUnavailable, "this host was suspended while it leased");
  }
  if (Status status = KeepMarks(requests, leases.value(), store, marks); !status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Result<Lease>& lease = leases.value()[i];
    Result<LeaseOutcome>& outcome = outcomes[asked[i].place];
    if (!lease.ok()) {
      outcome = lease.status();
      if (lease.status().code() == Code::kTimeout) session.agreement.LookSoon();
      continue;
    }
    lease.value().previous_mark = requests[i].high_water_mark;
    session.held[requests[i].token] = lease.value();
    outcome.value().lease = std::move(lease).value();
  }
  return outcomes;
}

}  // namespace idd::daemon
