// SPDX-License-Identifier: Apache-2.0
//
// Waiting for a daemon that is not there.
#ifndef IDD_LIBCLIENT_RECONNECT_H_
#define IDD_LIBCLIENT_RECONNECT_H_

#include <algorithm>
#include <chrono>
#include <thread>

#include "idd/base/clock.h"
#include "idd/base/status.h"

namespace idd::client {

// The pauses of a call that waits for a daemon: short at first.
class ReconnectPause {
 public:
  // Not beyond the deadline.
  void Sleep(idd::Deadline deadline) {
    constexpr std::chrono::milliseconds kLongest(20);
    std::this_thread::sleep_for(std::min(next_, deadline.remaining()));
    next_ = std::min(next_ * 2, kLongest);
  }

 private:
  std::chrono::milliseconds next_{2};
};

// Tries again until idd answers or the deadline has passed; with `is_once` not again. The status
// of a try: kUnavailable if there was no daemon, or with `is_answered` if a daemon said so.
template <typename Try>
[[nodiscard]] idd::Status UntilAnswered(idd::Deadline deadline, bool is_once, const Try& try_it) {
  ReconnectPause pause;
  while (true) {
    bool is_answered = false;
    idd::Status status = try_it(is_answered);
    if (status.code() != idd::Code::kUnavailable || is_answered) return status;
    if (is_once || deadline.passed()) return status;
    pause.Sleep(deadline);
    if (deadline.passed()) return status;
  }
}

}  // namespace idd::client

#endif  // IDD_LIBCLIENT_RECONNECT_H_
