// SPDX-License-Identifier: Apache-2.0
//
// In a file of its own, because <term.h> defines macros with common names.
#include "terminal/terminal_type.h"

#include <curses.h>
#include <term.h>

#include <cstdint>

namespace idd::tools {

bool CanMoveCursor(int out_fd) {
  int why = 0;
  if (::setupterm(nullptr, out_fd, &why) == ERR) return false;
  const char* const sequence = ::tigetstr("cup");
  constexpr std::intptr_t kNoSuchCapability = -1;
  const bool can =
      sequence != nullptr && reinterpret_cast<std::intptr_t>(sequence) != kNoSuchCapability;
  ::del_curterm(cur_term);
  return can;
}

}  // namespace idd::tools
