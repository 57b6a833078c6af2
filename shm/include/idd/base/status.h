// SPDX-License-Identifier: Apache-2.0
//
// Status and Result: how an operating error travels.
//
// An operating error is anything a peer, the database, the file system or the kernel did to us. It
// is a value, never an exception and never an assertion, and every layer it passes adds the words
// that its reader needs ("lease of tag 'orders': ..."). Programmer errors use IDD_CHECK (check.h).
#ifndef IDD_BASE_STATUS_H_
#define IDD_BASE_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "idd/base/check.h"

namespace idd {

// The closed set of outcomes. The numeric values are those of `idclient_status` and travel on the
// socket (wire/frames.h), so they never change; a new one is added at the end.
enum class Code : std::uint32_t {
  kOk = 0,
  kInvalid = 1,       // the caller's argument, frame or option is wrong; retrying cannot help
  kUnavailable = 2,   // the other side (daemon, store) cannot be reached now
  kNoSuchTag = 3,     // the store was asked and has no such tag
  kDenied = 4,        // the peer's credentials do not allow it
  kTimeout = 5,       // the caller's deadline passed first
  kOutOfIds = 6,      // the tag's id space is used up
  kIncompatible = 7,  // versions, seals, sizes or schema do not match
  kSystem = 8,        // a system call failed in a way the caller cannot fix
};

// The constant's name in the C API without its prefix ("TIMEOUT"); never null.
[[nodiscard]] const char* CodeName(Code code) noexcept;

// A code received from outside: a number that this version does not know is kSystem.
[[nodiscard]] Code CodeFromNumber(std::uint32_t number) noexcept;

// An outcome and, when it is not kOk, one sentence: what failed, why and, where known, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] static Status Ok() { return {}; }
  // kSystem with "<what>: <strerror(error)>". `error` is an errno value.
  [[nodiscard]] static Status FromErrno(int error, std::string_view what);

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  // The same code with "<context>: " before the message; an ok status stays ok.
  [[nodiscard]] Status WithContext(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value or the Status that explains its absence. (std::expected is not in C++20.)
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, because `return value;` and `return status;` are the point.
  // NOLINTBEGIN(google-explicit-constructor)
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { IDD_CHECK(!status_.ok()); }
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return status_.ok(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

  [[nodiscard]] T& value() & {
    IDD_CHECK(value_.has_value());
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    IDD_CHECK(value_.has_value());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    IDD_CHECK(value_.has_value());
    return *std::move(value_);
  }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace idd

#endif  // IDD_BASE_STATUS_H_
