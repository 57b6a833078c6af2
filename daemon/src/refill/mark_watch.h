// SPDX-License-Identifier: Apache-2.0
//
// When to look at the ring of a tag in use, so that its refill begins before a claim takes the
// refill mark: that claim would send a message, which takes it longer than a thousand others. Pure:
// numbers and times in, times out.
#ifndef IDD_DAEMON_REFILL_MARK_WATCH_H_
#define IDD_DAEMON_REFILL_MARK_WATCH_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "idd/base/clock.h"

namespace idd::daemon {

// Watches the next mark of one ring. Each look moves the next one closer to the mark, so a segment
// takes a few looks, however long it lasts. If the rate jumps between two looks, the claim that
// takes the mark sends its message after all.
//
// Thread safety: none.
class MarkWatch {
 public:
  // The refill begins when the claims of this time would take the mark. It is as long as the
  // shortest time between two looks, and the lateness of a timer.
  static constexpr std::chrono::milliseconds kAhead{2};
  static constexpr std::chrono::milliseconds kShortestPause{1};
  // A mark further away is left to the poll, which looks once a second.
  static constexpr std::chrono::milliseconds kHorizon{1'300};

  struct Plan {
    bool is_due = false;                       // refill now
    std::optional<MonotonicTime> next_look{};  // nothing: at the next event of the tag
  };
  // `claimed` ids of the tag since the beginning; `to_mark` more until a claim takes the next mark,
  // nothing if there is none.
  [[nodiscard]] Plan Look(MonotonicTime now, std::uint64_t claimed,
                          std::optional<std::uint64_t> to_mark) noexcept;

  // How many ids will be claimed within kAhead, as far as the looks of the last milliseconds show.
  [[nodiscard]] std::uint64_t Expected(MonotonicTime now) const noexcept;

 private:
  [[nodiscard]] bool IsLoad(MonotonicTime now) const noexcept;

  bool has_looked_ = false;
  MonotonicTime began_at_{};  // of the load
  MonotonicTime looked_at_{};
  std::uint64_t claimed_ = 0;
  double per_s_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_MARK_WATCH_H_
