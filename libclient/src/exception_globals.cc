// SPDX-License-Identifier: Apache-2.0
//
// Where the C++ runtime keeps the exceptions of a thread. The library has the runtime linked in
// statically, for programs that have none. The runtime's own version of these functions takes 16
// bytes of thread-local storage, which a library that is loaded late may not get. Their form is
// that of the Itanium C++ ABI (2.2.2, exception handling).
#include <cstdlib>

#include "thread_state.h"

namespace {

using Globals = idd::client::ThreadState::Exceptions;

Globals* Mine() noexcept {
  // Every call that may throw has made it before (Guarded() in idclient.cc).
  idd::client::ThreadState* const state = idd::client::ThreadState::Mine();
  if (state == nullptr) std::abort();
  return &state->exceptions;
}

}  // namespace

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the ABI gives these names
Globals* __cxa_get_globals() noexcept { return Mine(); }
Globals* __cxa_get_globals_fast() noexcept { return Mine(); }
// NOLINTEND(bugprone-reserved-identifier)
}
