// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_TERMINAL_TERMINAL_TYPE_H_
#define IDD_TOOLS_TERMINAL_TERMINAL_TYPE_H_

namespace idd::tools {

// Whether the terminal type that TERM names is known and can position its cursor. A printer, or
// TERM=dumb, cannot; there a snapshot is more useful than a screen.
[[nodiscard]] bool CanMoveCursor(int out_fd);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_TERMINAL_TYPE_H_
