// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_TAG_TIME_H_
#define IDD_DAEMON_TAGS_TAG_TIME_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "idd/shm/snowflake.h"
#include "platform/event_loop.h"
#include "refill/refill_policy.h"
#include "store/snowflake_layout.h"
#include "tags/leased_ids.h"

namespace idd::daemon {

// The clock of one snowflake tag on this host. It decides how far claims may go, notes whether the
// tag is used and, if its claimers read no clock, moves its ring with the time while it is.
//
// Thread safety: none; event loop.
class TagTime {
 public:
  // `on_time`: called when a claim that waited for the clock may go on.
  TagTime(EventLoop& loop, LeasedIds& ids, std::function<void()> on_time)
      : ids_(ids), on_time_(std::move(on_time)), tick_(loop), wake_(loop) {}
  TagTime(const TagTime&) = delete;
  TagTime& operator=(const TagTime&) = delete;

  // Nothing: the tag is not in mode snowflake; no other method is then called.
  void Configure(const std::optional<SnowflakeLayout>& layout) { layout_ = layout; }
  [[nodiscard]] bool is_on() const noexcept { return layout_.has_value(); }

  // Up to `count` ids of the ring. If they are too early, on_time is called when they are not.
  [[nodiscard]] shm::IdRange Claim(std::uint64_t count);
  // The tag is asked for: moves its ring to the present.
  void Use();
  // False: the ring's cursors stand further ahead than any claim at a time that idd has seen can
  // have moved them, so a client forged them, or its clock is wrong.
  [[nodiscard]] bool IsPlausible();
  // The next ring goes on from there: another idd has seen these leases claimed.
  void Inherit(const std::vector<LeaseUse>& leases);
  // Once a second: notes whether ids were claimed since, and ends a window that is over.
  void Poll();
  void Stop();

  [[nodiscard]] TimeView View() const;
  // Why the last claim waits for the clock; empty: it does not.
  [[nodiscard]] std::string Reason() const { return ReasonFor(early_); }
  // The same for the next claim of any claimer.
  [[nodiscard]] std::string LookAhead() const;
  // The days until the time bits are used up.
  [[nodiscard]] double DaysLeft() const;

 private:
  [[nodiscard]] shm::TimeBounds Bounds() const;
  [[nodiscard]] bool IsMovedByDaemon() const noexcept {
    return layout_->clock == shm::TagClock::kDaemon;
  }
  [[nodiscard]] std::string ReasonFor(const std::optional<std::uint64_t>& early) const;
  [[nodiscard]] bool IsUsed() const;
  void NoteUse();
  void Move();
  void Tick();

  LeasedIds& ids_;
  const std::function<void()> on_time_;
  Timer tick_;
  Timer wake_;
  std::optional<SnowflakeLayout> layout_;
  std::uint64_t seen_ = 0;  // LeasedIds::Claimed() after the last move or look
  MonotonicTime used_at_{};
  // The frontier that idd would see if its clock had only gone on since the highest that it saw.
  std::uint64_t highest_ = 0;
  MonotonicTime looked_at_{};
  std::optional<std::uint64_t> early_;  // the number that the last claim found too early
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_TIME_H_
