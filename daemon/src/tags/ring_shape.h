// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_RING_SHAPE_H_
#define IDD_DAEMON_TAGS_RING_SHAPE_H_

#include <cstdint>
#include <optional>

#include "store/snowflake_layout.h"
#include "store/tag_record.h"

namespace idd::daemon {

// What the settings of a tag fix for the whole life of a ring. If it changes, the tag gets a new
// ring.
struct RingShape {
  std::optional<SnowflakeLayout> layout{};  // of a snowflake tag
  std::uint32_t lane_count = 0;             // of a tag of order cpu: one for each possible CPU

  friend bool operator==(const RingShape&, const RingShape&) = default;
};

[[nodiscard]] RingShape ShapeOf(const TagRecord& record);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_RING_SHAPE_H_
