// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/snowflake_fields.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "idd/base/clock.h"

namespace idd::daemon {
namespace {

// Reads the fields that a request has into `layout`.
Status ReadLayout(const AdminRequest& request, SnowflakeLayout& layout) {
  const auto bits = TextField(request, "layout");
  const auto unit = NumberField(request, "unit_ms");
  const auto epoch = TextField(request, "epoch");
  const auto clock = TextField(request, "clock");
  const auto ahead = NumberField(request, "max_ahead_ms");
  for (const Status& status :
       {bits.status(), unit.status(), epoch.status(), clock.status(), ahead.status()}) {
    if (!status.ok()) return status;
  }
  if (bits.value().has_value() && !ParseBits(*bits.value(), layout)) {
    return {Code::kInvalid, "'layout' must be the bits of time, worker and sequence, as 41/10/12"};
  }
  if (unit.value().value_or(1) > 1000) return {Code::kInvalid, "'unit_ms' must be 1, 10 or 1000"};
  if (unit.value().has_value()) layout.unit_ms = static_cast<std::uint32_t>(*unit.value());
  if (epoch.value().has_value()) {
    const std::optional<std::int64_t> at = ParseUtc(*epoch.value());
    if (!at.has_value()) {
      return {Code::kInvalid, "'epoch' must be a date, as 2024-01-01 or 2024-01-01T00:00:00Z"};
    }
    layout.epoch_ms = *at;
  }
  if (clock.value().has_value()) {
    const std::optional<shm::TagClock> known = ParseTagClock(*clock.value());
    if (!known.has_value()) return {Code::kInvalid, "'clock' must be client or daemon"};
    layout.clock = *known;
  }
  if (ahead.value().value_or(0) > kMostAheadMs) {
    return {Code::kInvalid, "'max_ahead_ms' must be at most " + std::to_string(kMostAheadMs)};
  }
  if (ahead.value().has_value()) layout.max_ahead_ms = static_cast<std::uint32_t>(*ahead.value());
  return CheckLayout(layout);
}

}  // namespace

Result<std::optional<SnowflakeLayout>> LayoutFields(const AdminRequest& request) {
  bool has_any = false;
  for (const char* key : {"layout", "unit_ms", "epoch", "clock", "max_ahead_ms"}) {
    has_any |= request.contains(key);
  }
  if (!has_any) return std::optional<SnowflakeLayout>();
  SnowflakeLayout layout;
  if (Status status = ReadLayout(request, layout); !status.ok()) return status;
  return std::optional(layout);
}

Json LayoutJson(const SnowflakeLayout& layout) {
  return {{"layout", BitsText(layout)},
          {"unit_ms", layout.unit_ms},
          {"epoch", UtcText(layout.epoch_ms)},
          {"epoch_ms", layout.epoch_ms},
          {"clock", TagClockName(layout.clock)},
          {"max_ahead_ms", layout.max_ahead_ms},
          {"ids_per_unit", layout.ids_per_unit()},
          {"workers", layout.workers()},
          {"ends", UtcText(layout.end_ms())}};
}

Json PartsJson(const SnowflakeLayout& layout, std::uint64_t id) {
  const std::optional<SnowflakeLayout::Parts> parts = layout.PartsOf(id);
  if (!parts.has_value()) {
    return {{"id", id}, {"error", "it has more bits than the layout " + BitsText(layout)}};
  }
  const std::int64_t time_ms = layout.UnixMsOf(parts->time);
  return {{"id", id},
          {"time", UtcText(time_ms)},
          {"time_ms", time_ms},
          {"worker", parts->worker},
          {"sequence", parts->sequence}};
}

std::string TimeTextOf(const SnowflakeLayout& layout, std::uint64_t number) {
  return UtcText(layout.UnixMsOf(number >> layout.sequence_bits));
}

Json WorkersJson(const SnowflakeLayout& layout, const std::vector<WorkerRecord>& workers) {
  const std::uint64_t now = layout.BoundsAt(WallClock::now_ms()).now;
  Json array = Json::array();
  for (const WorkerRecord& worker : workers) {
    array.push_back({{"worker", worker.worker},
                     {"host", worker.host},
                     {"until", TimeTextOf(layout, worker.next_number)},
                     {"is_over", worker.next_number <= now}});
  }
  return array;
}

}  // namespace idd::daemon
