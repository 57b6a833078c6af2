// SPDX-License-Identifier: Apache-2.0
//
// Time, as idd uses it: deadlines and rates come from the monotonic clock and nothing else. The
// wall clock labels rows for people, and gives snowflake ids their time; no id's uniqueness depends
// on it.
#ifndef IDD_BASE_CLOCK_H_
#define IDD_BASE_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace idd {

using MonotonicTime = std::chrono::steady_clock::time_point;

// The kernel's monotonic clock, or a test's.
class MonotonicClock {
 public:
  using duration = MonotonicTime::duration;
  using Source = MonotonicTime (*)() noexcept;

  [[nodiscard]] static MonotonicTime now() noexcept {
    // Relaxed: a source is set before the threads that read the clock are started.
    const Source source = TheSource().load(std::memory_order_relaxed);  // J1
    return source == nullptr ? std::chrono::steady_clock::now() : source();
  }

  // For tests and the simulator. To be called before anything reads the clock. The times of
  // `source` must never go back; null selects the kernel's clock.
  static void SetSource(Source source) noexcept {
    TheSource().store(source, std::memory_order_relaxed);  // J2
  }

 private:
  [[nodiscard]] static std::atomic<Source>& TheSource() noexcept {
    static constinit std::atomic<Source> source{nullptr};
    return source;
  }
};

// The kernel's wall clock, or a test's. It may jump in both directions.
class WallClock {
 public:
  using Source = std::int64_t (*)() noexcept;

  // Milliseconds of Unix time.
  [[nodiscard]] static std::int64_t now_ms() noexcept {
    const Source source = TheSource().load(std::memory_order_relaxed);  // J1
    if (source != nullptr) [[unlikely]]
      return source();
    timespec time{};
    static_cast<void>(::clock_gettime(CLOCK_REALTIME, &time));
    return std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
  }

  // As MonotonicClock::SetSource(), except that times may fall.
  static void SetSource(Source source) noexcept {
    TheSource().store(source, std::memory_order_relaxed);  // J2
  }

 private:
  [[nodiscard]] static std::atomic<Source>& TheSource() noexcept {
    static constinit std::atomic<Source> source{nullptr};
    return source;
  }
};

inline constexpr double kSecondsPerDay = 86'400;

// A point in monotonic time after which a wait must have ended. Copyable, immutable.
class Deadline {
 public:
  explicit Deadline(MonotonicTime at) noexcept : at_(at) {}
  [[nodiscard]] static Deadline After(std::chrono::milliseconds delay) noexcept {
    return Deadline(MonotonicClock::now() + delay);
  }

  [[nodiscard]] Deadline EarlierOf(Deadline other) const noexcept {
    return at_ <= other.at_ ? *this : other;
  }

  [[nodiscard]] MonotonicTime at() const noexcept { return at_; }
  [[nodiscard]] bool passed() const noexcept { return MonotonicClock::now() >= at_; }
  // The time left, rounded up to whole milliseconds so that poll(2) never spins; never negative.
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - MonotonicClock::now());
    return std::max(left, std::chrono::milliseconds::zero());
  }

 private:
  MonotonicTime at_;
};

}  // namespace idd

#endif  // IDD_BASE_CLOCK_H_
