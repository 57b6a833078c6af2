// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_PROCESS_MARK_H_
#define IDCLIENT_SRC_PROCESS_MARK_H_

#include <cstdint>

namespace idd::client {

// A number that differs between a process and every process it was forked from, whichever system
// call forked it; never 0. A process id is no such number: a child in a new PID namespace may have
// its parent's, and ids are used again. Any thread; no lock and, after the first call, no system
// call unless the kernel is older than Linux 4.14.
[[nodiscard]] std::uint64_t ProcessMark() noexcept;

}  // namespace idd::client

#endif  // IDCLIENT_SRC_PROCESS_MARK_H_
