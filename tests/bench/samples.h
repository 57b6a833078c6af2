// SPDX-License-Identifier: Apache-2.0
//
// Clock and output of the benchmarks that time single operations.
#ifndef IDD_TESTS_BENCH_SAMPLES_H_
#define IDD_TESTS_BENCH_SAMPLES_H_

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "bench/latency_histogram.h"

namespace idd::harness {

// The cheapest clock there is; ticks are converted after the run.
class TickClock {
 public:
  TickClock() : ticks_(Now()), time_(std::chrono::steady_clock::now()) {}

  // All earlier work is done when the clock is read, and no later work has begun.
  [[nodiscard]] static std::uint64_t Now() noexcept {
#if defined(__x86_64__)
    unsigned processor = 0;
    const std::uint64_t now = __builtin_ia32_rdtscp(&processor);
    __builtin_ia32_lfence();
    return now;
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
  }

  // Nanoseconds in a tick, measured since the object was made: the longer ago, the better.
  [[nodiscard]] double NsPerTick() const {
    const std::chrono::duration<double, std::nano> passed =
        std::chrono::steady_clock::now() - time_;
    return passed.count() / static_cast<double>(Now() - ticks_);
  }

 private:
  std::uint64_t ticks_;
  std::chrono::steady_clock::time_point time_;
};

// Percentiles of a histogram of ticks, in ns.
[[nodiscard]] inline nlohmann::json PercentilesNs(const tools::LatencyHistogram& ticks,
                                                  double ns_per_tick) {
  const auto at = [&](double part) {
    return static_cast<double>(ticks.Percentile(part)) * ns_per_tick;
  };
  return {{"p50", at(0.5)},          {"p90", at(0.9)},
          {"p99", at(0.99)},         {"p99.9", at(0.999)},
          {"p99.99", at(0.9999)},    {"max", static_cast<double>(ticks.max()) * ns_per_tick},
          {"samples", ticks.count()}};
}

}  // namespace idd::harness

#endif  // IDD_TESTS_BENCH_SAMPLES_H_
