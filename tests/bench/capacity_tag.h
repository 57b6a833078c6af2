// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_BENCH_CAPACITY_TAG_H_
#define IDD_TESTS_BENCH_CAPACITY_TAG_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "capacity_simulation.h"
#include "refill/refill_policy.h"

namespace idd::capacity {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Simulated seconds as a time for the daemon's classes. Offset from the clock's origin, which means
// "never" to some of them.
[[nodiscard]] inline MonotonicTime At(double seconds) {
  return MonotonicTime{} + std::chrono::hours(1) +
         std::chrono::duration_cast<MonotonicClock::duration>(
             std::chrono::duration<double>(seconds));
}

// One tag of one host, with claims at a steady rate. Its refill policy sees the ring when the
// daemon would show it: once a second, at a segment's mark, when the ring runs dry, at
// publications.
//
// Between two leases only its own claims change a tag, so it can compute when the next lease falls
// due (NextDue).
class TagModel {
 public:
  TagModel(const daemon::RefillSettings& refill, double ids_per_s, Looks looks)
      : refill_(refill),
        ids_per_s_(ids_per_s),
        looks_(looks),
        policy_(daemon::MakeRefillPolicy(refill)) {}

  // Starts the claims at `now`; the daemon looks every second from then.
  void Begin(double now);
  // As if it had run for a long time; `place`, 0 to 1: its position between two leases at `now`.
  void BeginRunning(double now, double place);

  // Shows the policy everything that it would have seen until `now`. Precedes every call of the
  // policy.
  void CatchUp(double now);
  // Ids to lease now.
  [[nodiscard]] std::uint64_t Wanted(double now);
  // The time at which the daemon will look at the tag and lease; kNever if that is after `until`.
  // Precondition: the tag wants nothing now. Afterwards the policy has seen everything until then.
  [[nodiscard]] double NextDue(double until);
  // Publishes a lease that was requested at `asked_at`. Returns the number of its ids for which
  // claims had waited.
  double Publish(double now, std::uint64_t ids, double asked_at);

  // The time at which the daemon finds the n-th open segment, or the newest, used up.
  [[nodiscard]] double FoundExhausted(std::size_t n) const;
  [[nodiscard]] double FoundNewestExhausted() const { return FoundExhausted(open_ - 1); }
  [[nodiscard]] std::size_t open_segments() const { return open_; }
  [[nodiscard]] double ids_per_s() const { return ids_per_s_; }
  // The claims that wait at `now`.
  [[nodiscard]] double Waiting(double now) const;

 private:
  static constexpr std::size_t kSlots = 16;

  [[nodiscard]] double Demand(double now) const;
  [[nodiscard]] double Claimed(double now) const;
  [[nodiscard]] double TimeOf(double claims) const;  // when that many have been made
  [[nodiscard]] daemon::RefillView View(double now);
  // The value of ClaimHistory at a steady rate: the claims of the busiest window.
  [[nodiscard]] std::uint64_t Earned(double now) const;
  // Earned() has reached its maximum: the load has lasted for a window.
  [[nodiscard]] bool HasEarnedAll(double now) const;
  [[nodiscard]] double LowWater(double now) const;  // as far as a mark shows it
  void Look(double now);
  void LookByPoll();
  // Skips whole seconds if the policy has settled; the next poll stays before `latest`.
  [[nodiscard]] bool Skip(double latest);
  void Open(double ids);

  daemon::RefillSettings refill_;
  double ids_per_s_;
  Looks looks_;
  std::unique_ptr<daemon::RefillPolicy> policy_;
  double begun_at_ = kNever;
  bool has_run_ = false;               // long before begun_at_
  double published_ = 0;               // ids
  std::array<double, kSlots> ends_{};  // ends of the open segments, oldest first, in published ids
  std::size_t open_ = 0;
  double newest_size_ = 0;
  double next_poll_ = kNever;
  double mark_at_ = kNever;
  double dry_look_at_ = kNever;
  unsigned settled_polls_ = 0;  // since the last other event
  double low_water_ = 0;        // the highest since then
  double skipped_s_ = 0;        // time and ids that the policy was not shown
  double skipped_ids_ = 0;
};

}  // namespace idd::capacity

#endif  // IDD_TESTS_BENCH_CAPACITY_TAG_H_
