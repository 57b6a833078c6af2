// SPDX-License-Identifier: Apache-2.0
//
// LD_PRELOADed into idd and its clients, shifts their wall clock by the milliseconds in the file
// IDD_TEST_CLOCK, which a test may change at any time.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

std::int64_t ShiftMs() {
  static const std::atomic<std::int64_t>* const shift = [] {
    const char* const path = std::getenv("IDD_TEST_CLOCK");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return static_cast<const std::atomic<std::int64_t>*>(nullptr);
    void* const at = ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return at == MAP_FAILED ? nullptr : static_cast<const std::atomic<std::int64_t>*>(at);
  }();
  return shift == nullptr ? 0 : shift->load(std::memory_order_relaxed);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  using Function = int (*)(clockid_t, timespec*);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result != 0 || clock != CLOCK_REALTIME) return result;
  const std::int64_t ns = time->tv_nsec + ShiftMs() * 1'000'000;
  constexpr std::int64_t kSecond = 1'000'000'000;
  std::int64_t seconds = ns / kSecond;
  std::int64_t rest = ns % kSecond;
  if (rest < 0) {
    rest += kSecond;
    --seconds;
  }
  time->tv_sec += static_cast<time_t>(seconds);
  time->tv_nsec = static_cast<long>(rest);
  return 0;
}
