// SPDX-License-Identifier: Apache-2.0
#include "tags/ring_shape.h"

#include "platform/possible_cpus.h"

namespace idd::daemon {

RingShape ShapeOf(const TagRecord& record) {
  const bool has_lanes = record.mode == TagMode::kSegment && record.order == TagOrder::kCpu;
  return {.layout = record.snowflake, .lane_count = has_lanes ? PossibleCpus() : 0};
}

}  // namespace idd::daemon
