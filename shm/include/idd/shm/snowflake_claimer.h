// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_SNOWFLAKE_CLAIMER_H_
#define IDD_SHM_SNOWFLAKE_CLAIMER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "idd/shm/abi.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/ring_claimer.h"
#include "idd/shm/ring_protocol.h"
#include "idd/shm/snowflake.h"

namespace idd::shm {

// The clock of a snowflake ring.
class SnowflakeClock {
 public:
  // Copies what never changes, so that it can be asked after the ring was blanked.
  explicit SnowflakeClock(const Table& table) noexcept;

  [[nodiscard]] TimeBounds Bounds(std::uint32_t sequence_bits) const noexcept;
  // The time now, in units since the epoch; 0 before the epoch.
  [[nodiscard]] std::uint64_t Now() const noexcept;
  // How far a time is ahead of the clock.
  [[nodiscard]] std::uint64_t AheadMs(std::uint64_t time) const noexcept {
    return (time - std::min(time, Now())) * unit_ms_;
  }
  [[nodiscard]] bool is_claimers() const noexcept { return is_claimers_; }

 private:
  const RingLive& live_;
  const std::int64_t epoch_ms_;
  const std::uint64_t unit_ms_;
  const std::uint64_t max_ahead_;
  const bool is_claimers_;
};

struct SnowflakeClaim {
  IdRange ids{};  // contiguous; empty: the ring is dry, or the time is used up
  // The clock has not come near enough to these ids, or, without ids, to the next one: wait until
  // IsDue(number).
  bool is_early = false;
  std::uint64_t number = 0;
};

// A claimer's side of one ring in TagMode::kSnowflake.
//
// Thread safety: as RingClaimer.
class SnowflakeClaimer {
 public:
  // As RingClaimer; the ring's mode is kSnowflake.
  SnowflakeClaimer(const Table& table, Cursors& cursors) noexcept
      : table_(table), claimer_(table, cursors, view_), clock_(table) {}
  SnowflakeClaimer(const SnowflakeClaimer&) = delete;
  SnowflakeClaimer& operator=(const SnowflakeClaimer&) = delete;

  // Up to `count` (>= 1) ids of one time. Never blocks.
  [[nodiscard]] SnowflakeClaim Claim(std::uint64_t count) noexcept;
  // Whether the clock allows this number of an early claim. Wait with a deadline, and look at
  // state() meanwhile: with the daemon's clock, a ring that is no longer active may never allow it.
  // Without ids, claim again from time to time: a hostile client may have set the cursor ahead.
  [[nodiscard]] bool IsDue(std::uint64_t number) noexcept;
  // How far its time is ahead of this process's clock.
  [[nodiscard]] std::uint64_t AheadMs(std::uint64_t number) noexcept;
  // Claimers of this ring read the clock; otherwise the daemon moves the ring.
  [[nodiscard]] bool reads_clock() const noexcept { return clock_.is_claimers(); }

  [[nodiscard]] RingState state() const noexcept { return claimer_.state(); }

 private:
  // The layout of the ring's numbers; nothing before the first segment was published.
  [[nodiscard]] std::optional<IdLayout> Layout() noexcept;

  const Table& table_;
  ClaimView view_{DryPoint()};
  RingClaimer claimer_;
  const SnowflakeClock clock_;
  // A copy of the layout, set if time_shift_ is. A thread that is stopped inside a claim while the
  // ring is blanked still makes the right ids.
  std::atomic<std::uint64_t> worker_bits_{0};
  std::atomic<std::uint32_t> sequence_bits_{0};
  std::atomic<std::uint32_t> time_shift_{0};
};

}  // namespace idd::shm

#endif  // IDD_SHM_SNOWFLAKE_CLAIMER_H_
