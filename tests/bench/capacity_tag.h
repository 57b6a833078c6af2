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

// Simulated seconds as the daemon's classes take them. Not from the clock's beginning, which means
// "never" to some.
[[nodiscard]] inline MonotonicTime At(double seconds) {
  return MonotonicTime{} + std::chrono::hours(1) +
         std::chrono::duration_cast<MonotonicClock::duration>(
             std::chrono::duration<double>(seconds));
}

// One tag of one host: claims at a steady rate, and the refill policy that is shown the ring as the
// daemon shows it: once a second, at a segment's mark, when the ring runs dry, at publications.
//
// As nothing but its own claims happens to a tag between two leases, it can tell beforehand when
// the next one falls due (NextDue).
class TagModel {
 public:
  TagModel(const daemon::RefillSettings& refill, double ids_per_s, Looks looks)
      : refill_(refill),
        ids_per_s_(ids_per_s),
        looks_(looks),
        policy_(daemon::MakeRefillPolicy(refill)) {}

  // Claims flow from `now` on, and the daemon looks every second from then.
  void Begin(double now);
  // As if it had run for long; `place`, 0 to 1: where between two leases it is at `now`.
  void BeginRunning(double now, double place);

  // Has the policy see what it would have seen until `now`, before it is asked or told anything.
  void CatchUp(double now);
  // Ids to lease now.
  [[nodiscard]] std::uint64_t Wanted(double now);
  // When the daemon will look at it and lease; kNever if that is after `until`. Precondition: it
  // wants nothing now. The policy has seen everything until then afterwards.
  [[nodiscard]] double NextDue(double until);
  // A lease that was asked for at `asked_at`. Returns how many of its ids claims had waited for.
  double Publish(double now, std::uint64_t ids, double asked_at);

  // When the daemon finds the n-th of the open segments, or the newest, used up.
  [[nodiscard]] double FoundExhausted(std::size_t n) const;
  [[nodiscard]] double FoundNewestExhausted() const { return FoundExhausted(open_ - 1); }
  [[nodiscard]] std::size_t open_segments() const { return open_; }
  [[nodiscard]] double ids_per_s() const { return ids_per_s_; }
  // Claims that wait at `now`.
  [[nodiscard]] double Waiting(double now) const;

 private:
  static constexpr std::size_t kSlots = 16;

  [[nodiscard]] double Demand(double now) const;
  [[nodiscard]] double Claimed(double now) const;
  [[nodiscard]] double TimeOf(double claims) const;  // when so many have been made
  [[nodiscard]] daemon::RefillView View(double now);
  // What ClaimHistory tells of claims at a steady rate: these are its busiest window.
  [[nodiscard]] std::uint64_t Earned(double now) const;
  // Nothing more is earned: the load has lasted for a window.
  [[nodiscard]] bool HasEarnedAll(double now) const;
  [[nodiscard]] double LowWater(double now) const;  // as far as a mark tells it
  void Look(double now);
  void LookByPoll();
  // Leaves out whole seconds, if the policy has settled, and looks at least as late as `latest`.
  [[nodiscard]] bool Skip(double latest);
  void Open(double ids);

  daemon::RefillSettings refill_;
  double ids_per_s_;
  Looks looks_;
  std::unique_ptr<daemon::RefillPolicy> policy_;
  double begun_at_ = kNever;
  bool has_run_ = false;               // for long, before begun_at_
  double published_ = 0;               // ids
  std::array<double, kSlots> ends_{};  // of the open segments, oldest first, as ids ever published
  std::size_t open_ = 0;
  double newest_size_ = 0;
  double next_poll_ = kNever;
  double mark_at_ = kNever;
  double dry_look_at_ = kNever;
  unsigned settled_polls_ = 0;  // since anything else happened
  double low_water_ = 0;        // the highest since then
  double skipped_s_ = 0;        // of time, and of ids, that the policy was not shown
  double skipped_ids_ = 0;
};

}  // namespace idd::capacity

#endif  // IDD_TESTS_BENCH_CAPACITY_TAG_H_
