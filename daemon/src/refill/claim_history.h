// SPDX-License-Identifier: Apache-2.0
//
// Measures how much of a tag was claimed at its busiest, which bounds its leases (refill_policy.h).
// Pure: counts and times in, a count out.
#ifndef IDD_DAEMON_REFILL_CLAIM_HISTORY_H_
#define IDD_DAEMON_REFILL_CLAIM_HISTORY_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "idd/base/clock.h"
#include "refill/refill_settings.h"

namespace idd::daemon {

// Counts the ids of a tag that were claimed in its busiest window within the last day. A window is
// as long as the outage tolerance, but at least ten seconds. If a window is longer than a day, the
// last window replaces the last day.
//
// Invariant: Most() is never too large. The ids that it counts were claimed in one window that lies
// completely in the last day. It may be too small, because only looks see claims:
//
//   - a sum begins and ends with a look, so it is shorter than a window by up to a
//     sixteenth of it and the time between two looks;
//   - claims between two looks that are more than a window apart are not counted;
//   - a window is forgotten 23 to 24 hours after its beginning.
//
// Bounded: about 1 kB. Thread safety: none.
class ClaimHistory {
 public:
  // Changes the length of the window. Keeps the part of the history that is also valid for the new
  // length.
  void SetWindow(std::chrono::seconds outage_tolerance) noexcept;

  // A look: `claimed`, which only grows, was read between `before` and `after`. If it is smaller
  // than the last one, a cursor was forged, and nothing is counted. The first look counts nothing.
  void Observe(MonotonicTime before, MonotonicTime after, std::uint64_t claimed) noexcept;

  [[nodiscard]] std::uint64_t Most(MonotonicTime now) const noexcept;

  static constexpr std::size_t kBuckets = 16;  // per window
  static constexpr std::chrono::seconds kShortestWindow{10};

 private:
  // The ids claimed from its beginning to that of the next bucket or, for the newest, to the last
  // look.
  struct Bucket {
    MonotonicTime begin{};
    std::uint64_t ids = 0;
  };
  // The most ids in a window that began between the beginning of this peak and that of the next
  // one.
  struct Peak {
    MonotonicTime begin{};
    std::uint64_t ids = 0;
  };
  static constexpr std::size_t kPeaks = 24;
  static constexpr std::chrono::hours kDay{24};

  // The last kSize pushed values.
  template <typename T, std::size_t kSize>
  class LastOf {
   public:
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] const T& operator[](std::size_t n) const noexcept {  // 0: the oldest
      return entries_[(first_ + n) % kSize];
    }
    [[nodiscard]] T& operator[](std::size_t n) noexcept { return entries_[(first_ + n) % kSize]; }
    [[nodiscard]] bool full() const noexcept { return count_ == kSize; }
    void PopOldest() noexcept {
      first_ = (first_ + 1) % kSize;
      --count_;
    }
    void Push(const T& entry) noexcept {
      if (full()) PopOldest();
      entries_[(first_ + count_++) % kSize] = entry;
    }

   private:
    std::array<T, kSize> entries_{};
    std::size_t first_ = 0;
    std::size_t count_ = 0;
  };

  [[nodiscard]] std::chrono::seconds Horizon() const noexcept {
    return std::max<std::chrono::seconds>(kDay, window_);
  }
  void BeginBucket(MonotonicTime begin) noexcept;
  void DropOldestBucket() noexcept;
  void NotePeak(MonotonicTime begin, std::uint64_t ids) noexcept;

  std::chrono::seconds window_ = kDefaultOutageTolerance;
  bool has_looked_ = false;
  MonotonicTime looked_at_{};  // before the count was read
  std::uint64_t claimed_ = 0;
  // The buckets of the window that ends now, and the sum of their ids. Two buckets together are at
  // least a sixteenth of a window long.
  LastOf<Bucket, 2 * kBuckets + 2> buckets_;
  std::uint64_t in_window_ = 0;
  LastOf<Peak, kPeaks> peaks_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_REFILL_CLAIM_HISTORY_H_
