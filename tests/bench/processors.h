// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_BENCH_PROCESSORS_H_
#define IDD_TESTS_BENCH_PROCESSORS_H_

#include <sched.h>
#include <sys/types.h>

#include <filesystem>
#include <string>

#include "support/test_environment.h"

namespace idd::harness {

// Restricts a thread (0: the calling one) to one processor.
inline void PinThread(pid_t thread, unsigned processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  RequireErrno(::sched_setaffinity(thread, sizeof set, &set) == 0, "sched_setaffinity");
}

// All current threads of the process.
inline void PinProcess(pid_t pid, unsigned processor) {
  const std::filesystem::path threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& entry : std::filesystem::directory_iterator(threads)) {
    PinThread(std::stoi(entry.path().filename()), processor);
  }
}

}  // namespace idd::harness

#endif  // IDD_TESTS_BENCH_PROCESSORS_H_
