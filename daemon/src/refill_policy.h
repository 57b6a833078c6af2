// SPDX-License-Identifier: Apache-2.0
//
// When a tag's next ids are leased, and how many. Pure: numbers and times in, numbers out; no
// clock, no I/O. The daemon and the simulator (tests/simulator) run the same code.
#ifndef IDD_DAEMON_REFILL_POLICY_H_
#define IDD_DAEMON_REFILL_POLICY_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "idd/base/clock.h"
#include "idd/shm/ring_protocol.h"
#include "refill_settings.h"

namespace idd::daemon {

// What a policy is shown of a tag. `claimed` only grows.
struct RefillView {
  MonotonicTime now{};
  std::uint64_t claimed = 0;        // ids, since the policy was made
  std::uint64_t available = 0;      // published and not claimed
  std::uint64_t open_segments = 0;  // published and not exhausted
  std::uint64_t newest_size = 0;    // ids of the newest of them
  std::uint64_t waiting = 0;        // ids that claims are waiting for
};

// One tag's. Thread safety: none.
class RefillPolicy {
 public:
  virtual ~RefillPolicy() = default;
  RefillPolicy(const RefillPolicy&) = delete;
  RefillPolicy& operator=(const RefillPolicy&) = delete;

  // An operator changed them.
  virtual void Configure(const RefillSettings& settings) = 0;
  // To be called whenever the ring is looked at: at each publication, at each refill mark, when a
  // claim finds the ring dry, and once a second while anybody claims.
  virtual void Observe(const RefillView& view) = 0;
  // A lease of `ids` was published at view.now; the store took `took` for it.
  virtual void OnLeased(const RefillView& view, std::uint64_t ids,
                        std::chrono::nanoseconds took) = 0;
  // Ids to lease now; 0: none. Never more than RefillSettings allow.
  [[nodiscard]] virtual std::uint64_t Wanted(const RefillView& view) const = 0;
  // Ids a second, what the policy reckons with.
  [[nodiscard]] virtual double RatePerSecond() const = 0;

  // The id of a segment whose claimer wakes the daemon. `view` is from before its publication.
  [[nodiscard]] virtual std::uint64_t MarkOf(shm::IdRange ids, const RefillView& view) const = 0;

 protected:
  RefillPolicy() = default;
};

// A tenth of `ids`, and what is left then. Rounded so that one id is left of one.
[[nodiscard]] constexpr std::uint64_t TenthOf(std::uint64_t ids) noexcept { return ids / 10; }
[[nodiscard]] constexpr std::uint64_t NineTenthsOf(std::uint64_t ids) noexcept {
  return ids - ids / 10;
}

// The policy that the settings name.
[[nodiscard]] std::unique_ptr<RefillPolicy> MakeRefillPolicy(const RefillSettings& settings);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_POLICY_H_
