// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_FIBER_H_
#define IDD_TESTS_SIMULATION_FIBER_H_

#include <ucontext.h>

#include <csetjmp>
#include <cstddef>
#include <functional>

namespace idd::simulation {

// A function with a stack of its own that can be left in the middle and continued later, all on one
// thread. A fiber may resume another one, which then yields to it.
class Fiber {
 public:
  // No exception may leave `body`.
  explicit Fiber(std::function<void()> body);
  // Precondition: it has ended, or was never resumed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it yields or ends. Precondition: it has not ended, and does not run.
  void Resume();
  // Leaves the running fiber and continues where it was resumed. Precondition: called in a fiber.
  static void Yield();
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

 private:
  // Where a stack was left. `context` is complete in a fiber that has not begun; in the others,
  // only AddressSanitizer's builds use it.
  struct Place {
    ucontext_t context{};
    std::jmp_buf jump{};
    bool was_left = false;
  };

  static void Enter(unsigned high, unsigned low);
  static void Switch(Place& from, Place& to);
  void SwitchTo(Place& from, Place& to, bool into);

  std::function<void()> body_;
  void* stack_ = nullptr;
  Place place_;
  Place resumer_;
  Fiber* outer_ = nullptr;  // the fiber that has resumed this one; null: the thread's own stack
  bool has_begun_ = false;
  bool has_ended_ = false;
  // For AddressSanitizer, which must know which stack is in use.
  void* fake_stack_ = nullptr;
  void* resumer_fake_stack_ = nullptr;
  const void* resumer_stack_ = nullptr;
  std::size_t resumer_stack_bytes_ = 0;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_FIBER_H_
