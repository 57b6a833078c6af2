// SPDX-License-Identifier: Apache-2.0
#include "platform/state_dir.h"

#include <fcntl.h>
#include <sys/file.h>
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

// Opens `path`, or makes it.
Result<ScopedFd> OpenLockFile(const std::string& path) {
  ScopedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode));
  if (!fd.valid()) return PathFailure("cannot open the lock file " + path, path, errno);
  return fd;
}

// The pid is for people; the lock holds without it, also on a full disk.
void WritePid(int fd) {
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(fd, pid.data(), pid.size(), 0);
}

}  // namespace

Result<FileLock> FileLock::Take(const std::string& path) {
  Result<ScopedFd> fd = OpenLockFile(path);
  if (!fd.ok()) return fd.status();
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd.value().get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Status::FromErrno(errno, "locking " + path);
    return Status(Code::kUnavailable, path + " is locked by " + HolderOf(fd.value().get()));
  }
  WritePid(fd.value().get());
  return FileLock(std::move(fd).value());
}

Result<FileLock> FileLock::TakeDirectory(const std::string& path) {
  ScopedFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return PathFailure("cannot open the directory " + path, path, errno);
  const bool is_locked = ::flock(directory.get(), LOCK_EX | LOCK_NB) == 0;
  if (!is_locked && errno != EWOULDBLOCK) return Status::FromErrno(errno, "locking " + path);
  const Result<ScopedFd> holder = OpenLockFile(path + "/idd.lock");
  if (!is_locked) {
    return Status(Code::kUnavailable,
                  path + " is locked by " +
                      (holder.ok() ? HolderOf(holder.value().get()) : "another process"));
  }
  if (!holder.ok()) return holder.status();
  WritePid(holder.value().get());
  return FileLock(std::move(directory));
}

Result<FileLock> LockStateDir(const std::string& state_dir) {
  const std::string what = "cannot make the state directory " + state_dir;
  if (::mkdir(state_dir.c_str(), kStateDirMode) != 0) {
    const int error = errno;
    struct stat info {};
    if (::stat(state_dir.c_str(), &info) != 0) return PathFailure(what, state_dir, error);
    if (!S_ISDIR(info.st_mode)) return Status(Code::kSystem, what + ": a file has that name");
  }
  Result<FileLock> lock = FileLock::TakeDirectory(state_dir);
  if (lock.ok() || lock.status().code() != Code::kUnavailable) return lock;
  return lock.status().WithContext("another idd uses this state directory");
}

}  // namespace idd::daemon
