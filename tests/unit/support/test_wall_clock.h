// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_TEST_WALL_CLOCK_H_
#define IDD_TESTS_UNIT_SUPPORT_TEST_WALL_CLOCK_H_

#include <atomic>
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

}  // namespace idd

#endif  // IDD_TESTS_UNIT_SUPPORT_TEST_WALL_CLOCK_H_
