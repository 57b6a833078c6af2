// SPDX-License-Identifier: Apache-2.0
//
// LD_PRELOADed into idd, makes every fsync and fdatasync take IDD_TEST_SYNC_MS milliseconds longer,
// to simulate a store on a slow disk.
#include <dlfcn.h>
#include <time.h>

#include <cstdlib>

namespace {

void Delay() {
  static const long milliseconds = [] {
    const char* const text = std::getenv("IDD_TEST_SYNC_MS");
    return text == nullptr ? 0L : std::strtol(text, nullptr, 10);
  }();
  const timespec time{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000};
  ::nanosleep(&time, nullptr);
}

int Call(const char* name, int fd) {
  Delay();
  using Function = int (*)(int);
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name))(fd);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int fsync(int fd) { return Call("fsync", fd); }
extern "C" __attribute__((visibility("default"))) int fdatasync(int fd) {
  return Call("fdatasync", fd);
}
