// SPDX-License-Identifier: Apache-2.0
//
// Snowflake tags in requests and answers: layouts, ids and windows of time.
#ifndef IDD_DAEMON_ADMIN_SHARED_SNOWFLAKE_FIELDS_H_
#define IDD_DAEMON_ADMIN_SHARED_SNOWFLAKE_FIELDS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "store/snowflake_layout.h"
#include "store/store.h"

namespace idd::daemon {

// The layout that a request asks for; nothing if it has none of its fields. kInvalid also if the
// layout has not begun yet, or ends within a year.
[[nodiscard]] Result<std::optional<SnowflakeLayout>> LayoutFields(const AdminRequest& request);

[[nodiscard]] Json LayoutJson(const SnowflakeLayout& layout);
// {"id", "time", "time_ms", "worker", "sequence"}, or {"id", "error"} for an id that the layout
// cannot make.
[[nodiscard]] Json PartsJson(const SnowflakeLayout& layout, std::uint64_t id);
// When the number's time begins.
[[nodiscard]] std::string TimeTextOf(const SnowflakeLayout& layout, std::uint64_t number);
// The owners of worker ids, and until when their last windows last.
[[nodiscard]] Json WorkersJson(const SnowflakeLayout& layout,
                               const std::vector<WorkerRecord>& workers);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_SNOWFLAKE_FIELDS_H_
