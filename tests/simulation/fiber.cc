// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "idd/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace idd::simulation {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kStackBytes = 512 * 1024;

Fiber* running = nullptr;

// Stacks that are used again, because mapping one takes longer than most fibers run.
std::vector<void*>& FreeStacks() {
  static std::vector<void*> stacks;
  return stacks;
}

void* TakeStack() {
  if (!FreeStacks().empty()) {
    void* const stack = FreeStacks().back();
    FreeStacks().pop_back();
    return stack;
  }
  void* const memory = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  IDD_CHECK(memory != MAP_FAILED);
  IDD_CHECK(::mprotect(memory, kGuardBytes, PROT_NONE) == 0);
  return static_cast<char*>(memory) + kGuardBytes;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {}

Fiber::~Fiber() {
  IDD_CHECK(has_ended_ || !has_begun_);
  if (stack_ != nullptr) FreeStacks().push_back(stack_);
}

// makecontext() passes only ints.
void Fiber::Enter(unsigned high, unsigned low) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the pointer that Resume() has split
  auto* const fiber = reinterpret_cast<Fiber*>((std::uintptr_t{high} << 32) | low);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->resumer_stack_, &fiber->resumer_stack_bytes_);
#endif
  fiber->body_();
  fiber->body_ = nullptr;
  fiber->has_ended_ = true;
  Yield();
}

// swapcontext() also saves the signal mask, by a system call: that took a sixth of a run's time.
void Fiber::Switch(Place& from, Place& to) {
#if defined(__SANITIZE_ADDRESS__)
  IDD_CHECK(::swapcontext(&from.context, &to.context) == 0);
#else
  from.was_left = true;
  if (_setjmp(from.jump) != 0) return;
  if (to.was_left) _longjmp(to.jump, 1);
  ::setcontext(&to.context);
  IDD_CHECK(false);
#endif
}

void Fiber::SwitchTo(Place& from, Place& to, bool into) {
#if defined(__SANITIZE_ADDRESS__)
  if (into) {
    __sanitizer_start_switch_fiber(&resumer_fake_stack_, stack_, kStackBytes);
  } else {
    // Null tells the sanitizer that this stack is not used any more.
    __sanitizer_start_switch_fiber(has_ended_ ? nullptr : &fake_stack_, resumer_stack_,
                                   resumer_stack_bytes_);
  }
#endif
  Switch(from, to);
#if defined(__SANITIZE_ADDRESS__)
  if (into) {
    __sanitizer_finish_switch_fiber(resumer_fake_stack_, nullptr, nullptr);
  } else {
    __sanitizer_finish_switch_fiber(fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
  }
#else
  static_cast<void>(into);
#endif
}

void Fiber::Resume() {
  IDD_CHECK(!has_ended_);
  if (!has_begun_) {
    has_begun_ = true;
    stack_ = TakeStack();
    IDD_CHECK(::getcontext(&place_.context) == 0);
    place_.context.uc_stack.ss_sp = stack_;
    place_.context.uc_stack.ss_size = kStackBytes;
    place_.context.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&place_.context, reinterpret_cast<void (*)()>(Enter), 2,
                  static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }
  outer_ = std::exchange(running, this);
  SwitchTo(resumer_, place_, true);
  running = outer_;
}

void Fiber::Yield() {
  Fiber* const self = running;
  IDD_CHECK(self != nullptr);
  self->SwitchTo(self->place_, self->resumer_, false);
}

}  // namespace idd::simulation
