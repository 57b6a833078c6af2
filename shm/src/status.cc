// SPDX-License-Identifier: Apache-2.0
#include "idd/base/status.h"

#include <cerrno>
#include <system_error>

#include "idd/base/error_text.h"

namespace idd {

const char* CodeName(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInvalid:
      return "INVALID";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kNoSuchTag:
      return "NO_SUCH_TAG";
    case Code::kDenied:
      return "DENIED";
    case Code::kTimeout:
      return "TIMEOUT";
    case Code::kOutOfIds:
      return "OUT_OF_IDS";
    case Code::kIncompatible:
      return "INCOMPATIBLE";
    case Code::kSystem:
      return "SYSTEM";
  }
  return "UNKNOWN";
}

Code CodeFromNumber(std::uint32_t number) noexcept {
  return number <= static_cast<std::uint32_t>(Code::kSystem) ? static_cast<Code>(number)
                                                             : Code::kSystem;
}

std::string ErrorText(int error) {
  std::string text = std::generic_category().message(error);
  if (error == EMFILE) {
    text +=
        "; raise the limit of descriptors of this process (LimitNOFILE= of its unit, ulimit -n)";
  } else if (error == ENFILE) {
    text += "; raise the limit of descriptors of the whole system (sysctl fs.file-max)";
  }
  return text;
}

Status Status::FromErrno(int error, std::string_view what) {
  return {Code::kSystem, std::string(what) + ": " + ErrorText(error)};
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

}  // namespace idd
