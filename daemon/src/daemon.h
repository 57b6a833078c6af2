// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_DAEMON_H_
#define IDD_DAEMON_DAEMON_H_

#include "config/options.h"

namespace idd::daemon {

// Runs idd until SIGTERM, SIGINT or SIGUSR2; returns the process's exit status: 0 after a clean
// stop, 1 after a failure. Logs everything it does.
//
// Start: state dir locked, marks opened, store opened (or found unavailable), socket bound,
// READY=1. Stop: no more connections, waiters refused, rings drained, tails handed back, exit.
[[nodiscard]] int RunDaemon(const Options& options);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_DAEMON_H_
