// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/tag_fields.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "admin/shared/snowflake_fields.h"
#include "store/tag_row.h"

namespace idd::daemon {

Result<NewTag> ReadNewTag(const AdminRequest& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
  if (Status status = CheckNewTagName(tag.value()); !status.ok()) return status;
  const auto mode = TextField(request, "mode");
  const auto access = AccessField(request);
  const auto order = OrderField(request);
  const auto lane_block = NumberField(request, "lane_block");
  const auto description = TextField(request, "description");
  const auto step = NumberField(request, "step");
  const auto start = NumberField(request, "start");
  const auto max_id = NumberField(request, "max_id");
  auto refill = RefillFields(request);
  const auto layout = LayoutFields(request);
  for (const Status& status :
       {mode.status(), access.status(), description.status(), step.status(), start.status(),
        max_id.status(), refill.status(), layout.status(), order.status(), lane_block.status()}) {
    if (!status.ok()) return status;
  }
  NewTag created;
  created.tag = std::move(tag).value();
  const std::string mode_name = mode.value().value_or(TagModeName(created.mode));
  const std::optional<TagMode> known_mode = ParseTagMode(mode_name);
  if (!known_mode.has_value()) {
    return Status(Code::kInvalid,
                  "unknown mode '" + mode_name + "'; use segment, snowflake or ticket");
  }
  const bool has_prefetch = step.value().has_value() || refill.value() != RefillChange{};
  const bool is_by_ring = access.value() == TagAccess::kRing;
  if (*known_mode == TagMode::kTicket && (has_prefetch || is_by_ring)) {
    return NoSuchSettingOfTickets();
  }
  if (*known_mode == TagMode::kSnowflake) {
    RefillChange other = refill.value();
    other.outage_tolerance.reset();
    if (step.value() || start.value() || max_id.value() || other != RefillChange{}) {
      return NoSuchSettingOfSnowflakes();
    }
    created.snowflake = layout.value().value_or(SnowflakeLayout());
  } else if (layout.value().has_value()) {
    return Status(Code::kInvalid,
                  "layout, unit, epoch, clock and max-ahead apply to mode "
                  "snowflake only");
  }
  created.mode = *known_mode;
  created.step = step.value().value_or(kDefaultStep);
  created.start = start.value();
  created.max_id = max_id.value();
  created.description = description.value().value_or("");
  created.access = access.value().value_or(*known_mode == TagMode::kTicket ? TagAccess::kSocket
                                                                           : TagAccess::kRing);
  created.refill = std::move(refill).value();
  created.order = order.value().value_or(TagOrder::kHost);
  created.lane_block = lane_block.value().value_or(0);
  return created;
}

Result<TagChange> ReadTagChange(const AdminRequest& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
  const auto description = TextField(request, "description");
  const auto step = NumberField(request, "step");
  const auto max_id = NumberField(request, "max_id");
  const auto access = AccessField(request);
  const auto refill = RefillFields(request);
  const auto order = OrderField(request);
  const auto lane_block = NumberField(request, "lane_block");
  for (const Status& status :
       {description.status(), step.status(), max_id.status(), access.status(), refill.status(),
        order.status(), lane_block.status()}) {
    if (!status.ok()) return status;
  }
  return TagChange{.tag = std::move(tag).value(),
                   .step = step.value(),
                   .max_id = max_id.value(),
                   .description = description.value(),
                   .access = access.value(),
                   .refill = refill.value(),
                   .order = order.value(),
                   .lane_block = lane_block.value()};
}

}  // namespace idd::daemon
