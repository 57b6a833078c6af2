// SPDX-License-Identifier: Apache-2.0
//
// LD_PRELOADed into idd, makes every fsync and fdatasync take IDD_TEST_SYNC_MS milliseconds longer,
// to simulate a store on a slow disk. With IDD_TEST_SYNC_FILE the number is in that file, which may
// come and change later.
#include <dlfcn.h>
#include <time.h>

#include <cstdlib>
#include <fstream>

namespace {

void Delay() {
  const char* const file = std::getenv("IDD_TEST_SYNC_FILE");
  const char* const text = std::getenv("IDD_TEST_SYNC_MS");
  long milliseconds = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  if (file != nullptr) std::ifstream(file) >> milliseconds;
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
