// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_REQUEST_BUDGET_H_
#define IDD_DAEMON_ADMIN_REQUEST_BUDGET_H_

#include <sys/types.h>

#include <map>

#include "access/access_rules.h"

namespace idd::daemon {

// How many administration requests may be under way. Each may read the whole journal, so there is a
// limit. It is shared out so that peers that administer all tags always find room, however much the
// others ask, and each user finds room, however much another user asks.
//
// Thread safety: none; event loop.
class RequestBudget {
 public:
  static constexpr int kMaxUnderWay = 64;
  // How many of those may come from all peers that do not administer all tags.
  static constexpr int kMaxOfUsers = 32;
  // How many of those may come from one such user.
  static constexpr int kMaxOfOneUser = 16;

  // Whether the request may begin. If so, End() must follow.
  [[nodiscard]] bool Begin(const PeerRights& rights);
  void End(uid_t uid);

 private:
  [[nodiscard]] bool HasRoomFor(const PeerRights& rights) const;

  int under_way_ = 0;
  std::map<uid_t, int> under_way_of_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_REQUEST_BUDGET_H_
