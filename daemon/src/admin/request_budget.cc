// SPDX-License-Identifier: Apache-2.0
#include "admin/request_budget.h"

namespace idd::daemon {

bool RequestBudget::HasRoomFor(const PeerRights& rights) const {
  if (rights.AdministersAll()) return under_way_ < kMaxUnderWay;
  const auto of_user = under_way_of_.find(rights.peer().uid);
  return under_way_ < kMaxOfUsers &&
         (of_user == under_way_of_.end() || of_user->second < kMaxOfOneUser);
}

bool RequestBudget::Begin(const PeerRights& rights) {
  if (!HasRoomFor(rights)) return false;
  ++under_way_;
  ++under_way_of_[rights.peer().uid];
  return true;
}

void RequestBudget::End(uid_t uid) {
  --under_way_;
  if (--under_way_of_[uid] == 0) under_way_of_.erase(uid);
}

}  // namespace idd::daemon
