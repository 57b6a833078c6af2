// SPDX-License-Identifier: Apache-2.0
#include "snowflakes.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "world.h"

namespace idd::simulation {
namespace {

using daemon::SnowflakeLayout;
using Kind = Incident::Kind;

constexpr std::int64_t kDayMs = 86'400'000;

// Layouts of which every time lasts for a year at least. Some have few worker ids, so that those
// run short after a failover; some have few ids of one time, so that claims wait for the clock.
SnowflakeLayout AnyLayout(Random& random) {
  struct Shape {
    std::uint32_t time_bits;
    std::uint32_t worker_bits;
    std::uint32_t sequence_bits;
    std::uint32_t unit_ms;
  };
  static constexpr Shape kShapes[] = {
      {41, 10, 12, 1}, {37, 2, 5, 1},  {38, 3, 2, 1},
      {34, 3, 8, 10},  {34, 2, 3, 10}, {28, 4, 14, 1000},
  };
  const Shape& shape = kShapes[random.Below(std::size(kShapes))];
  SnowflakeLayout layout;
  layout.time_bits = shape.time_bits;
  layout.worker_bits = shape.worker_bits;
  layout.sequence_bits = shape.sequence_bits;
  layout.unit_ms = shape.unit_ms;
  layout.epoch_ms = kWorldBeganMs - random.Between(1, 60) * kDayMs;
  static constexpr std::uint32_t kAhead[] = {0, 10, 200, 1000, 1000, 5000};
  layout.max_ahead_ms = kAhead[random.Below(std::size(kAhead))];
  // The daemon moves a ring in each unit, which are a thousand events a second if that is 1 ms.
  if (shape.unit_ms != 1 && random.Percent(60)) layout.clock = shm::TagClock::kDaemon;
  return layout;
}

}  // namespace

std::vector<daemon::NewTag> PlanSnowflakes(std::uint64_t seed) {
  Random random(seed ^ 0x736e6f77666c616b);
  std::vector<daemon::NewTag> tags;
  const std::uint64_t count = random.Percent(50) ? 0 : random.Percent(70) ? 1 : 2;
  for (std::uint64_t i = 0; i < count; ++i) {
    daemon::NewTag tag;
    tag.tag = "snow" + std::to_string(i);
    tag.mode = daemon::TagMode::kSnowflake;
    tag.snowflake = AnyLayout(random);
    tag.refill.outage_tolerance = std::chrono::seconds(1 + random.Below(20));
    if (random.Percent(10)) tag.access = daemon::TagAccess::kSocket;
    tags.push_back(std::move(tag));
  }
  return tags;
}

Nanos ClockErrorOf(std::uint64_t seed, std::uint64_t machine) {
  Random random(seed ^ 0x636c6f636b737363 ^ machine);
  return random.Between(-30 * kMillisecond, 30 * kMillisecond);
}

void AddClockIncidents(std::uint64_t seed, std::vector<Incident>& incidents) {
  if (incidents.empty() || PlanSnowflakes(seed).empty()) return;
  Random random(seed ^ 0x636c6f636b737465);
  if (random.Percent(25)) return;
  static constexpr std::uint64_t kMost[] = {3, 10, 30};
  const std::uint64_t count = 1 + random.Below(kMost[random.Below(std::size(kMost))]);
  const Nanos last = incidents.back().at;
  for (std::uint64_t i = 0; i < count; ++i) {
    static constexpr Kind kKinds[] = {Kind::kClockBack, Kind::kClockAhead, Kind::kClockRight};
    Incident incident;
    incident.at = random.Between(kSecond, last);
    incident.kind = kKinds[random.Below(std::size(kKinds))];
    incident.who = random.Next() >> 8;
    incident.how = random.Next() >> 8;
    incidents.push_back(incident);
  }
  std::stable_sort(incidents.begin(), incidents.end(),
                   [](const Incident& a, const Incident& b) { return a.at < b.at; });
}

std::string CreateRequest(const daemon::NewTag& tag) {
  const SnowflakeLayout& layout = *tag.snowflake;
  return R"({"op":"tag.create","if_absent":true,"mode":"snowflake","tag":")" + tag.tag +
         R"(","layout":")" + daemon::BitsText(layout) + R"(","unit_ms":)" +
         std::to_string(layout.unit_ms) + R"(,"epoch":")" +
         daemon::UtcText(layout.epoch_ms).substr(0, 10) + R"(","clock":")" +
         daemon::TagClockName(layout.clock) + R"(","max_ahead_ms":)" +
         std::to_string(layout.max_ahead_ms) + R"(,"outage_tolerance_s":)" +
         std::to_string(tag.refill.outage_tolerance->count()) + "}";
}

}  // namespace idd::simulation
