// SPDX-License-Identifier: Apache-2.0
#include "leasing/lease_scheduler.h"

#include <utility>

namespace idd::daemon {

LeaseScheduler::LeaseScheduler(EventLoop& loop, LeaseWorker& worker, std::uint32_t leases_per_s,
                               MakeOrder make_order, Done done)
    : worker_(worker),
      make_order_(std::move(make_order)),
      done_(std::move(done)),
      rate_(LeaseRate(leases_per_s)),
      timer_(loop) {}

void LeaseScheduler::SetLimit(std::uint32_t leases_per_s) {
  rate_ = LeaseRate(leases_per_s);
  budget_ = RateBucket();
}

void LeaseScheduler::Ask(const std::string& tag) {
  if (!waiting_.insert(tag).second) return;
  turns_.push_back(tag);
  if (turns_.size() == 1) ServeTurns();
}

// Serves as many turns as the budget allows; the timer serves the rest. A tag that no longer needs
// a lease costs nothing.
void LeaseScheduler::ServeTurns() {
  while (!turns_.empty()) {
    const MonotonicTime now = MonotonicClock::now();
    const MonotonicTime ready = budget_.ReadyAt(1, rate_, now);
    if (ready > now) {
      timer_.At(ready, [this] { ServeTurns(); });
      return;
    }
    const std::string tag = std::move(turns_.front());
    turns_.pop_front();
    waiting_.erase(tag);
    if (MakeOrderOf(tag)) budget_.Take(1, rate_, now);
  }
}

void LeaseScheduler::GoOn(const std::string& tag) { static_cast<void>(MakeOrderOf(tag)); }

// False: the tag needs no lease.
bool LeaseScheduler::MakeOrderOf(const std::string& tag) {
  std::optional<LeaseOrder> order = make_order_(tag);
  if (!order.has_value()) return false;
  orders_.push_back(*std::move(order));
  if (!is_under_way_) SendBatch();
  return true;
}

// Sends the first orders, but only one of each tag. A tag that was deleted and created again
// meanwhile may have a second order, which goes in the next batch.
void LeaseScheduler::SendBatch() {
  if (orders_.empty()) return;
  is_under_way_ = true;
  std::vector<LeaseOrder> batch;
  std::set<std::string, std::less<>> tags;
  while (!orders_.empty() && batch.size() < batch_size_ &&
         tags.insert(orders_.front().tag).second) {
    batch.push_back(std::move(orders_.front()));
    orders_.pop_front();
  }
  worker_.SubmitWithSession<LeaseOutcomes>(
      [batch](Store& store, HighWaterMarks& marks, StoreSession& session) {
        return TakeLeases(batch, store, marks, session);
      },
      [this, batch](Result<LeaseOutcomes> outcomes) {
        is_under_way_ = false;
        batch_size_ = outcomes.ok() ? std::min(batch_size_ * 2, kMaxAtOnce) : 1;
        SendBatch();  // before the outcomes are handled, so that the store is not idle
        for (std::size_t i = 0; i < batch.size(); ++i) {
          done_(batch[i], outcomes.ok() ? std::move(outcomes.value()[i])
                                        : Result<LeaseOutcome>(outcomes.status()));
        }
      });
}

void LeaseScheduler::Stop() {
  turns_.clear();
  waiting_.clear();
  timer_.Cancel();
}

}  // namespace idd::daemon
