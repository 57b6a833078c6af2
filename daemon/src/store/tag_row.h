// SPDX-License-Identifier: Apache-2.0
//
// The rows of a tag in an allocator's tables, for any allocator. leaf_alloc may be written by Leaf,
// by its users and by hand, so every row is checked when it is read.
#ifndef IDD_DAEMON_STORE_TAG_ROW_H_
#define IDD_DAEMON_STORE_TAG_ROW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "sql/sql_session.h"
#include "sql/stored_row.h"
#include "store/store.h"

namespace idd::daemon {

inline constexpr std::uint64_t kMaxId = shm::kMaxLimit - 1;

// The columns of a row that ParseTagRow reads, from 0 on: leaf_alloc's biz_tag, max_id, step,
// description, update_time; idd_tag's mode, max_id_allowed, access, refill (defaults filled in),
// max_step, max_prefetch, outage_tolerance_s (NULL: the default); idd_order's tag_order and
// lane_block (defaults filled in); idd_snowflake's layout.
inline constexpr int kTagColumns = 15;

// kInvalid names the invalid column.
[[nodiscard]] Result<TagRecord> ParseTagRow(const StoredRow& row);

// Checks the name of a tag that an administrator wants to create. Stricter than wire::CheckTagName:
// the table may have other names, which are served. kInvalid.
[[nodiscard]] Status CheckNewTagName(const std::string& tag);
// Check the request itself, before anything is read. kInvalid says what is wrong.
[[nodiscard]] Status CheckNewTag(const NewTag& tag);
[[nodiscard]] Status CheckTagChange(const TagChange& change);
// Checks a new tag against the allocator: `used` is the end of a deleted tag of the same name.
[[nodiscard]] Status CheckStart(const NewTag& tag, std::uint64_t start, std::uint64_t used);
// Checks a new tag against one of its name that had ids of another kind: those of mode snowflake
// are made of numbers that nothing compares with the ids of the other modes. `had_workers`: a host
// has owned a worker id of the name.
[[nodiscard]] Status CheckSameKind(const NewTag& tag, std::uint64_t used, bool had_workers);
// Sets the layout of a record of mode snowflake from idd_snowflake.layout; nothing: there is no
// such row. kInvalid.
[[nodiscard]] Status SetLayout(const std::optional<std::string>& layout, TagRecord& record);
// Checks a new snowflake tag against an earlier one of its name: with other bits, another unit or
// another epoch, ids would come again.
[[nodiscard]] Status CheckSameIds(const NewTag& tag, const SnowflakeLayout& before);
// The counter of a worker id, as a tag to create.
[[nodiscard]] NewTag CounterTag(const WorkerChoice& choice);
// The error of a lease of a worker id that another host owns.
[[nodiscard]] Status NoOwner(const std::string& counter);
// The error for a setting that does not apply to mode `ticket`.
[[nodiscard]] Status NoSuchSettingOfTickets();
// The same for mode `snowflake`.
[[nodiscard]] Status NoSuchSettingOfSnowflakes();
// The error for an order or a lane block of another mode than `segment`.
[[nodiscard]] Status NoOrderInThisMode();
// Checks a change against the changed row: `after` must not be kept if this fails.
[[nodiscard]] Status CheckChanged(const TagChange& change, const TagRecord& after);

[[nodiscard]] Status CheckLeaseRequest(const LeaseRequest& request);
// kInvalid if the numbers are impossible; then nothing of the call is journalled.
[[nodiscard]] Status CheckClosure(const LeaseClosure& closure, shm::IdRange ids);
[[nodiscard]] std::string RangeText(shm::IdRange ids);

// A row of the journal, in idd_lease or idd_ended.
inline constexpr const char* kLeaseColumns =
    "token, biz_tag, host, base, `limit`, state, claimed, returned, abandoned, leased_at,"
    " COALESCE(closed_at, ''), seq";
[[nodiscard]] Result<LeaseRecord> ParseLeaseRow(const StoredRow& row);
// All rows of a query for kLeaseColumns.
[[nodiscard]] Result<std::vector<LeaseRecord>> ParseLeaseRows(SqlQuery& rows);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_TAG_ROW_H_
