// SPDX-License-Identifier: Apache-2.0
//
// Shared by all tests of whole processes.
#ifndef IDD_TESTS_SUPPORT_TEST_ENVIRONMENT_H_
#define IDD_TESTS_SUPPORT_TEST_ENVIRONMENT_H_

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

#include "idd/base/clock.h"

namespace idd::harness {

// The harness could not do its part (a fork failed, the daemon did not start). GoogleTest catches
// it and fails the test; destructors end the children.
class HarnessError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws HarnessError unless `ok`.
void Require(bool ok, const std::string& what);
// The same, with strerror(errno) appended.
void RequireErrno(bool ok, const std::string& what);

// The slowdown factor of this build: 1, or more under a sanitizer.
[[nodiscard]] int SlowdownFactor() noexcept;
// How long to wait for an event that normally takes `normal`: at least two minutes, because the
// machine may be busy, and more under a sanitizer. Only a failing test waits that long. Use it for
// polling and for deadlines that are never reached, not for sleeping or measuring.
[[nodiscard]] std::chrono::milliseconds Patience(std::chrono::milliseconds normal) noexcept;

// How much of a heavy load to run: `full` in a normal build, 5 % of it under a sanitizer; the
// environment variable IDD_TEST_LOAD_PERCENT (1..100) overrides both. At least 1.
[[nodiscard]] std::uint64_t ScaledLoad(std::uint64_t full);

// The seed of a randomised test, printed so that a failure can be repeated with IDD_TEST_SEED.
[[nodiscard]] std::uint64_t TestSeed();

// Why a program of this build must not fork while its other threads allocate; empty: it may.
[[nodiscard]] std::string WhyNoForkBesideThreads();

// CLOCK_MONOTONIC, the clock of every logged claim.
[[nodiscard]] std::uint64_t MonotonicNs() noexcept;

// Polls `predicate` until it holds or the (unstretched) timeout has passed; returns its last value.
template <typename Predicate>
[[nodiscard]] bool WaitUntil(std::chrono::milliseconds timeout, Predicate predicate) {
  const Deadline deadline = Deadline::After(timeout);
  while (!predicate()) {
    if (deadline.passed()) return predicate();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_TEST_ENVIRONMENT_H_
