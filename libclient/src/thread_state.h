// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_THREAD_STATE_H_
#define IDCLIENT_SRC_THREAD_STATE_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace idd::client {

// What the library keeps for one thread, apart from its blocks. It is not in thread-local storage:
// a library that is loaded late finds little of that left, and the pointer to the blocks, which
// inlined claims read, needs it. The memory is freed when the thread exits.
struct ThreadState {
  std::array<char, 1024> last_error{};
  bool is_inside = false;  // in a call that must not be entered again by a signal handler
  // See exception_globals.cc.
  struct Exceptions {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  } exceptions;

  void SetError(std::string_view message) noexcept;
  [[nodiscard]] const char* error() const noexcept { return last_error.data(); }

  // The calling thread's, made on first use. Null: there is no memory.
  [[nodiscard]] static ThreadState* Mine() noexcept;
  // The same, but makes none.
  [[nodiscard]] static ThreadState* MineIfAny() noexcept;
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_THREAD_STATE_H_
