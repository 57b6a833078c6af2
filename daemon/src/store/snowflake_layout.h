// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_SNOWFLAKE_LAYOUT_H_
#define IDD_DAEMON_STORE_SNOWFLAKE_LAYOUT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idd/base/status.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/snowflake.h"

namespace idd::daemon {

// How the ids of a snowflake tag are made. Fixed when the tag is created.
//
// An id has, from the top: zeros, time, worker, sequence. What is leased and claimed are numbers:
// time << sequence_bits | sequence, of one worker (abi.h, Mode snowflake).
struct SnowflakeLayout {
  std::uint32_t time_bits = 41;
  std::uint32_t worker_bits = 10;
  std::uint32_t sequence_bits = 12;
  std::uint32_t unit_ms = 1;              // of time
  std::int64_t epoch_ms = 1704067200000;  // where time 0 begins, in Unix time: 2024-01-01
  shm::TagClock clock = shm::TagClock::kClaimer;
  std::uint32_t max_ahead_ms = 1000;  // of the clock, for bursts

  [[nodiscard]] std::uint64_t workers() const noexcept { return 1ULL << worker_bits; }
  [[nodiscard]] std::uint64_t time_limit() const noexcept { return 1ULL << time_bits; }
  [[nodiscard]] std::uint64_t number_limit() const noexcept {
    return 1ULL << (time_bits + sequence_bits);
  }
  [[nodiscard]] std::uint64_t ids_per_unit() const noexcept { return 1ULL << sequence_bits; }
  [[nodiscard]] std::uint64_t max_ahead_units() const noexcept { return max_ahead_ms / unit_ms; }

  // The time at a moment, 0 before the epoch and time_limit() after the end.
  [[nodiscard]] std::uint64_t TimeAt(std::int64_t unix_ms) const noexcept;
  [[nodiscard]] std::int64_t UnixMsOf(std::uint64_t time) const noexcept;
  [[nodiscard]] std::int64_t end_ms() const noexcept { return UnixMsOf(time_limit()); }
  [[nodiscard]] std::uint64_t FirstOf(std::uint64_t time) const noexcept {
    return time << sequence_bits;
  }
  // The least number with a time at or above that of all numbers below `number`.
  [[nodiscard]] std::uint64_t RoundUp(std::uint64_t number) const noexcept;
  // Numbers from now on, and from where on they are too far ahead.
  [[nodiscard]] shm::TimeBounds BoundsAt(std::int64_t unix_ms) const noexcept;

  [[nodiscard]] shm::IdLayout IdsOfWorker(std::uint32_t worker) const noexcept;
  [[nodiscard]] shm::RingTime OfRing() const noexcept;

  struct Parts {
    std::uint64_t time = 0;
    std::uint32_t worker = 0;
    std::uint64_t sequence = 0;
  };
  // Nothing: the id has more bits than the layout.
  [[nodiscard]] std::optional<Parts> PartsOf(std::uint64_t id) const noexcept;
  [[nodiscard]] std::uint64_t NumberOf(const Parts& parts) const noexcept {
    return FirstOf(parts.time) | parts.sequence;
  }

  friend bool operator==(const SnowflakeLayout&, const SnowflakeLayout&) = default;
};

// The largest max_ahead that may be set.
inline constexpr std::uint32_t kMostAheadMs = 3'600'000;

// kInvalid: bits that are missing or do not fit into 63, or another value out of its bounds.
[[nodiscard]] Status CheckLayout(const SnowflakeLayout& layout);
// For a new tag: its epoch has begun, and its time lasts for a year at least. kInvalid with the
// dates.
[[nodiscard]] Status CheckLifetime(const SnowflakeLayout& layout, std::int64_t unix_ms);

// The column idd_snowflake.layout: "41/10/12 unit=1 epoch=1704067200000 clock=client ahead=1000",
// all times in ms. Parsing accepts what FormatLayout() makes, if CheckLayout() does.
[[nodiscard]] std::string FormatLayout(const SnowflakeLayout& layout);
[[nodiscard]] std::optional<SnowflakeLayout> ParseLayout(std::string_view text);

// "41/10/12".
[[nodiscard]] std::string BitsText(const SnowflakeLayout& layout);
// Fills the three bits in. False: not three numbers.
[[nodiscard]] bool ParseBits(std::string_view text, SnowflakeLayout& layout);
[[nodiscard]] const char* TagClockName(shm::TagClock clock) noexcept;  // "client", "daemon"
[[nodiscard]] std::optional<shm::TagClock> ParseTagClock(std::string_view name) noexcept;

// "2024-01-01T00:00:00.000Z".
[[nodiscard]] std::string UtcText(std::int64_t unix_ms);
// "2024-01-01", "2024-01-01T00:00:00Z" or "2024-01-01T00:00:00.000Z", in ms.
[[nodiscard]] std::optional<std::int64_t> ParseUtc(std::string_view text);

// The row of leaf_alloc that counts the numbers of one worker: "TAG#WORKER".
[[nodiscard]] std::string CounterName(const std::string& tag, std::uint32_t worker);
struct CounterOf {
  std::string tag;
  std::uint32_t worker = 0;
};
// Nothing: not such a name.
[[nodiscard]] std::optional<CounterOf> ParseCounterName(std::string_view name);
// kInvalid: the name is that of a counter, which is not a tag.
[[nodiscard]] Status CheckIsNoCounter(const std::string& tag);
// The tag that is served with the leases of a row of leaf_alloc: the row's own name, without the
// worker's number.
[[nodiscard]] std::string ServedName(const std::string& row);
// The longest tag name that leaves room for the worker.
inline constexpr std::size_t kMaxSnowflakeTagBytes = 120;

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SNOWFLAKE_LAYOUT_H_
