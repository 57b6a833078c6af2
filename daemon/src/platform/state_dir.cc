// SPDX-License-Identifier: Apache-2.0
#include "platform/state_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "platform/path_error.h"

namespace idd::daemon {
namespace {

constexpr mode_t kLockMode = 0600;
constexpr mode_t kStateDirMode = 0750;

std::string HolderOf(int fd) {
  std::array<char, 32> text{};
  const ssize_t bytes = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string_view pid(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  pid = pid.substr(0, pid.find_first_not_of("0123456789"));
  return pid.empty() ? "another process" : "process " + std::string(pid);
}

}  // namespace

Result<FileLock> FileLock::Take(const std::string& path) {
  ScopedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode));
  if (!fd.valid()) return PathFailure("cannot open the lock file " + path, path, errno);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Status::FromErrno(errno, "locking " + path);
    return Status(Code::kUnavailable, path + " is locked by " + HolderOf(fd.get()));
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  // The pid is for people; the lock holds without it, also on a full disk.
  if (::ftruncate(fd.get(), 0) == 0) {
    [[maybe_unused]] const ssize_t written = ::pwrite(fd.get(), pid.data(), pid.size(), 0);
  }
  return FileLock(std::move(fd));
}

Result<FileLock> LockStateDir(const std::string& state_dir) {
  const std::string what = "cannot make the state directory " + state_dir;
  if (::mkdir(state_dir.c_str(), kStateDirMode) != 0) {
    const int error = errno;
    struct stat info {};
    if (::stat(state_dir.c_str(), &info) != 0) return PathFailure(what, state_dir, error);
    if (!S_ISDIR(info.st_mode)) return Status(Code::kSystem, what + ": a file has that name");
  }
  Result<FileLock> lock = FileLock::Take(state_dir + "/idd.lock");
  if (lock.ok()) return lock;
  if (lock.status().code() != Code::kUnavailable) return lock.status();
  return Status(Code::kUnavailable,
                "another idd uses this state directory: " + lock.status().message());
}

}  // namespace idd::daemon
