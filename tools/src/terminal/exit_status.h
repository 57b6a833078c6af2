// SPDX-License-Identifier: Apache-2.0
//
// What idctl's exit status means, and the one line that comes with a failure.
#ifndef IDD_TOOLS_TERMINAL_EXIT_STATUS_H_
#define IDD_TOOLS_TERMINAL_EXIT_STATUS_H_

#include <optional>
#include <string>
#include <string_view>

#include "idd/base/status.h"

namespace idd::tools {

// The numbers are part of the command line's contract: scripts test them.
enum class ExitStatus : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,           // the command line is wrong; nothing was sent
  kNoSuchTag = 3,       // the allocator has no such tag
  kUnreachable = 4,     // no daemon answers on the socket
  kNothingToClaim = 5,  // no id before the deadline, or none left
  kDenied = 6,          // this user may not
  kExists = 7,          // what is to be created exists already
};

// Why a command did not do what it was asked. All three texts are single clauses without a final
// full stop; `todo` may be empty.
struct Failure {
  ExitStatus exit = ExitStatus::kFailed;
  std::string what;
  std::string why;
  std::string todo;
};

// Nothing is success.
using Outcome = std::optional<Failure>;

// The exit status for the outcome of a claim or of an admin request. kInvalid is kFailed: what can
// be checked here was checked before anything was sent, and is kUsage.
[[nodiscard]] ExitStatus ExitFor(Code code) noexcept;

// What a user can do about an outcome of this kind; empty for kOk.
[[nodiscard]] const char* AdviceFor(Code code) noexcept;

// The failure of `what`. A message that says itself what to do ("...; raise --max-id") gets no
// general advice behind it. Precondition: !status.ok().
[[nodiscard]] Failure FailureFrom(const Status& status, std::string_view what);

// "idctl: <what>: <why>; <todo>" and a newline: exactly one line, whatever the texts contain.
[[nodiscard]] std::string FormatFailure(const Failure& failure);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_EXIT_STATUS_H_
