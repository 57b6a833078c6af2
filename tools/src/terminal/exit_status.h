// SPDX-License-Identifier: Apache-2.0
//
// The meaning of idctl's exit statuses, and what is printed with a failure.
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
  kDenied = 6,          // this user lacks the permission
  kExists = 7,          // the object to be created exists already
};

// Why a command failed. All three texts are single clauses without a final full stop; `todo` may be
// empty.
struct Failure {
  ExitStatus exit = ExitStatus::kFailed;
  std::string what;
  std::string why;
  std::string todo;
  std::string suggestion{};  // what the user may have meant; may be empty
};

// Nothing means success.
using Outcome = std::optional<Failure>;

// The exit status for the outcome of a claim or an admin request. kInvalid becomes kFailed: idctl
// checks the arguments before it sends anything, and those errors are kUsage.
[[nodiscard]] ExitStatus ExitFor(Code code) noexcept;

// Advice for the user about an outcome of this kind; empty for kOk.
[[nodiscard]] const char* AdviceFor(Code code) noexcept;

// The failure of `what`. No general advice is appended to a message that has its own ("...; raise
// --max-id"). Precondition: !status.ok().
[[nodiscard]] Failure FailureFrom(const Status& status, std::string_view what);

// "idctl: <what>: <why>; <todo>" and a newline: exactly one line, whatever the texts contain. A
// suggestion is a second line.
[[nodiscard]] std::string FormatFailure(const Failure& failure);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_EXIT_STATUS_H_
