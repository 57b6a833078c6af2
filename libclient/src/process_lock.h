// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_PROCESS_LOCK_H_
#define IDCLIENT_SRC_PROCESS_LOCK_H_

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "process_mark.h"

namespace idd::client {

// A lock for a few instructions, which a forked child finds open although a thread of its parent
// held it: the word has the holder's process. The section may be cut short in the child, so it must
// leave what it guards usable after each of its stores.
class ProcessLock {
 public:
  ProcessLock() = default;
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

  // The names that std::lock_guard needs.
  void lock() noexcept {
    const std::uint64_t mine = ProcessMark();
    while (true) {
      std::uint64_t holder = word_.load(std::memory_order_relaxed);  // G1: the exchange decides
      if (holder != mine && word_.compare_exchange_weak(holder, mine,
                                                        std::memory_order_acquire,  // G2, with G3
                                                        std::memory_order_relaxed)) {  // G1
        return;
      }
      ::sched_yield();
    }
  }
  void unlock() noexcept { word_.store(0, std::memory_order_release); }  // G3, pairs with G2

 private:
  std::atomic<std::uint64_t> word_{0};  // ProcessMark() of the holder; 0: none
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_PROCESS_LOCK_H_
