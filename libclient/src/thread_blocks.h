// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_THREAD_BLOCKS_H_
#define IDCLIENT_SRC_THREAD_BLOCKS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "idd/base/status.h"

namespace idd::client {

// Names a handle with blocks: its place in every thread's ThreadBlocks, and a number that no other
// handle of the process ever has, so that a block of a closed handle is not taken for a new one's.
struct BlockOwner {
  std::size_t place = 0;
  std::uint64_t serial = 0;
};

// The blocks of ids that one thread has claimed for itself, one for each handle.
//
// The memory is private to the thread and wiped by the kernel in a forked child (MADV_WIPEONFORK):
// the child finds no block, whichever system call forked it, and never hands out its parent's ids.
// The memory is freed when the thread exits; ids left in the blocks are a gap.
//
// A signal handler may claim while the code it interrupted is inside here: Enter() refuses it, and
// it claims from the ring instead.
class ThreadBlocks {
 public:
  // Contiguous ids [next, limit) of `owner`.
  struct Block {
    std::uint64_t owner = 0;  // BlockOwner::serial; 0: none
    std::uint64_t next = 0;
    std::uint64_t limit = 0;
    std::uint64_t reserved = 0;
  };
  static constexpr std::size_t kPlaces = 127;  // with the header, one page

  // A place for a new handle. kSystem when all are taken, or the kernel cannot wipe memory at a
  // fork.
  [[nodiscard]] static idd::Result<BlockOwner> TakePlace();
  static void FreePlace(const BlockOwner& owner) noexcept;

  // The calling thread's, made on first use. Null: it can have none (no memory, or it is exiting).
  [[nodiscard]] static ThreadBlocks* Mine() noexcept {
    ThreadBlocks* const mine = mine_;
    return mine != nullptr ? mine : Make();
  }

  // False: this thread is inside already, so this is a signal handler.
  [[nodiscard]] bool Enter() noexcept {
    if (busy_.load(std::memory_order_relaxed)) [[unlikely]]  // B1: this thread's own
      return false;
    busy_.store(true, std::memory_order_relaxed);         // B1
    std::atomic_signal_fence(std::memory_order_seq_cst);  // B1 before the block is touched
    return true;
  }
  void Leave() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // B2 after the block was touched
    busy_.store(false, std::memory_order_relaxed);        // B2
  }
  // Between Enter and Leave.
  [[nodiscard]] Block& block(const BlockOwner& owner) noexcept { return blocks_[owner.place]; }

 private:
  [[nodiscard]] static ThreadBlocks* Make() noexcept;
  friend struct ThreadExit;

  // The library is linked into programs or loaded early; eight bytes of static TLS are available
  // then.
  [[gnu::tls_model("initial-exec")]] static thread_local ThreadBlocks* mine_;

  std::atomic<bool> busy_{false};
  std::uint64_t reserved_[3] = {};
  std::array<Block, kPlaces> blocks_;
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_THREAD_BLOCKS_H_
