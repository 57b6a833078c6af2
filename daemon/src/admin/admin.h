// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_ADMIN_H_
#define IDD_DAEMON_ADMIN_ADMIN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "access/access_rules.h"
#include "admin/cluster_metrics.h"
#include "admin/operations/operations.h"
#include "admin/request_budget.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_request.h"
#include "idd/base/status.h"
#include "metrics/metric_families.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// The administration requests of docs/socket-protocol.md: JSON in, JSON out. It parses them, checks
// the peer's rights and calls the operation.
//
// Thread safety: none; event loop. Changes of the store go through the LeaseWorker. A separate
// thread reads the journal over a connection of its own and makes the documents about the whole
// journal, one at a time, so that leases do not wait for them.
class Admin {
 public:
  Admin(EventLoop& loop, DaemonInfo info, AdminParts parts);
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;

  // The request is untrusted text. It is carried out as far as `rights` allow: nothing of a tag
  // that the peer may not use is shown or changed. `done` is called once, now or later on the loop.
  // A large request is parsed on another thread, so a later request may overtake it.
  void Handle(std::string request, const PeerRights& rights, AdminDone done);
  // From now on requests wait until GoOn(), because their answers are not known yet.
  void Hold() { is_held_ = true; }
  void GoOn();
  // Another database is in use from now on.
  void SetDatabase(std::string display_url, std::string url);
  void SetHostAddress(std::string address) { context_.info.host_address = std::move(address); }

 private:
  void Parse(std::string request, const PeerRights& rights, const AdminDone& done);
  // Carries out the parsed request; `done` ends its place among the requests under way.
  void Do(const Result<AdminRequest>& request, const PeerRights& rights, const AdminDone& done);
  void AddFamilies(FamilyBuilder& families) const;

  const double started_at_;  // Unix time, computed once, so that only a restart changes it
  RequestBudget budget_;
  bool is_held_ = false;
  std::vector<std::function<void()>> held_;             // at most RequestBudget::kMaxUnderWay
  std::map<std::string_view, std::uint64_t> requests_;  // by operation
  std::uint64_t unknown_requests_ = 0;
  AdminContext context_;
  ClusterMetrics cluster_metrics_;
  WorkThread parse_thread_;  // last: it ends before the rest goes
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_ADMIN_H_
