// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_HOST_CLOCK_H_
#define IDD_TESTS_SIMULATION_HOST_CLOCK_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace idd::simulation {

// Nanoseconds since the world began.
using Nanos = std::int64_t;
inline constexpr Nanos kMicrosecond = 1000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

// The true time when a world begins, 2026-03-01, in Unix time.
inline constexpr std::int64_t kWorldBeganMs = 1'772'323'200'000;

// The clocks of a machine: the monotonic one, and the wall clock, which is set from time to time.
class HostClock {
 public:
  // `monotonic_offset`: what the monotonic clock showed when the world began.
  explicit HostClock(Nanos monotonic_offset) : monotonic_offset_(monotonic_offset) {}

  [[nodiscard]] Nanos monotonic_offset() const noexcept { return monotonic_offset_; }
  // Unix time as the machine shows it, in ms.
  [[nodiscard]] std::int64_t wall_ms() const noexcept;
  // The greatest time that it has shown.
  [[nodiscard]] std::int64_t greatest_ms() const noexcept;
  // The least time that it has shown since that moment.
  [[nodiscard]] std::int64_t LeastSince(Nanos moment) const noexcept;

  // How far it is ahead of the true time until it is set; before it is read.
  void SetError(Nanos error) noexcept { steps_.front().second = error_ = error; }
  void Step(Nanos by) { steps_.emplace_back(Now(), steps_.back().second + by); }
  void SetRight() { steps_.emplace_back(Now(), error_); }

 private:
  [[nodiscard]] static Nanos Now() noexcept;

  const Nanos monotonic_offset_;
  Nanos error_ = 0;
  // When the wall clock was set, and how far it has been ahead of the true time since.
  std::vector<std::pair<Nanos, Nanos>> steps_{{0, 0}};
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_HOST_CLOCK_H_
