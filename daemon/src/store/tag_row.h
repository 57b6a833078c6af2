// SPDX-License-Identifier: Apache-2.0
//
// A tag as it stands in an allocator's tables, whichever allocator it is. leaf_alloc may be written
// by Leaf, by its users and by hand, so every row is checked when it is read.
#ifndef IDD_DAEMON_STORE_TAG_ROW_H_
#define IDD_DAEMON_STORE_TAG_ROW_H_

#include <cstdint>

#include "idd/base/status.h"
#include "sql/stored_row.h"
#include "store/store.h"

namespace idd::daemon {

inline constexpr std::uint64_t kMaxId = shm::kMaxLimit - 1;

// The columns of a row that ParseTagRow reads, from 0 on: leaf_alloc's biz_tag, max_id, step,
// description, update_time; idd_tag's mode, max_id_allowed, access, refill (defaults filled in),
// max_step, max_prefetch, outage_tolerance_s (NULL: the default).
inline constexpr int kTagColumns = 12;

// kInvalid names the column that makes no sense.
[[nodiscard]] Result<TagRecord> ParseTagRow(const StoredRow& row);

// What is asked for, before anything is read. kInvalid says what is wrong.
[[nodiscard]] Status CheckNewTag(const NewTag& tag);
[[nodiscard]] Status CheckTagChange(const TagChange& change);
// A new tag beside what the allocator knows: `used` is where a deleted namesake ended.
[[nodiscard]] Status CheckStart(const NewTag& tag, std::uint64_t start, std::uint64_t used);
// A change beside the row that it has made: `after` is not to be kept if this fails.
[[nodiscard]] Status CheckChanged(const TagChange& change, const TagRecord& after);

[[nodiscard]] Status CheckLeaseRequest(const LeaseRequest& request);
// kInvalid when the numbers cannot be true; then nothing of the call is journalled.
[[nodiscard]] Status CheckClosure(const LeaseClosure& closure, shm::IdRange ids);
[[nodiscard]] std::string RangeText(shm::IdRange ids);

// A row of the journal: token, biz_tag, host, base, limit, state, claimed, returned, abandoned,
// leased_at, closed_at ('' while active).
[[nodiscard]] Result<LeaseRecord> ParseLeaseRow(const StoredRow& row);
// Where such a row has the tag, for those who read no more of it.
inline constexpr int kLeaseTagColumn = 1;

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_TAG_ROW_H_
