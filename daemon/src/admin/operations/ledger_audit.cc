// SPDX-License-Identifier: Apache-2.0
#include "admin/operations/ledger_audit.h"

#include <algorithm>
#include <set>
#include <utility>

namespace idd::daemon {
namespace {

std::string Describe(const LeaseRecord& lease) {
  return "lease " + lease.token + " of tag '" + lease.tag + "' [" +
         std::to_string(lease.ids.first) + ", " + std::to_string(lease.ids.limit) + ") of host " +
         lease.host;
}

// The ids that a lease keeps. The ids that it gave back may be leased again.
shm::IdRange Kept(const LeaseRecord& lease) {
  return {lease.ids.first, lease.ids.limit - std::min(lease.returned, lease.ids.size())};
}

// Adds an active lease to its tag's account.
void AccountActive(const LeaseRecord& lease, const AuditInput& input, AuditReport& report) {
  TagAccount& account = report.tags[lease.tag];
  account.leased += lease.ids.size();
  if (lease.host != input.host) {
    account.available += lease.ids.size();
    return;
  }
  const auto live = input.live.find(lease.token);
  if (live == input.live.end()) {
    account.available += lease.ids.size();  // as with another host's, nothing more is known
    report.findings.push_back(Describe(lease) + " is active in the journal but in no ring");
    return;
  }
  const std::uint64_t claimed = std::min(live->second.claimed, lease.ids.size());
  const std::uint64_t rest = lease.ids.size() - claimed;
  account.claimed += claimed;
  // A lease on its way to being closed has nothing left to claim.
  (live->second.state == LeaseState::kActive ? account.available : account.abandoned) += rest;
}

void Account(const AuditInput& input, AuditReport& report) {
  const auto is_asked_for = [&input](const std::string& host) {
    return input.scope == AuditScope::kAllHosts || host == input.host;
  };
  for (const LeaseSums& sums : input.ledger.sums) {
    if (!is_asked_for(sums.host)) continue;
    TagAccount& account = report.tags[sums.tag];
    account.leased += sums.ended.leased;
    account.claimed += sums.ended.claimed;
    account.returned += sums.ended.returned;
    account.abandoned += sums.ended.abandoned;
  }
  for (const LeaseRecord& lease : input.ledger.journal) {
    if (!is_asked_for(lease.host)) continue;
    if (lease.state == LeaseState::kActive) {
      if (lease.leased_at >= input.since) AccountActive(lease, input, report);
    } else if (lease.claimed + lease.returned + lease.abandoned != lease.ids.size()) {
      report.findings.push_back(Describe(lease) +
                                " is closed but its parts do not add up to its size");
    }
  }
}

void FindUnjournalled(const AuditInput& input, AuditReport& report) {
  std::set<std::string_view> tokens;
  for (const LeaseRecord& lease : input.ledger.journal) tokens.insert(lease.token);
  for (const auto& [token, live] : input.live) {
    if (tokens.contains(token) || input.newer.contains(token)) continue;
    report.findings.push_back("a segment of tag '" + live.tag + "' is published under lease " +
                              token + ", which the journal does not have");
  }
}

void FindAboveMaxId(const AuditInput& input, AuditReport& report) {
  std::map<std::string_view, std::uint64_t> next_ids;
  for (const TagRecord& tag : input.ledger.tags) next_ids[tag.tag] = tag.next_id;
  for (const LeaseRecord& lease : input.ledger.journal) {
    const auto next = next_ids.find(lease.tag);
    if (next == next_ids.end() || Kept(lease).empty()) continue;
    if (Kept(lease).limit > next->second) {
      report.findings.push_back(Describe(lease) + " reaches above max_id " +
                                std::to_string(next->second) +
                                ": the store went backwards; the next lease will lift it");
    }
  }
}

}  // namespace

std::vector<std::string> FindSharedIds(const std::vector<LeaseRecord>& all,
                                       const std::vector<ReturnedRange>& returned) {
  std::vector<const LeaseRecord*> leases;
  for (const LeaseRecord& lease : all) {
    if (!Kept(lease).empty()) leases.push_back(&lease);
  }
  // Ids that are listed as returned will be leased again, so no lease may have kept any of them.
  std::vector<LeaseRecord> listed(returned.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    listed[i].token = "(listed as returned)";
    listed[i].tag = returned[i].tag;
    listed[i].host = returned[i].host;
    listed[i].ids = returned[i].ids;
    leases.push_back(&listed[i]);
  }
  std::sort(leases.begin(), leases.end(), [](const LeaseRecord* a, const LeaseRecord* b) {
    return a->tag != b->tag ? a->tag < b->tag : a->ids.first < b->ids.first;
  });
  std::vector<std::string> findings;
  const LeaseRecord* widest = nullptr;  // of this tag, the one that reaches furthest so far
  for (const LeaseRecord* lease : leases) {
    const bool same_tag = widest != nullptr && widest->tag == lease->tag;
    if (same_tag && Kept(*lease).first < Kept(*widest).limit) {
      findings.push_back(Describe(*lease) + " shares ids with " + Describe(*widest));
    }
    if (!same_tag || Kept(*lease).limit > Kept(*widest).limit) widest = lease;
  }
  return findings;
}

AuditReport RunAudit(const AuditInput& input) {
  AuditReport report;
  for (const TagRecord& tag : input.ledger.tags) report.tags[tag.tag];
  Account(input, report);
  for (std::string& finding : FindSharedIds(input.ledger.journal, input.ledger.returned)) {
    report.findings.push_back(std::move(finding));
  }
  FindUnjournalled(input, report);
  FindAboveMaxId(input, report);
  for (const auto& [tag, account] : report.tags) {
    if (!account.AddsUp()) {
      report.findings.push_back("tag '" + tag + "': leased is not the sum of its parts");
    }
  }
  return report;
}

}  // namespace idd::daemon
