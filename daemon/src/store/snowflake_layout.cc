// SPDX-License-Identifier: Apache-2.0
#include "store/snowflake_layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <utility>

namespace idd::daemon {
namespace {

constexpr std::int64_t kYearMs = 366LL * 86'400'000;
// The epoch may be from 1970 to 2200.
constexpr std::int64_t kLatestEpochMs = 7'258'118'400'000;
constexpr std::uint32_t kMaxWorkerBits = 20;
constexpr std::uint32_t kMaxSequenceBits = 22;

template <typename T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Takes "name=" and the value behind it from the front of `text`.
template <typename T>
std::optional<T> Field(std::string_view& text, std::string_view name) {
  if (!text.starts_with(name)) return std::nullopt;
  text.remove_prefix(name.size());
  const std::string_view value = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), value.size() + 1));
  if constexpr (std::is_same_v<T, std::string_view>) {
    return value;
  } else {
    return Number<T>(value);
  }
}

}  // namespace

std::uint64_t SnowflakeLayout::TimeAt(std::int64_t unix_ms) const noexcept {
  if (unix_ms <= epoch_ms) return 0;
  return std::min(static_cast<std::uint64_t>(unix_ms - epoch_ms) / unit_ms, time_limit());
}

std::int64_t SnowflakeLayout::UnixMsOf(std::uint64_t time) const noexcept {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 2);
  if (time > kMost / unit_ms) return std::numeric_limits<std::int64_t>::max() / 2;
  return epoch_ms + static_cast<std::int64_t>(time * unit_ms);
}

std::uint64_t SnowflakeLayout::RoundUp(std::uint64_t number) const noexcept {
  const std::uint64_t mask = ids_per_unit() - 1;
  return (number & mask) == 0 ? number : (number | mask) + 1;
}

shm::TimeBounds SnowflakeLayout::BoundsAt(std::int64_t unix_ms) const noexcept {
  const std::uint64_t time = TimeAt(unix_ms);
  return {.now = FirstOf(time), .frontier = FirstOf(time + max_ahead_units() + 1)};
}

shm::IdLayout SnowflakeLayout::IdsOfWorker(std::uint32_t worker) const noexcept {
  return {.worker_bits = std::uint64_t{worker} << sequence_bits,
          .sequence_bits = sequence_bits,
          .time_shift = worker_bits + sequence_bits};
}

shm::RingTime SnowflakeLayout::OfRing() const noexcept {
  return {.epoch_ms = epoch_ms, .unit_ms = unit_ms, .clock = clock, .max_ahead = max_ahead_units()};
}

std::optional<SnowflakeLayout::Parts> SnowflakeLayout::PartsOf(std::uint64_t id) const noexcept {
  Parts parts{.time = id >> (worker_bits + sequence_bits),
              .worker = static_cast<std::uint32_t>(id >> sequence_bits & (workers() - 1)),
              .sequence = id & (ids_per_unit() - 1)};
  if (parts.time >= time_limit()) return std::nullopt;
  return parts;
}

Status CheckLayout(const SnowflakeLayout& layout) {
  const auto refuse = [](const std::string& why) {
    return Status(Code::kInvalid, "the layout of a snowflake tag " + why);
  };
  if (layout.time_bits < 1 || layout.worker_bits < 1 || layout.sequence_bits < 1 ||
      layout.worker_bits > kMaxWorkerBits || layout.sequence_bits > kMaxSequenceBits ||
      layout.time_bits > 62) {
    return refuse(
        "has 1 bit or more for each part, at most 20 for the worker and 22 for the "
        "sequence, not " +
        BitsText(layout));
  }
  if (layout.time_bits + layout.worker_bits + layout.sequence_bits > 63) {
    return refuse("has at most 63 bits, so that ids are positive, not " + BitsText(layout));
  }
  if (layout.unit_ms != 1 && layout.unit_ms != 10 && layout.unit_ms != 1000) {
    return refuse("counts time in units of 1ms, 10ms or 1s");
  }
  if (layout.epoch_ms < 0 || layout.epoch_ms > kLatestEpochMs) {
    return refuse("has an epoch from 1970 to 2200");
  }
  if (layout.max_ahead_ms > kMostAheadMs) return refuse("has a max-ahead of at most 3600s");
  return Status::Ok();
}

Status CheckLifetime(const SnowflakeLayout& layout, std::int64_t unix_ms) {
  if (layout.epoch_ms > unix_ms) {
    return {Code::kInvalid, "the epoch " + UtcText(layout.epoch_ms) +
                                " lies in the future; ids would have no time before it"};
  }
  if (layout.end_ms() - unix_ms >= kYearMs) return Status::Ok();
  return {Code::kInvalid, "the time bits of the layout " + BitsText(layout) + " end at " +
                              UtcText(layout.end_ms()) +
                              ", in less than a year; give the time more bits, a longer unit or a "
                              "later epoch"};
}

std::string FormatLayout(const SnowflakeLayout& layout) {
  return BitsText(layout) + " unit=" + std::to_string(layout.unit_ms) +
         " epoch=" + std::to_string(layout.epoch_ms) + " clock=" + TagClockName(layout.clock) +
         " ahead=" + std::to_string(layout.max_ahead_ms);
}

std::optional<SnowflakeLayout> ParseLayout(std::string_view text) {
  SnowflakeLayout layout;
  const std::string_view bits = text.substr(0, text.find(' '));
  if (!ParseBits(bits, layout)) return std::nullopt;
  text.remove_prefix(std::min(text.size(), bits.size() + 1));
  const auto unit = Field<std::uint32_t>(text, "unit=");
  const auto epoch = Field<std::int64_t>(text, "epoch=");
  const auto clock = Field<std::string_view>(text, "clock=");
  const auto ahead = Field<std::uint32_t>(text, "ahead=");
  if (!unit || !epoch || !clock || !ahead || !text.empty()) return std::nullopt;
  const std::optional<shm::TagClock> known = ParseTagClock(*clock);
  if (!known.has_value()) return std::nullopt;
  layout.unit_ms = *unit;
  layout.epoch_ms = *epoch;
  layout.clock = *known;
  layout.max_ahead_ms = *ahead;
  if (!CheckLayout(layout).ok()) return std::nullopt;
  return layout;
}

std::string BitsText(const SnowflakeLayout& layout) {
  return std::to_string(layout.time_bits) + "/" + std::to_string(layout.worker_bits) + "/" +
         std::to_string(layout.sequence_bits);
}

bool ParseBits(std::string_view text, SnowflakeLayout& layout) {
  const std::array<std::uint32_t*, 3> parts = {&layout.time_bits, &layout.worker_bits,
                                               &layout.sequence_bits};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 < parts.size() ? text.find('/') : text.size();
    if (end == std::string_view::npos) return false;
    const auto bits = Number<std::uint32_t>(text.substr(0, end));
    if (!bits.has_value()) return false;
    *parts[i] = *bits;
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return true;
}

const char* TagClockName(shm::TagClock clock) noexcept {
  return clock == shm::TagClock::kDaemon ? "daemon" : "client";
}

std::optional<shm::TagClock> ParseTagClock(std::string_view name) noexcept {
  if (name == "client") return shm::TagClock::kClaimer;
  if (name == "daemon") return shm::TagClock::kDaemon;
  return std::nullopt;
}

std::string UtcText(std::int64_t unix_ms) {
  using namespace std::chrono;
  const sys_time<milliseconds> at{milliseconds(unix_ms)};
  const sys_days day = floor<days>(at);
  const year_month_day date(day);
  const hh_mm_ss<milliseconds> time(at - day);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ",
                static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()), static_cast<int>(time.hours().count()),
                static_cast<int>(time.minutes().count()), static_cast<int>(time.seconds().count()),
                static_cast<int>(time.subseconds().count()));
  return text;
}

std::optional<std::int64_t> ParseUtc(std::string_view text) {
  using namespace std::chrono;
  if (text.size() != 10 && text.size() != 20 && text.size() != 24) return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t length) {
    return Number<unsigned>(text.substr(at, length));
  };
  const auto y = number(0, 4);
  const auto m = number(5, 2);
  const auto d = number(8, 2);
  if (!y || !m || !d || text[4] != '-' || text[7] != '-') return std::nullopt;
  const year_month_day date{year(static_cast<int>(*y)), month(*m), day(*d)};
  if (!date.ok()) return std::nullopt;
  std::int64_t ms = sys_time<milliseconds>(sys_days(date)).time_since_epoch().count();
  if (text.size() == 10) return ms;
  const auto h = number(11, 2);
  const auto min = number(14, 2);
  const auto s = number(17, 2);
  if (!h || !min || !s || *h > 23 || *min > 59 || *s > 59 || text[10] != 'T' || text[13] != ':' ||
      text[16] != ':' || text.back() != 'Z') {
    return std::nullopt;
  }
  ms += ((*h * 60LL + *min) * 60 + *s) * 1000;
  if (text.size() == 20) return ms;
  const auto fraction = number(20, 3);
  if (!fraction || text[19] != '.') return std::nullopt;
  return ms + *fraction;
}

std::string CounterName(const std::string& tag, std::uint32_t worker) {
  return tag + "#" + std::to_string(worker);
}

std::optional<CounterOf> ParseCounterName(std::string_view name) {
  const std::size_t mark = name.rfind('#');
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  const auto worker = Number<std::uint32_t>(name.substr(mark + 1));
  if (!worker.has_value()) return std::nullopt;
  CounterOf counter{.tag = std::string(name.substr(0, mark)), .worker = *worker};
  if (CounterName(counter.tag, counter.worker) != name) return std::nullopt;
  return counter;
}

Status CheckIsNoCounter(const std::string& tag) {
  if (!ParseCounterName(tag).has_value()) return Status::Ok();
  return {Code::kInvalid, "tag '" + tag +
                              "': names that end in '#' and digits are those of the worker ids of "
                              "snowflake tags"};
}

std::string ServedName(const std::string& row) {
  std::optional<CounterOf> counter = ParseCounterName(row);
  return counter.has_value() ? std::move(counter->tag) : row;
}

}  // namespace idd::daemon
