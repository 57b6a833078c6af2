// SPDX-License-Identifier: Apache-2.0
//
// IDD_CHECK: a programmer error ends the process, in every build.
//
// It must not test a value that a peer, shared memory, the database or the system gave us: such a
// value is input and gets a Status. A daemon that goes on after one of its own invariants broke
// could hand out an id twice; one that stops only makes a gap.
#ifndef IDD_BASE_CHECK_H_
#define IDD_BASE_CHECK_H_

namespace idd::internal {

// Prints "file:line: check failed: condition" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition) noexcept;

}  // namespace idd::internal

#define IDD_CHECK(condition)                           \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::idd::internal::CheckFailed(__FILE__, __LINE__, #condition))

#endif  // IDD_BASE_CHECK_H_
