// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_BENCH_RAW_WORD_H_
#define IDD_TESTS_BENCH_RAW_WORD_H_

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "idd/shm/abi.h"
#include "raw_call.h"
#include "support/test_environment.h"

namespace idd::harness {

// A word in a memfd, mapped as a ring's cursors are: the baseline for a claim. It stays mapped.
class RawWord {
 public:
  RawWord() {
    const int fd = ::memfd_create("raw", MFD_CLOEXEC);
    RequireErrno(fd >= 0 && ::ftruncate(fd, shm::kCursorsBytes) == 0, "memfd");
    void* const memory =
        ::mmap(nullptr, shm::kCursorsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    RequireErrno(memory != MAP_FAILED, "mmap");
    ::close(fd);
    cursor_ = &static_cast<shm::Cursors*>(memory)->slots[1];
  }
  [[nodiscard]] std::atomic<std::uint64_t>& word() const { return cursor_->next; }
  [[nodiscard]] raw_handle handle() const {
    return {.cursor = reinterpret_cast<std::uint64_t*>(&cursor_->next)};
  }

 private:
  shm::Cursor* cursor_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_BENCH_RAW_WORD_H_
