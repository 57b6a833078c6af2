// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_BOUNDED_CALL_H_
#define IDD_DAEMON_PLATFORM_BOUNDED_CALL_H_

#include <chrono>
#include <functional>
#include <string>

#include "idd/base/status.h"

namespace idd::daemon {

// Runs `call` in a thread of its own and waits for its end, at most for `limit`. For calls of
// libraries that take as long as they like and cannot be cancelled, such as the system's look-ups
// of names and users.
//
// kUnavailable: the call has not ended in time. It goes on, and neither its end nor the process's
// end waits for it, so it must own everything that it uses. While it goes on, further calls with
// the same `what` are refused at once, so that such threads do not gather. `what` is for messages:
// "the look-up of 'db.example.org'".
[[nodiscard]] Status RunWithin(std::chrono::milliseconds limit, const std::string& what,
                               std::function<void()> call);

// Ends the process with `exit_status` after `limit`, unless it has ended before. For a process that
// has nothing left to do but to end its threads, one of which may hang in such a call.
void EndProcessWithin(std::chrono::milliseconds limit, int exit_status);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_BOUNDED_CALL_H_
