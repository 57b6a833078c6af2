// SPDX-License-Identifier: Apache-2.0
#include "platform/path_error.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "idd/base/error_text.h"

namespace idd::daemon {
namespace {

// The topmost part of `directory` that is missing or is no directory. Empty: there is none.
std::string TopmostWrongPart(const std::string& directory, bool& exists) {
  for (std::size_t end = directory.find('/', 1);; end = directory.find('/', end + 1)) {
    const std::string part = directory.substr(0, end);
    struct stat info {};
    exists = ::stat(part.c_str(), &info) == 0;
    if (!exists && errno != ENOENT && errno != ENOTDIR) return "";
    if (!exists || !S_ISDIR(info.st_mode)) return part;
    if (end == std::string::npos) return "";
  }
}

std::string WrongDirectory(const std::string& path) {
  bool exists = false;
  const std::string part = TopmostWrongPart(DirectoryOf(path), exists);
  if (part.empty()) return "";
  if (exists) return "'" + part + "' is not a directory; use another path";
  return "directory '" + part + "' does not exist; create it, or mount its file system";
}

std::string ThisUser() { return "uid " + std::to_string(::geteuid()); }

// A refusal that is the directory's, not the file's.
std::string Refused(const std::string& path) {
  const std::string directory = DirectoryOf(path);
  if (::access(directory.c_str(), X_OK) != 0) {
    return "; let idd's user, here " + ThisUser() + ", search directory '" + directory + "'";
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    return "; let idd's user, here " + ThisUser() + ", read and write the file";
  }
  return "; let idd's user, here " + ThisUser() + ", write into directory '" + directory + "'";
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, slash == 0 ? 1 : slash);
}

std::string PathError(const std::string& path, int error) {
  const std::string text = ErrorText(error);
  if (error == ENOENT || error == ENOTDIR) {
    const std::string wrong = WrongDirectory(path);
    return wrong.empty() ? text : wrong;
  }
  if (error == EACCES || error == EPERM) return text + Refused(path);
  if (error == EROFS) {
    return text + ": '" + DirectoryOf(path) +
           "' cannot be written here; use another path, or add ReadWritePaths= to the unit";
  }
  return text;
}

Status PathFailure(const std::string& what, const std::string& path, int error) {
  return {Code::kSystem, what + ": " + PathError(path, error)};
}

}  // namespace idd::daemon
