// SPDX-License-Identifier: Apache-2.0
//
// `tag.create`.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/snowflake_fields.h"
#include "platform/logging.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

Result<NewTag> ReadNewTag(const AdminRequest& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
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

struct CreatedTag {
  TagRecord record;
  bool is_new = true;
};

// An existing tag of this name is the answer with `if_absent`, and an error without it.
Result<CreatedTag> CreateOrFind(Store& store, const NewTag& tag, bool if_absent) {
  if (if_absent) {
    Result<TagRecord> found = store.FindTag(tag.tag);
    if (found.ok()) return CreatedTag{std::move(found).value(), false};
    if (found.status().code() != Code::kNoSuchTag) return found.status();
  }
  Result<TagRecord> created = store.CreateTag(tag);
  if (created.ok()) return CreatedTag{std::move(created).value(), true};
  // Another host may have created it in between.
  if (if_absent && created.status().code() == Code::kInvalid) {
    Result<TagRecord> found = store.FindTag(tag.tag);
    if (found.ok()) return CreatedTag{std::move(found).value(), false};
  }
  return created.status();
}

}  // namespace

void CreateTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
               AdminDone done) {
  Result<NewTag> tag = ReadNewTag(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const Result<bool> if_absent = FlagField(request, "if_absent");
  if (!if_absent.ok()) return Fail(done, if_absent.status());
  context.worker.Submit<CreatedTag>(
      [tag = std::move(tag).value(), if_absent = if_absent.value()](Store& store, HighWaterMarks&) {
        return CreateOrFind(store, tag, if_absent);
      },
      [&context, done = std::move(done)](const Result<CreatedTag>& created) {
        if (!created.ok()) return Fail(done, created.status());
        const TagRecord& record = created.value().record;
        if (created.value().is_new) {
          context.tags.OnTagCreated();
          log::Info("tag.created", {{"tag", record.tag}, {"step", record.step}});
        }
        done(Status::Ok(), Dump({{"tag", TagJson(record)}, {"created", created.value().is_new}}));
      });
}

}  // namespace idd::daemon
