// SPDX-License-Identifier: Apache-2.0
#include "support/test_environment.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

namespace idd::harness {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kSlowdown = 8;
constexpr std::uint64_t kDefaultLoadPercent = 5;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kSlowdown = 4;
constexpr std::uint64_t kDefaultLoadPercent = 5;
#else
constexpr int kSlowdown = 1;
constexpr std::uint64_t kDefaultLoadPercent = 100;
#endif

// Machines have stalled for a minute.
constexpr std::chrono::seconds kLeastPatience(120);

// 0 if the variable is unset or not a number.
std::uint64_t EnvironmentNumber(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

}  // namespace

void Require(bool ok, const std::string& what) {
  if (!ok) throw HarnessError(what);
}

void RequireErrno(bool ok, const std::string& what) {
  if (ok) return;
  const int error = errno;
  throw HarnessError(what + ": " + std::strerror(error));
}

int SlowdownFactor() noexcept { return kSlowdown; }

std::chrono::milliseconds Patience(std::chrono::milliseconds normal) noexcept {
  return std::max<std::chrono::milliseconds>(normal * kSlowdown, kLeastPatience);
}

std::uint64_t ScaledLoad(std::uint64_t full) {
  const std::uint64_t asked = EnvironmentNumber("IDD_TEST_LOAD_PERCENT");
  const std::uint64_t percent =
      asked == 0 ? kDefaultLoadPercent : std::min<std::uint64_t>(asked, 100);
  return std::max<std::uint64_t>(1, full / 100 * percent + full % 100 * percent / 100);
}

std::uint64_t TestSeed() {
  std::uint64_t seed = EnvironmentNumber("IDD_TEST_SEED");
  if (seed == 0) seed = std::random_device{}();
  std::printf("IDD_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::string WhyNoForkBesideThreads() {
#if defined(__SANITIZE_ADDRESS__)
  return "gcc 12's AddressSanitizer does not unlock its allocator in a forked child, whose "
         "first new may wait indefinitely for a thread of the parent";
#else
  return "";
#endif
}

std::uint64_t MonotonicNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace idd::harness
