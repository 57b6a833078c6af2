// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_SNOWFLAKE_CLAIMER_H_
#define IDD_SHM_SNOWFLAKE_CLAIMER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "idd/base/clock.h"
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

  [[nodiscard]] TimeBounds Bounds(std::uint32_t sequence_bits) const noexcept {
    if (!is_claimers_) {
      return {.now = 0, .frontier = live_.frontier.load(std::memory_order_acquire)};  // U6, with U5
    }
    const std::uint64_t time = Now();
    return {.now = time << sequence_bits, .frontier = (time + max_ahead_ + 1) << sequence_bits};
  }
  // The time now, in units since the epoch; 0 before the epoch.
  [[nodiscard]] std::uint64_t Now() const noexcept {
    const std::int64_t since = WallClock::now_ms() - epoch_ms_;
    if (since < 0) return 0;
    // A division by a number that is not known when this is compiled takes longer than the add.
    return unit_ms_ == 1 ? static_cast<std::uint64_t>(since)
                         : static_cast<std::uint64_t>(since) / unit_ms_;
  }
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
  // IsDue(number). With the daemon's clock there are never ids: ask the daemon.
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

  // Up to `count` (>= 1) ids of one time. Never blocks. It looks where the cursor is before it
  // adds, so it takes no ids that are too early, and a batch takes none of the next time.
  [[nodiscard]] SnowflakeClaim Claim(std::uint64_t count) noexcept;
  // The same for one id, in less time: as the cursor was within the clock's bounds at the last
  // claim, it adds and then looks. An early id is kept for the caller, who waits;
  // with the daemon's clock it is a gap, and the caller asks the daemon.
  [[nodiscard]] SnowflakeClaim ClaimOne() noexcept {
    const std::uint32_t time_shift = time_shift_.load(std::memory_order_acquire);  // U3, with U4
    if (time_shift == 0 || looks_first_.load(std::memory_order_relaxed)) [[unlikely]]  // U7
      return Claim(1);
    const IdLayout layout{
        .worker_bits = worker_bits_.load(std::memory_order_relaxed),      // U3 orders it
        .sequence_bits = sequence_bits_.load(std::memory_order_relaxed),  // U3 orders it
        .time_shift = time_shift};
    const TimeBounds bounds = clock_.Bounds(layout.sequence_bits);
    const IdRange numbers = ClaimAtPoint(view_, 1).ids;
    // A number of the past is skipped: all others up to the clock's time are, too.
    if (numbers.empty() || numbers.first < bounds.now) [[unlikely]]
      return Claim(1);
    if (numbers.first >= bounds.frontier) [[unlikely]]
      return Early(layout, numbers);
    const std::uint64_t id = layout.IdOf(numbers.first);
    return {.ids = {id, id + 1}, .is_early = false, .number = numbers.first};
  }
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
  // The next claims look first, until one finds the cursor within the clock's bounds again. So a
  // program that does not wait takes one early id for each thread, and does not drive the cursor
  // ahead.
  [[nodiscard, gnu::cold, gnu::noinline]] SnowflakeClaim Early(const IdLayout& layout,
                                                               IdRange numbers) noexcept;

  const Table& table_;
  ClaimView view_{DryPoint()};
  RingClaimer claimer_;
  const SnowflakeClock clock_;
  // A copy of the layout, set if time_shift_ is. A thread that is stopped inside a claim while the
  // ring is blanked still makes the right ids.
  std::atomic<std::uint64_t> worker_bits_{0};
  std::atomic<std::uint32_t> sequence_bits_{0};
  std::atomic<std::uint32_t> time_shift_{0};
  std::atomic<bool> looks_first_{false};  // a hint
};

}  // namespace idd::shm

#endif  // IDD_SHM_SNOWFLAKE_CLAIMER_H_
