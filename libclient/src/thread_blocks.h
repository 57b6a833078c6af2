// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_THREAD_BLOCKS_H_
#define IDCLIENT_SRC_THREAD_BLOCKS_H_

#include <atomic>
#include <cstdint>

#include "idclient/thread_block.h"
#include "idd/base/status.h"
#include "idd/shm/ring_protocol.h"

namespace idd::client {

// The blocks of ids that one thread has claimed for itself, one for each handle.
//
// The memory is private to the thread and wiped by the kernel in a forked child (MADV_WIPEONFORK):
// the child finds no block, whichever system call forked it, and never hands out its parent's ids.
// Under an emulator that ignores this, a fork handler of libc does the same.
// The memory is freed when the thread exits; ids left in the blocks are a gap.
//
// A signal handler may claim while the code that it interrupted takes an id: that is one
// instruction. While the code fills a block, Enter() refuses the handler, which claims from the
// ring instead.
class ThreadBlocks : public ThreadBlockTable {
 public:
  // A place for a new handle. kSystem when all are taken, or the kernel cannot wipe memory at a
  // fork.
  [[nodiscard]] static idd::Result<BlockOwner> TakePlace();
  static void FreePlace(const BlockOwner& owner) noexcept;

  // The calling thread's, made on first use. Null: there is no memory.
  [[nodiscard]] static ThreadBlocks* Mine() noexcept {
    ThreadBlockTable* const mine = idclient_thread_blocks;
    return mine != nullptr ? static_cast<ThreadBlocks*>(mine) : Make();
  }

  // For a thread that exits. Its next claim, in a later destructor, makes others.
  static void FreeMine() noexcept;

  // False: this thread is inside already, so this is a signal handler.
  [[nodiscard]] bool Enter() noexcept {
    if (is_filling.load(std::memory_order_relaxed)) [[unlikely]]  // B6: this thread's own
      return false;
    is_filling.store(true, std::memory_order_relaxed);    // B6
    std::atomic_signal_fence(std::memory_order_seq_cst);  // B6 before the block is filled
    return true;
  }
  void Leave() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // B6 after the block was filled
    is_filling.store(false, std::memory_order_relaxed);   // B6
  }
  // Between Enter and Leave. A signal handler in the middle finds no block.
  void Fill(const BlockOwner& owner, const idd::shm::IdRange& ids) noexcept;

 private:
  [[nodiscard]] static ThreadBlocks* Make() noexcept;
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_THREAD_BLOCKS_H_
