// SPDX-License-Identifier: Apache-2.0
//
// What every store does with leases that have ended, once their rows are read.
#ifndef IDD_DAEMON_STORE_ENDED_LEASES_H_
#define IDD_DAEMON_STORE_ENDED_LEASES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sql/stored_row.h"
#include "store/folded_ranges.h"
#include "store/lease.h"
#include "store/store.h"

namespace idd::daemon {

// Leases to fold into one row of idd_total.
struct FoldedGroup {
  using Key = std::tuple<std::string, std::string, std::string>;  // tag, host, month

  LeaseSums::Ended sums{};
  std::vector<std::uint64_t> seqs{};
  std::vector<shm::IdRange> kept{};     // not empty ones
  shm::IdRange ids{shm::kMaxLimit, 0};  // encloses all of `kept`; empty if there are none

  void AddTo(FoldedRanges& ranges) const;
};
[[nodiscard]] FoldedGroup::Key KeyOf(const LeaseRecord& ended);
[[nodiscard]] std::map<FoldedGroup::Key, FoldedGroup> GroupByMonth(
    const std::vector<LeaseRecord>& leases);

// A row of a comparison of sums: host, month, the five sums that idd_total has, and the five that
// its rows come to. Returns a sentence if they differ.
[[nodiscard]] std::optional<std::string> DifferenceOfSums(const StoredRow& row,
                                                          const std::string& tag);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_ENDED_LEASES_H_
