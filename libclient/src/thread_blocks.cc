// SPDX-License-Identifier: Apache-2.0
#include "thread_blocks.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "thread_state.h"

// The library's only thread-local storage: inlined claims read it in one instruction, and a library
// that is loaded late still gets eight bytes.
__thread idd::client::ThreadBlockTable* idclient_thread_blocks = nullptr;

namespace idd::client {
namespace {

// Which places have a handle. Lock-free, because a fork may copy a lock while it is held.
std::array<std::atomic<bool>, kThreadBlocks> taken{};
std::atomic<std::uint64_t> last_serial{0};

void* MapWipedOnFork() noexcept {
  void* const memory = ::mmap(nullptr, sizeof(ThreadBlocks), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (::madvise(memory, sizeof(ThreadBlocks), MADV_WIPEONFORK) == 0) return memory;
  const int error = errno;
  ::munmap(memory, sizeof(ThreadBlocks));
  errno = error;
  return nullptr;
}

// Emulators accept MADV_WIPEONFORK and may ignore it. The handler covers the forks that libc makes:
// of the child's threads, only this one lives.
void WipeBlocksInChild() noexcept {
  ThreadBlockTable* const mine = idclient_thread_blocks;
  if (mine == nullptr) return;
  mine->is_filling.store(false, std::memory_order_relaxed);  // B6
  for (ThreadBlock& block : mine->blocks) {
    if (block.owner != 0) block = ThreadBlock{};  // where the kernel has wiped, no page is written
  }
}
[[maybe_unused]] const int blocks_handler = ::pthread_atfork(nullptr, nullptr, WipeBlocksInChild);

}  // namespace

static_assert(sizeof(ThreadBlocks) == sizeof(ThreadBlockTable));

Result<BlockOwner> ThreadBlocks::TakePlace() {
  if (Mine() == nullptr) {
    return Status::FromErrno(errno, "memory for blocks that a fork does not copy");
  }
  for (std::size_t place = 0; place < kThreadBlocks; ++place) {
    if (taken[place].exchange(true, std::memory_order_acq_rel)) continue;  // B3, pairs with B4
    return BlockOwner{place,
                      last_serial.fetch_add(1, std::memory_order_relaxed) + 1};  // B5: a name
  }
  return Status(Code::kSystem, "this process has " + std::to_string(kThreadBlocks) +
                                   " handles with blocks open; close some");
}

void ThreadBlocks::FreePlace(const BlockOwner& owner) noexcept {
  taken[owner.place].store(false, std::memory_order_release);  // B4, pairs with B3
}

void ThreadBlocks::Fill(const BlockOwner& owner, const idd::shm::IdRange& ids) noexcept {
  ThreadBlock& block = blocks[owner.place];
  block.owner = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // B6
  block.next = ids.first;
  block.limit = ids.limit;
  block.first = ids.first;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // B6
  block.owner = owner.serial;
}

ThreadBlocks* ThreadBlocks::Make() noexcept {
  // Its end is that of the blocks.
  if (ThreadState::Mine() == nullptr) return nullptr;
  void* const memory = MapWipedOnFork();
  if (memory == nullptr) return nullptr;
  auto* const mine = new (memory) ThreadBlocks;
  idclient_thread_blocks = mine;
  return mine;
}

void ThreadBlocks::FreeMine() noexcept {
  ThreadBlockTable* const mine = std::exchange(idclient_thread_blocks, nullptr);
  if (mine != nullptr) ::munmap(mine, sizeof(ThreadBlocks));
}

}  // namespace idd::client
