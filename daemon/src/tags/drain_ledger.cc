// SPDX-License-Identifier: Apache-2.0
#include "tags/drain_ledger.h"

#include "leasing/lease_closer.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {

DrainCount& DrainCount::operator+=(const DrainCount& other) noexcept {
  ids_returned += other.ids_returned;
  ids_abandoned += other.ids_abandoned;
  ids_pending += other.ids_pending;
  leases_pending += other.leases_pending;
  return *this;
}

void DrainLedger::End(const std::string& scope) {
  scopes_.erase(scope);
  Tidy();
}

// A drain's counts are reported until it ends, and a lease on its way back is kept until the store
// has it.
void DrainLedger::Tidy() {
  std::erase_if(accounts_, [this](const auto& entry) {
    return !IsDrained(entry.first) && entry.second.pending.empty();
  });
}

Status DrainLedger::Refusal(const std::string& tag) const {
  const std::string what = "tag '" + tag + "' is drained on this host";
  if (Has(kWholeHost)) {
    return {Code::kUnavailable, what + ", as every tag is; 'idctl resume' ends it"};
  }
  return {Code::kUnavailable, what + "; 'idctl resume " + tag + "' ends it"};
}

std::vector<std::string> DrainLedger::Tags() const {
  std::vector<std::string> tags(scopes_.begin(), scopes_.end());
  std::erase(tags, kWholeHost);
  return tags;
}

void DrainLedger::OnClosed(const LeaseUse& use) {
  if (use.available() == 0) return;
  Account& account = accounts_[ServedName(use.lease.tag)];
  if (!account.pending.insert(use.lease.token).second) return;
  ++pending_;
  account.count.ids_pending += use.available();
  ++account.count.leases_pending;
}

void DrainLedger::OnSpoilt(const LeaseUse& use) {
  accounts_[ServedName(use.lease.tag)].count.ids_abandoned += use.available();
}

void DrainLedger::OnAnswered(const LeaseUse& use, const Result<ReturnOutcome>& outcome) {
  if (IsWorthRetrying(outcome.status())) return;
  const auto account = accounts_.find(ServedName(use.lease.tag));
  if (account == accounts_.end() || account->second.pending.erase(use.lease.token) == 0) return;
  --pending_;
  DrainCount& count = account->second.count;
  count.ids_pending -= use.available();
  --count.leases_pending;
  // kStale: an earlier try succeeded, but its answer was lost.
  const bool is_back = outcome.ok() && outcome.value() != ReturnOutcome::kAbandoned;
  (is_back ? count.ids_returned : count.ids_abandoned) += use.available();
  if (account->second.pending.empty() && !IsDrained(account->first)) accounts_.erase(account);
}

bool DrainLedger::IsReturning(std::string_view tag) const {
  const auto account = accounts_.find(tag);
  return account != accounts_.end() && !account->second.pending.empty();
}

void DrainLedger::Forget(const std::string& tag) {
  scopes_.erase(tag);
  const auto account = accounts_.find(tag);
  if (account == accounts_.end()) return;
  pending_ -= account->second.pending.size();
  accounts_.erase(account);
}

DrainCount DrainLedger::CountOf(const std::string& scope) const {
  DrainCount count;
  for (const auto& [tag, account] : accounts_) {
    if (scope == kWholeHost || scope == tag) count += account.count;
  }
  return count;
}

}  // namespace idd::daemon
