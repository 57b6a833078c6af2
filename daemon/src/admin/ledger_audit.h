// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_LEDGER_AUDIT_H_
#define IDD_DAEMON_ADMIN_LEDGER_AUDIT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "store/store.h"

namespace idd::daemon {

// Where a tag's leased ids are: leased = claimed + available + returned + abandoned.
struct TagAccount {
  std::uint64_t leased = 0;
  std::uint64_t claimed = 0;
  std::uint64_t available = 0;
  std::uint64_t returned = 0;
  std::uint64_t abandoned = 0;

  [[nodiscard]] bool AddsUp() const noexcept {
    return leased == claimed + available + returned + abandoned;
  }
};

// Whose leases are accounted: this host's, or every host's. What another host has claimed of an
// active lease only that host knows, so all of it counts as available there.
enum class AuditScope { kThisHost, kAllHosts };

struct AuditInput {
  std::string host;  // this one
  AuditScope scope = AuditScope::kThisHost;
  Ledger ledger;
  // By token, see TagService::LiveLeases; before the ledger was read or after.
  std::map<std::string, LeaseClosure, std::less<>> live;
  std::set<std::string, std::less<>> newer{};  // of those, not before: the ledger may lack them
};

struct AuditReport {
  std::map<std::string, TagAccount> tags;
  std::vector<std::string> findings;  // sentences; empty: all adds up

  [[nodiscard]] bool ok() const noexcept { return findings.empty(); }
};

// Holds the journal against the rings and against itself. Findings are: a tag whose sums differ; a
// closed lease whose own do; two leases of one tag, of whatever hosts, that share ids which neither
// gave back; an active lease of this host that no ring has, or a ring's segment that the journal
// lacks; a lease at or above max_id, from where it could be leased again. Pure.
[[nodiscard]] AuditReport RunAudit(const AuditInput& input);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_LEDGER_AUDIT_H_
