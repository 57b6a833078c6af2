// SPDX-License-Identifier: Apache-2.0
#include "take_lease.h"

#include <algorithm>
#include <utility>

namespace idd::daemon {
namespace {

// The settings may be others by now than those that `wanted` was reckoned with; then they count.
std::uint64_t IdsOf(const LeaseOrder& order, const RefillSettings& refill) {
  const std::uint64_t room = refill.max_prefetch - std::min(refill.max_prefetch, order.available);
  const std::uint64_t wanted = order.wanted == order.step ? refill.step : order.wanted;
  return std::max<std::uint64_t>(std::min({wanted, refill.max_step, room}), 1);
}

// The lease, with the mark kept. A host that forgot its mark would believe a store that was set
// back.
Result<Lease> LeaseAndMark(const LeaseRequest& request, Store& store, HighWaterMarks& marks) {
  Result<Lease> lease = store.TakeLease(request);
  if (!lease.ok()) return lease.status();
  lease.value().previous_mark = request.high_water_mark;
  Status status = marks.Raise(request.tag, lease.value().ids.limit);
  if (status.ok()) return lease;
  const LeaseClosure unused{
      .token = request.token, .tag = request.tag, .state = LeaseState::kReturned, .claimed = 0};
  static_cast<void>(store.ReturnTail(unused));
  return status.WithContext("the high-water mark cannot be kept");
}

}  // namespace

Result<LeaseOutcome> TakeLease(const LeaseOrder& order, Store& store, HighWaterMarks& marks,
                               StoreSession& session) {
  LeaseOutcome outcome;
  outcome.data_set = session.data_set;
  Result<TagRecord> record = store.FindTag(order.tag);
  if (record.status().code() == Code::kNoSuchTag && order.has_leased &&
      order.data_set != session.data_set) {
    outcome.missing = record.status();
    return outcome;
  }
  if (!record.ok()) return record.status();
  outcome.record = std::move(record).value();
  if (MonotonicClock::now() < session.lease_from) {
    outcome.not_before = session.lease_from;
    return outcome;
  }
  const Result<std::uint64_t> mark = marks.Get(order.tag);
  if (!mark.ok()) return mark.status();
  Result<Lease> lease = LeaseAndMark({.tag = order.tag,
                                      .count = IdsOf(order, outcome.record.refill),
                                      .high_water_mark = mark.value(),
                                      .floor = order.floor,
                                      .token = order.token},
                                     store, marks);
  if (!lease.ok()) return lease.status();
  session.held[order.token] = lease.value();
  outcome.lease = std::move(lease).value();
  return outcome;
}

}  // namespace idd::daemon
