// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_BENCH_LATENCY_HISTOGRAM_H_
#define IDD_TOOLS_BENCH_LATENCY_HISTOGRAM_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace idd::tools {

// Counts of latencies in nanoseconds, log-linear as in an HDR histogram: 128 steps for each power
// of two, so a reported value is within 0.8 %, which is two significant digits. Plain numbers
// without pointers: it may lie in shared memory, and all zeros is a valid state. One writer;
// readers wait until it has ended.
class LatencyHistogram {
 public:
  void Add(std::uint64_t ns) noexcept {
    ++buckets_[BucketOf(ns)];
    ++count_;
    if (ns > max_) max_ = ns;
  }

  void Add(const LatencyHistogram& other) noexcept {
    for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    if (other.max_ > max_) max_ = other.max_;
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }

  // The smallest value that is at or above the fraction `part` (0 to 1) of all values; 0 if there
  // are none.
  [[nodiscard]] std::uint64_t Percentile(double part) const noexcept {
    const auto wanted = static_cast<std::uint64_t>(part * static_cast<double>(count_) + 0.5);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (seen >= wanted && seen > 0) return HighestOf(i) < max_ ? HighestOf(i) : max_;
    }
    return max_;
  }

 private:
  static constexpr unsigned kStepBits = 7;
  static constexpr std::size_t kSteps = 1U << kStepBits;
  static constexpr std::size_t kBuckets = kSteps * (64 - kStepBits + 1);

  [[nodiscard]] static std::size_t BucketOf(std::uint64_t ns) noexcept {
    if (ns < kSteps) return static_cast<std::size_t>(ns);
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - kStepBits - 1;
    return kSteps * shift + static_cast<std::size_t>(ns >> shift);
  }
  [[nodiscard]] static std::uint64_t HighestOf(std::size_t bucket) noexcept {
    if (bucket < 2 * kSteps) return bucket;
    const std::size_t shift = bucket / kSteps - 1;
    const std::uint64_t step = bucket % kSteps + kSteps;
    return ((step + 1) << shift) - 1;
  }

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_BENCH_LATENCY_HISTOGRAM_H_
