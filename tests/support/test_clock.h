// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_TEST_CLOCK_H_
#define IDD_TESTS_SUPPORT_TEST_CLOCK_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::harness {

// The wall clock of one host: of the processes that are started with its environment
// (shifted_clock.cc).
class TestClock {
 public:
  TestClock(const TempDir& dir, const std::string& host) : path_(dir.File(host + ".clock")) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    RequireErrno(fd >= 0 && ::ftruncate(fd, sizeof(std::int64_t)) == 0, "the clock's file");
    void* const at =
        ::mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    RequireErrno(at != MAP_FAILED, "mmap of the clock's file");
    shift_ms_ = static_cast<std::atomic<std::int64_t>*>(at);
  }
  ~TestClock() { ::munmap(shift_ms_, sizeof(std::int64_t)); }
  TestClock(const TestClock&) = delete;
  TestClock& operator=(const TestClock&) = delete;

  void ShiftTo(std::int64_t ms) { shift_ms_->store(ms); }
  [[nodiscard]] std::int64_t shift_ms() const { return shift_ms_->load(); }
  [[nodiscard]] std::vector<std::string> environment() const {
    return {std::string("LD_PRELOAD=") + IDD_TEST_SHIFTED_CLOCK, "IDD_TEST_CLOCK=" + path_};
  }
  // What it shows at a moment of CLOCK_MONOTONIC, as it is shifted now.
  [[nodiscard]] std::int64_t UnixMsAt(std::uint64_t monotonic_ns) const {
    timespec wall{};
    timespec monotonic{};
    static_cast<void>(::clock_gettime(CLOCK_REALTIME, &wall));
    static_cast<void>(::clock_gettime(CLOCK_MONOTONIC, &monotonic));
    const auto ns = [](const timespec& time) {
      return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    };
    return (static_cast<std::int64_t>(monotonic_ns) + ns(wall) - ns(monotonic)) / 1'000'000 +
           shift_ms();
  }

 private:
  const std::string path_;
  std::atomic<std::int64_t>* shift_ms_ = nullptr;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_TEST_CLOCK_H_
