// SPDX-License-Identifier: Apache-2.0
//
// Decides when a tag's next ids are leased, and how many. Pure: numbers and times in, numbers out;
// no clock, no I/O. The daemon and the simulator (tests/simulator) run the same code.
#ifndef IDD_DAEMON_REFILL_REFILL_POLICY_H_
#define IDD_DAEMON_REFILL_REFILL_POLICY_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "idd/base/clock.h"
#include "idd/shm/ring_protocol.h"
#include "refill/refill_settings.h"

namespace idd::daemon {

// The facts about a snowflake tag beyond those of every tag.
struct TimeView {
  std::chrono::milliseconds held{0};  // how far the leased time is ahead of the clock, or behind it
  bool is_new = false;                // nothing was leased since the ring was made
  bool is_used = false;               // ids were claimed a moment ago
  bool is_dry = false;                // no leased time is left, wherever the clock stands
};

// The facts about a tag that a policy gets. `claimed` only grows.
struct RefillView {
  MonotonicTime now{};
  std::uint64_t claimed = 0;        // ids, since the policy was made
  std::uint64_t available = 0;      // published and not claimed
  std::uint64_t soon = 0;           // of these, will be claimed before the next look (MarkWatch)
  std::uint64_t open_segments = 0;  // published and not exhausted
  std::uint64_t newest_size = 0;    // ids of the newest of them
  std::uint64_t waiting = 0;        // ids that claims are waiting for
  std::uint64_t earned = 0;         // ids claimed in the busiest window: ClaimHistory::Most()
  TimeView time{};                  // of a snowflake tag
};

// The policy of one tag. Thread safety: none.
class RefillPolicy {
 public:
  virtual ~RefillPolicy() = default;
  RefillPolicy(const RefillPolicy&) = delete;
  RefillPolicy& operator=(const RefillPolicy&) = delete;

  // An operator has changed the settings.
  virtual void Configure(const RefillSettings& settings) = 0;
  // To be called whenever the ring is looked at: at each publication, at each refill mark, when a
  // claim finds the ring dry, and once a second while ids are claimed.
  virtual void Observe(const RefillView& view) = 0;
  // A lease of `ids` was published at view.now; the store took `took` for it.
  virtual void OnLeased(const RefillView& view, std::uint64_t ids,
                        std::chrono::nanoseconds took) = 0;
  // How many ids to lease now; 0: none. Never more than RefillSettings allow, and never so many
  // that more than MostHeld() would be held, even if every waiting claim gave up.
  [[nodiscard]] virtual std::uint64_t Wanted(const RefillView& view) const = 0;
  // The rate that the policy reckons with, in ids a second.
  [[nodiscard]] virtual double RatePerSecond() const = 0;

  // The id of a segment whose claimer wakes the daemon. `view` is from before the segment's
  // publication.
  [[nodiscard]] virtual std::uint64_t MarkOf(shm::IdRange ids, const RefillView& view) const = 0;

 protected:
  RefillPolicy() = default;
};

// The rule for every policy: no lease raises the held ids of a tag above twice the ids claimed in
// its busiest window, except that two steps are always allowed, nor above max_prefetch. A steady
// load has earned its full promise after half of the outage tolerance.
[[nodiscard]] std::uint64_t MostHeld(const RefillSettings& settings, std::uint64_t earned) noexcept;

// While more than this is held, a lease is not worth it: MostHeld() would leave room for no more
// than the last claim took. The smallest of: five eighths of twice the earned ids, three quarters
// of max_prefetch, and a value that leaves room for a step.
[[nodiscard]] std::uint64_t MostHeldBeforeLease(const RefillSettings& settings,
                                                std::uint64_t earned) noexcept;

// How many ids should be held by now, at any point between two leases: enough for the tolerance at
// the policy's planning rate or, while a load is younger than that, as many as it has earned.
[[nodiscard]] std::uint64_t PromisedIds(const RefillSettings& settings, std::uint64_t earned,
                                        double planning_rate_per_s) noexcept;

// A tenth of `ids`, and the rest. Rounded so that the rest of one id is one id.
[[nodiscard]] constexpr std::uint64_t TenthOf(std::uint64_t ids) noexcept { return ids / 10; }
[[nodiscard]] constexpr std::uint64_t NineTenthsOf(std::uint64_t ids) noexcept {
  return ids - ids / 10;
}

// The policy that the settings name.
[[nodiscard]] std::unique_ptr<RefillPolicy> MakeRefillPolicy(const RefillSettings& settings);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_REFILL_POLICY_H_
