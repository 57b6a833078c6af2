// SPDX-License-Identifier: Apache-2.0
//
// ThreadBlock: the ids that a thread has claimed for itself, and the claim of one of them.
//
// This is an ABI between libidclient.so and programs compiled with idclient.hpp: their inlined
// claims use the library's blocks. A change to this file needs a new kThreadBlockVersion.
#ifndef IDCLIENT_THREAD_BLOCK_H_
#define IDCLIENT_THREAD_BLOCK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "idclient/idclient.h"

namespace idd::client {

inline constexpr std::uint32_t kThreadBlockVersion = 1;

// Contiguous ids [next, limit) of one handle. Only the thread that has the block, and signal
// handlers that interrupt this thread, use it.
struct ThreadBlock {
  std::uint64_t owner = 0;  // the handle's number, which no other handle ever has; 0: none
  std::uint64_t next = 0;   // at or above `limit`: used up
  std::uint64_t limit = 0;
  std::uint64_t first = 0;
};

inline constexpr std::size_t kThreadBlocks = 127;  // with the header, one page

// All blocks of a thread, one for each handle. The kernel and a fork handler fill this memory with
// zeros in a forked child, so the child finds no block.
struct ThreadBlockTable {
  std::atomic<bool> is_filling{false};
  std::uint64_t reserved[3] = {};
  std::array<ThreadBlock, kThreadBlocks> blocks{};
};

// A handle's place in every thread's table.
struct BlockOwner {
  std::size_t place = 0;
  std::uint64_t serial = 0;  // ThreadBlock::owner; 0: the handle has no blocks
};

static_assert(sizeof(ThreadBlock) == 32);
static_assert(offsetof(ThreadBlock, owner) == 0 && offsetof(ThreadBlock, next) == 8);
static_assert(offsetof(ThreadBlock, limit) == 16 && offsetof(ThreadBlock, first) == 24);
static_assert(sizeof(ThreadBlockTable) == 4096);
static_assert(sizeof(BlockOwner) == 16);

// Adds 1 and returns the value before, in one instruction or one sequence that a signal handler of
// this thread cannot split. No other thread uses the word, so on x86-64 no locked add is needed.
[[nodiscard, gnu::always_inline]] inline std::uint64_t AddOnThisThread(
    std::uint64_t& word) noexcept {
#if defined(__x86_64__)
  std::uint64_t value = 1;
  __asm__ __volatile__("xaddq %0, %1" : "+r"(value), "+m"(word) : : "cc");
  return value;
#else
  return std::atomic_ref<std::uint64_t>(word).fetch_add(1, std::memory_order_relaxed);  // B1
#endif
}

// Takes the next id of the handle's block. False: there is no block, or it is used up.
//
// A signal handler may claim from the same block in between, and may even fill it again. No other
// claim gets the id then: the handler's adds are others, and an id of the earlier block is not
// within the new one. It is a gap.
[[nodiscard, gnu::always_inline]] inline bool TakeFromBlock(ThreadBlockTable* mine,
                                                            const BlockOwner& owner,
                                                            std::uint64_t& id) noexcept {
  if (mine == nullptr) [[unlikely]]
    return false;
  ThreadBlock& block = mine->blocks[owner.place];
  if (block.owner != owner.serial) [[unlikely]]
    return false;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // B2 the owner is read before the add
  id = AddOnThisThread(block.next);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // B2 the limits are read after it
  return block.first <= id && id < block.limit;
}

}  // namespace idd::client

extern "C" {
// The calling thread's table. NULL until its first block, and again once the thread is exiting.
[[gnu::tls_model("initial-exec")]] IDCLIENT_API extern __thread idd::client::ThreadBlockTable*
    idclient_thread_blocks;

// For idclient.hpp only. The handle's place, if its claims can be inlined: 1. Otherwise 0: call
// idclient_claim.
IDCLIENT_API int idclient_tag_blocks(idclient_tag* tag, uint32_t version,
                                     idd::client::BlockOwner* owner);
}

#endif  // IDCLIENT_THREAD_BLOCK_H_
