// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_OPERATIONS_LEDGER_AUDIT_H_
#define IDD_DAEMON_ADMIN_OPERATIONS_LEDGER_AUDIT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "store/store.h"

namespace idd::daemon {

// The account of a tag's leased ids: leased = claimed + available + returned + abandoned.
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

// The leases that an audit accounts for: this host's, or every host's. Only a lease's own host
// knows what was claimed of it while it is active, so all ids of other hosts' active leases count
// as available.
enum class AuditScope { kThisHost, kAllHosts };

struct AuditInput {
  std::string host;  // this one
  AuditScope scope = AuditScope::kThisHost;
  Ledger ledger;
  std::string since{};  // only leases that were taken then or later are accounted for; empty: all
  // TagService::LiveLeases() by token, from before and after the ledger was read.
  std::map<std::string, LeaseClosure, std::less<>> live;
  std::set<std::string, std::less<>> newer{};  // only in the later one: the ledger may lack them
};

struct AuditReport {
  std::map<std::string, TagAccount> tags;
  std::vector<std::string> findings;  // sentences; empty: every account adds up

  [[nodiscard]] bool ok() const noexcept { return findings.empty(); }
};

// Compares the journal with the rings and with itself. Findings are: a tag whose sums differ; a
// closed lease whose parts do not add up; two leases of one tag, of any hosts, that share ids which
// neither gave back; an active lease of this host that is in no ring; a ring's segment that the
// journal lacks; a lease that ends above max_id, so that its ids could be leased again. Accounts
// are made of the ledger's sums; leases are compared as far as its journal has them. Pure.
[[nodiscard]] AuditReport RunAudit(const AuditInput& input);

// The third kind of findings: leases that share ids with one another, or with ids that are listed
// as returned.
[[nodiscard]] std::vector<std::string> FindSharedIds(const std::vector<LeaseRecord>& leases,
                                                     const std::vector<ReturnedRange>& listed);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_OPERATIONS_LEDGER_AUDIT_H_
