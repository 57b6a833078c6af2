// SPDX-License-Identifier: Apache-2.0
#include "process_mark.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace idd::client {
namespace {

using Word = std::atomic<std::uint64_t>;

// Points to memory that the kernel wipes in a forked child; null until the first use. Not a static
// local: another thread could hold the lock of its initialization when the process is forked.
std::atomic<Word*> page{nullptr};
// The highest mark of this process and those it was forked from: copied by a fork.
Word last{0};

Word* MakePage() noexcept {
  const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  Word* made = static_cast<Word*>(memory);
  Word* expected = nullptr;
  if (::madvise(memory, bytes, MADV_WIPEONFORK) == 0 &&
      page.compare_exchange_strong(expected, made, std::memory_order_acq_rel,  // M2
                                   std::memory_order_acquire)) {               // M1
    return made;
  }
  ::munmap(memory, bytes);
  return expected;
}

// Emulators accept MADV_WIPEONFORK and may ignore it. The handler covers the forks that libc makes.
void WipePageInChild() noexcept {
  Word* const word = page.load(std::memory_order_acquire);         // M1, pairs with M2
  if (word != nullptr) word->store(0, std::memory_order_release);  // M4, pairs with M3
}
[[maybe_unused]] const int page_handler = ::pthread_atfork(nullptr, nullptr, WipePageInChild);

}  // namespace

std::uint64_t ProcessMark() noexcept {
  Word* word = page.load(std::memory_order_acquire);  // M1, pairs with M2
  if (word == nullptr) word = MakePage();
  // Without the kernel's help (before Linux 4.14) the process id has to do.
  if (word == nullptr) return static_cast<std::uint64_t>(::getpid());
  std::uint64_t mark = word->load(std::memory_order_acquire);  // M3, pairs with M4
  if (mark != 0) return mark;
  const std::uint64_t next = last.fetch_add(1, std::memory_order_relaxed) + 1;  // M5: a number
  // M4: of several threads of a new process one names it.
  return word->compare_exchange_strong(mark, next, std::memory_order_acq_rel,  // M4
                                       std::memory_order_acquire)              // M3
             ? next
             : mark;
}

}  // namespace idd::client
