// SPDX-License-Identifier: Apache-2.0
#include "thread_state.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "thread_blocks.h"

namespace idd::client {
namespace {

// The key is made when the library is loaded, and never deleted: the library is never unloaded.
struct Key {
  Key() noexcept { is_made = ::pthread_key_create(&key, Free) == 0; }
  static void Free(void* state) {
    ThreadBlocks::FreeMine();
    std::free(state);
  }

  pthread_key_t key{};
  bool is_made = false;
};

const Key& TheKey() noexcept {
  static const Key key;
  return key;
}

// Made here, before any thread can be forked in the middle of it.
[[maybe_unused]] const Key& made_early = TheKey();

}  // namespace

void ThreadState::SetError(std::string_view message) noexcept {
  const std::size_t bytes = std::min(message.size(), last_error.size() - 1);
  std::copy_n(message.begin(), bytes, last_error.begin());
  last_error[bytes] = '\0';
}

ThreadState* ThreadState::MineIfAny() noexcept {
  const Key& key = TheKey();
  return key.is_made ? static_cast<ThreadState*>(::pthread_getspecific(key.key)) : nullptr;
}

ThreadState* ThreadState::Mine() noexcept {
  if (ThreadState* const mine = MineIfAny(); mine != nullptr) return mine;
  const Key& key = TheKey();
  if (!key.is_made) return nullptr;
  // malloc, not new: this runs before exceptions can be thrown.
  void* const memory = std::malloc(sizeof(ThreadState));
  if (memory == nullptr) return nullptr;
  auto* const made = new (memory) ThreadState;
  if (::pthread_setspecific(key.key, made) == 0) return made;
  std::free(memory);
  return nullptr;
}

}  // namespace idd::client
