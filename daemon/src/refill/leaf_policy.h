// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_REFILL_LEAF_POLICY_H_
#define IDD_DAEMON_REFILL_LEAF_POLICY_H_

#include <chrono>
#include <cstdint>

#include "refill/refill_policy.h"

namespace idd::daemon {

// Leaf's rule: two buffers, the second one filled when a tenth of the first is used. A lease that
// comes less than 15 minutes after the last one is twice as large, up to max_step; one that comes
// more than 30 minutes after it is half as large, down to the step of the table. A lease is cut to
// what MostHeld() leaves room for; where that is less than the next step, it waits until there is
// room for a good part of it.
class LeafPolicy : public RefillPolicy {
 public:
  explicit LeafPolicy(const RefillSettings& settings) { LeafPolicy::Configure(settings); }

  void Configure(const RefillSettings& settings) override;
  void Observe(const RefillView& view) override;
  void OnLeased(const RefillView& view, std::uint64_t ids, std::chrono::nanoseconds took) override;
  [[nodiscard]] std::uint64_t Wanted(const RefillView& view) const override;
  [[nodiscard]] std::uint64_t MarkOf(shm::IdRange ids, const RefillView& view) const override;
  [[nodiscard]] double RatePerSecond() const override { return rate_; }

 private:
  [[nodiscard]] std::uint64_t MostHeldNow(const RefillView& view) const;
  [[nodiscard]] std::uint64_t NextStep(MonotonicTime now) const;
  [[nodiscard]] std::uint64_t DoubledOrHalved(MonotonicTime now, std::uint64_t ceiling) const;

  RefillSettings settings_;
  std::uint64_t step_ = 0;  // of the last lease; 0: none yet
  MonotonicTime leased_at_{};
  bool has_looked_ = false;
  MonotonicTime looked_at_{};
  std::uint64_t looked_claimed_ = 0;
  double rate_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_LEAF_POLICY_H_
