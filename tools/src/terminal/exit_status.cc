// SPDX-License-Identifier: Apache-2.0
#include "terminal/exit_status.h"

#include "idd/base/check.h"
#include "terminal/output.h"

namespace idd::tools {
namespace {

// Enough for any sentence; a longer reply would bury the advice that follows.
constexpr std::size_t kMaxWhyBytes = 1024;

// One clause: no line breaks, no blanks at the ends, no final full stop. Cut before escaping, so
// that no escape sequence is cut in two.
std::string Clause(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const bool is_cut = text.size() > kMaxWhyBytes;
  text = text.substr(0, kMaxWhyBytes);
  while (!text.empty() && kBlanks.find(text.front()) != std::string_view::npos)
    text.remove_prefix(1);
  while (!text.empty() &&
         (kBlanks.find(text.back()) != std::string_view::npos || text.back() == '.')) {
    text.remove_suffix(1);
  }
  return EscapeText(text) + (is_cut ? "..." : "");
}

}  // namespace

ExitStatus ExitFor(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return ExitStatus::kDone;
    case Code::kNoSuchTag:
      return ExitStatus::kNoSuchTag;
    case Code::kUnavailable:
      return ExitStatus::kUnreachable;
    case Code::kTimeout:
    case Code::kOutOfIds:
      return ExitStatus::kNothingToClaim;
    case Code::kDenied:
      return ExitStatus::kDenied;
    case Code::kInvalid:
    case Code::kIncompatible:
    case Code::kSystem:
      break;
  }
  return ExitStatus::kFailed;
}

const char* AdviceFor(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "";
    case Code::kInvalid:
      return "correct the request and try again";
    case Code::kUnavailable:
      return "check that idd runs ('systemctl status idd'), or name its socket with --socket";
    case Code::kNoSuchTag:
      return "see 'idctl tag list', or create it with 'idctl tag create'";
    case Code::kDenied:
      return "ask root for an [[access]] rule in idd.toml, or use root's account";
    case Code::kTimeout:
      return "look at 'idctl status', or wait longer with --timeout";
    case Code::kOutOfIds:
      return "raise the tag's limit with 'idctl tag set --max-id', or use another tag";
    case Code::kIncompatible:
      return "upgrade the older of idctl and idd";
    case Code::kSystem:
      break;
  }
  return "see the log of idd and this host's limits";
}

Failure FailureFrom(const Status& status, std::string_view what) {
  IDD_CHECK(!status.ok());
  Failure failure;
  failure.exit = ExitFor(status.code());
  failure.what = std::string(what);
  failure.why = status.message().empty() ? CodeName(status.code()) : status.message();
  if (failure.why.find("; ") == std::string::npos) failure.todo = AdviceFor(status.code());
  return failure;
}

std::string FormatFailure(const Failure& failure) {
  std::string line = "idctl: " + Clause(failure.what) + ": " + Clause(failure.why);
  if (!failure.todo.empty()) line += "; " + Clause(failure.todo);
  line += "\n";
  if (!failure.suggestion.empty())
    line += "idctl: did you mean " + Quote(failure.suggestion) + "?\n";
  return line;
}

}  // namespace idd::tools
