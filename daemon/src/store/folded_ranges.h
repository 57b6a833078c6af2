// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_FOLDED_RANGES_H_
#define IDD_DAEMON_STORE_FOLDED_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/status.h"
#include "idd/shm/ring_protocol.h"

namespace idd::daemon {

// The ids that folded leases of one tag, host and month had kept: disjoint ranges, of which those
// that touch are one. If there are too many to keep, those with the smallest gaps between them
// become one, gap included; from then on another host may have had some of the ids.
//
// Its text is the ranges' "gap+length", separated by blanks; a gap begins at the end of the range
// before, the first one at 0. "~ " comes first if gaps are included.
class FoldedRanges {
 public:
  // kInvalid: it is no such text.
  [[nodiscard]] static Result<FoldedRanges> Parse(std::string_view text);
  [[nodiscard]] std::string Text() const;

  void Add(shm::IdRange ids);
  // Leaves at most `count` ranges. Precondition: count > 0.
  void Reduce(std::size_t count);

  [[nodiscard]] bool Contains(std::uint64_t id) const noexcept;
  // Whether every id of the ranges was the host's.
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }
  [[nodiscard]] std::size_t size() const noexcept { return ranges_.size(); }
  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }

 private:
  std::vector<shm::IdRange> ranges_;  // in the order of their ids
  bool is_exact_ = true;
};

// A row of idd_total keeps so many ranges, some 40 KB.
inline constexpr std::size_t kMostFoldedRanges = 4096;

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_FOLDED_RANGES_H_
