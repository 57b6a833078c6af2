// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_STATE_DIR_H_
#define IDD_DAEMON_PLATFORM_STATE_DIR_H_

#include <string>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"

namespace idd::daemon {

// An exclusive lock on a file or a directory. It is held as long as the object lives, and the
// kernel releases it however the process ends. It belongs to the open file description: unlike a
// POSIX record lock it is not lost when some library closes another descriptor of the same file.
class FileLock {
 public:
  // Creates `path` (0600) if need be and writes this process's id into it. kUnavailable when
  // another process holds it, naming that process; kSystem.
  [[nodiscard]] static Result<FileLock> Take(const std::string& path);
  // Locks the directory itself, so that the lock outlives every file in it, and writes this
  // process's id into idd.lock there, for people. Fails as Take() does.
  [[nodiscard]] static Result<FileLock> TakeDirectory(const std::string& path);

 private:
  explicit FileLock(ScopedFd fd) : fd_(std::move(fd)) {}
  ScopedFd fd_;
};

// Makes the state dir (0750) if it is missing, but not its parent, and locks it.
[[nodiscard]] Result<FileLock> LockStateDir(const std::string& state_dir);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_STATE_DIR_H_
