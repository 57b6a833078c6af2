// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_TEST_WALL_CLOCK_H_
#define IDD_TESTS_UNIT_SUPPORT_TEST_WALL_CLOCK_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "idd/base/clock.h"

namespace idd {

// Replaces the wall clock of this process as long as it lives.
class TestWallClock {
 public:
  explicit TestWallClock(std::int64_t unix_ms) {
    Set(unix_ms);
    WallClock::SetSource([]() noexcept { return now_ms_.load(); });
  }
  ~TestWallClock() { WallClock::SetSource(nullptr); }
  TestWallClock(const TestWallClock&) = delete;
  TestWallClock& operator=(const TestWallClock&) = delete;

  void Set(std::int64_t unix_ms) { now_ms_ = unix_ms; }
  void Advance(std::int64_t ms) { now_ms_ += ms; }
  [[nodiscard]] std::int64_t now_ms() const { return now_ms_; }

 private:
  inline static std::atomic<std::int64_t> now_ms_{0};
};

// The monotonic clock is ahead of the kernel's as long as the object lives. Timers that are set
// meanwhile expire late.
class MonotonicClockAhead {
 public:
  explicit MonotonicClockAhead(std::chrono::milliseconds ahead) {
    ahead_ms_ = ahead.count();
    MonotonicClock::SetSource([]() noexcept {
      return std::chrono::steady_clock::now() + std::chrono::milliseconds(ahead_ms_.load());
    });
  }
  ~MonotonicClockAhead() { MonotonicClock::SetSource(nullptr); }
  MonotonicClockAhead(const MonotonicClockAhead&) = delete;
  MonotonicClockAhead& operator=(const MonotonicClockAhead&) = delete;

 private:
  inline static std::atomic<std::int64_t> ahead_ms_{0};
};

}  // namespace idd

#endif  // IDD_TESTS_UNIT_SUPPORT_TEST_WALL_CLOCK_H_
