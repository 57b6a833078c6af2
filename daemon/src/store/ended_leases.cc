// SPDX-License-Identifier: Apache-2.0
#include "store/ended_leases.h"

#include <algorithm>
#include <array>

namespace idd::daemon {

void FoldedGroup::AddTo(FoldedRanges& ranges) const {
  for (const shm::IdRange& range : kept) ranges.Add(range);
  ranges.Reduce(kMostFoldedRanges);
}

FoldedGroup::Key KeyOf(const LeaseRecord& ended) {
  constexpr std::size_t kMonth = 7;  // of "2026-11-26 05:30:00"
  return {ended.tag, ended.host, ended.closed_at.substr(0, kMonth)};
}

std::map<FoldedGroup::Key, FoldedGroup> GroupByMonth(const std::vector<LeaseRecord>& leases) {
  std::map<FoldedGroup::Key, FoldedGroup> groups;
  for (const LeaseRecord& lease : leases) {
    FoldedGroup& group = groups[KeyOf(lease)];
    ++group.sums.leases;
    group.sums.leased += lease.ids.size();
    group.sums.claimed += lease.claimed;
    group.sums.returned += lease.returned;
    group.sums.abandoned += lease.abandoned;
    group.seqs.push_back(lease.seq);
    // What was handed back may have been leased again.
    const shm::IdRange kept{lease.ids.first, lease.ids.limit - lease.returned};
    if (kept.empty()) continue;
    group.ids = {std::min(group.ids.first, kept.first), std::max(group.ids.limit, kept.limit)};
    group.kept.push_back(kept);
  }
  return groups;
}

std::optional<std::string> DifferenceOfSums(const StoredRow& row, const std::string& tag) {
  constexpr std::array kNames = {"leases", "leased", "claimed", "returned", "abandoned"};
  constexpr int kTotals = 2;
  constexpr int kCounted = kTotals + static_cast<int>(kNames.size());
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const int column = static_cast<int>(i);
    const std::optional<std::uint64_t> total = row.UintIf(kTotals + column);
    const std::optional<std::uint64_t> counted = row.UintIf(kCounted + column);
    if (total.has_value() && total == counted) continue;
    return "idd_total." + std::string(kNames.at(i)) + " of tag '" + tag + "', host " +
           row.TextIf(0).value_or("?") + ", month " + row.TextIf(1).value_or("?") + " is " +
           row.Describe(kTotals + column) + ", but its leases come to " +
           row.Describe(kCounted + column);
  }
  return std::nullopt;
}

}  // namespace idd::daemon
