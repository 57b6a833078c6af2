// SPDX-License-Identifier: Apache-2.0
#include "leasing/lease_desk.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace idd::daemon {

void LeaseDesk::Place(LeaseOrder order, Done done) {
  orders_.push_back(std::move(order));
  dones_.push_back(std::move(done));
  if (!is_under_way_) SendNext();
}

// The first orders, up to one of a tag that is among them: it was made again meanwhile.
void LeaseDesk::SendNext() {
  if (orders_.empty()) return;
  is_under_way_ = true;
  std::vector<LeaseOrder> batch;
  std::vector<Done> dones;
  std::set<std::string, std::less<>> tags;
  while (!orders_.empty() && batch.size() < most_ && tags.insert(orders_.front().tag).second) {
    batch.push_back(std::move(orders_.front()));
    dones.push_back(std::move(dones_.front()));
    orders_.pop_front();
    dones_.pop_front();
  }
  worker_.Submit<LeaseOutcomes>(
      [batch = std::move(batch), &session = worker_.session()](
          Store& store, HighWaterMarks& marks) { return TakeLeases(batch, store, marks, session); },
      [this, dones = std::move(dones)](Result<LeaseOutcomes> outcomes) {
        is_under_way_ = false;
        most_ = outcomes.ok() ? std::min(most_ * 2, kMaxAtOnce) : 1;
        SendNext();  // before what the outcomes bring, so that the store is not idle meanwhile
        for (std::size_t i = 0; i < dones.size(); ++i) {
          dones[i](outcomes.ok() ? std::move(outcomes.value()[i])
                                 : Result<LeaseOutcome>(outcomes.status()));
        }
      });
}

}  // namespace idd::daemon
