// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_PATH_ERROR_H_
#define IDD_DAEMON_PLATFORM_PATH_ERROR_H_

#include <string>

#include "idd/base/status.h"

namespace idd::daemon {

// Why a file at `path` could not be opened or made with `error`, an errno value, and what to do:
// which directory does not exist, is none or may not be used. For other errors that of strerror(3).
[[nodiscard]] std::string PathError(const std::string& path, int error);

// kSystem with "<what>: " and PathError().
[[nodiscard]] Status PathFailure(const std::string& what, const std::string& path, int error);

// The directory that `path` is in; "." for a name alone.
[[nodiscard]] std::string DirectoryOf(const std::string& path);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_PATH_ERROR_H_
