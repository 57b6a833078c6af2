// SPDX-License-Identifier: Apache-2.0
//
// What a lease of a snowflake tag is: a window of time of one worker id. See ADR 0023.
#ifndef IDD_DAEMON_LEASING_SNOWFLAKE_WINDOWS_H_
#define IDD_DAEMON_LEASING_SNOWFLAKE_WINDOWS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "store/store.h"

namespace idd::daemon {

struct WindowOrder {
  std::string tag;
  std::string counter;      // of the worker id that this host has had so far; empty: none
  std::string token;        // of the lease
  std::uint64_t floor = 0;  // no number below it: the end of the window that the host holds
};

// What to do for an order: exactly one of its first three parts is set.
struct WindowPlan {
  std::optional<LeaseRequest> request;  // lease this ...
  TagRecord row;                        // ... from this counter
  std::string counter;                  // ask again, with this worker id, which is the host's now
  MonotonicTime not_before{};           // or not yet ...
  std::string reason;                   // ... because of this
};

// Plans the next window of a tag at the time `unix_ms` of this host's clock. The host keeps its
// worker id while the counter stands at most max_ahead beyond the window that it holds and beyond
// the clock. Otherwise, once it holds no more than max_ahead, it takes one that it has had before,
// or that was never used, or all of whose windows are over.
//
// kUnavailable: the clock is wrong, or every worker id is in use; the message has the numbers.
// kOutOfIds: the time bits are used up.
[[nodiscard]] Result<WindowPlan> PlanWindow(const WindowOrder& order, const TagRecord& tag,
                                            std::int64_t unix_ms, Store& store,
                                            HighWaterMarks& marks);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_SNOWFLAKE_WINDOWS_H_
