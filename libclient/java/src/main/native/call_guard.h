// SPDX-License-Identifier: Apache-2.0
//
// CallGuard: keeps a native object alive while a thread uses it, at the price of two stores.
//
// Each thread has a slot, in which it names the object before it looks whether the object is
// closed. A thread that closes an object marks it as closed, makes a barrier that covers all
// threads of the process (membarrier(2)) and then reads the slots. So either the closing thread
// finds the object in the slot and waits, or the other thread finds the object closed and leaves it
// alone:
//
//   claiming thread                      closing thread
//   Z1 slot = object                     Z3 closed = true
//   (compiler barrier)                   membarrier
//   Z4 closed? leave it alone            Z2 slot == object? wait
//
// Where the kernel has no membarrier, Z1 is an exchange and all four are in one total order.
#ifndef IDCLIENT_JNI_CALL_GUARD_H_
#define IDCLIENT_JNI_CALL_GUARD_H_

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>

namespace idd::jni {

// What a thread uses now. Slots are reused by later threads and never freed.
struct alignas(64) Slot {
  std::atomic<const void*> object{nullptr};
  std::atomic<bool> is_owned{true};
  Slot* next = nullptr;  // set before the slot is in the list
};

// All slots of the process. Thread safety: all functions.
class Slots {
 public:
  // Whether closing threads make the barrier for everyone. Asked once, when the library is loaded.
  static bool RegisterBarrier() noexcept {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  }

  // After this, a thread whose later look finds the object open is visible to IsUsed().
  static void Barrier() noexcept {
    if (has_barrier) ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }

  // Whether a thread uses an object for which `matches` is true.
  template <typename Matches>
  static bool IsUsed(Matches matches) {
    const std::lock_guard lock(mutex_);
    for (const Slot* slot = first_; slot != nullptr; slot = slot->next) {
      // Z2, pairs with Z1 and Z5: what the thread did with the object happened before.
      const void* const object = slot->object.load(std::memory_order_seq_cst);
      if (object != nullptr && matches(object)) return true;
    }
    return false;
  }

  // The calling thread's slot, or null without memory.
  [[nodiscard, gnu::always_inline]] static Slot* Mine() noexcept {
    return mine_ != nullptr ? mine_ : Take();
  }

  inline static const bool has_barrier = RegisterBarrier();

 private:
  // Gives the slot back when the thread exits.
  struct Returner {
    ~Returner() {
      mine_ = nullptr;
      slot->is_owned.store(false, std::memory_order_release);  // Z6, pairs with Z7
    }
    Slot* slot;
  };

  [[gnu::noinline, gnu::cold]] static Slot* Take() noexcept {
    Slot* slot = nullptr;
    {
      const std::lock_guard lock(mutex_);
      slot = first_;
      // Z7, pairs with Z6
      while (slot != nullptr && slot->is_owned.exchange(true, std::memory_order_acquire))
        slot = slot->next;
      if (slot == nullptr) {
        slot = new (std::nothrow) Slot;
        if (slot == nullptr) return nullptr;
        slot->next = first_;
        first_ = slot;
      }
    }
    mine_ = slot;
    static thread_local const Returner returner{slot};
    return slot;
  }

  // Of the static TLS that the C library keeps for libraries that are loaded later.
  [[gnu::tls_model("initial-exec")]] inline static __thread Slot* mine_ = nullptr;
  inline static std::mutex mutex_;
  inline static Slot* first_ = nullptr;
};

// Names `object` in the thread's slot for the lifetime of the guard. A thread has one at a time.
class CallGuard {
 public:
  [[gnu::always_inline]] CallGuard(const void* object, const std::atomic<bool>& closed) noexcept
      : slot_(Slots::Mine()) {
    if (slot_ == nullptr) [[unlikely]]
      return;
    if (Slots::has_barrier) [[likely]] {
      slot_->object.store(object, std::memory_order_relaxed);  // Z1, pairs with Z2
      std::atomic_signal_fence(std::memory_order_seq_cst);     // Z1 before Z4, see above
    } else {
      slot_->object.exchange(object, std::memory_order_seq_cst);  // Z1, pairs with Z2
    }
    is_open_ = !closed.load(std::memory_order_seq_cst);  // Z4, pairs with Z3
  }
  [[gnu::always_inline]] ~CallGuard() {
    if (slot_ != nullptr) [[likely]]
      slot_->object.store(nullptr, std::memory_order_release);  // Z5, pairs with Z2
  }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  // False: the object must not be used.
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }
  // False: there is no memory for the thread's slot.
  [[nodiscard]] bool has_slot() const noexcept { return slot_ != nullptr; }

 private:
  Slot* const slot_;
  bool is_open_ = false;
};

}  // namespace idd::jni

#endif  // IDCLIENT_JNI_CALL_GUARD_H_
