// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_BASE_GUARDED_FD_H_
#define IDD_BASE_GUARDED_FD_H_

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "idd/base/scoped_fd.h"

namespace idd {

// Identifies the open file of a descriptor, to distinguish it from a file that got the number
// later.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// Nothing when `fd` is closed. One system call; keeps errno.
[[nodiscard]] inline std::optional<FileIdentity> IdentityOf(int fd) noexcept {
  struct stat info {};
  const int error = errno;
  const bool is_open = ::fstat(fd, &info) == 0;
  errno = error;
  if (!is_open) return std::nullopt;
  return FileIdentity{info.st_dev, info.st_ino};
}

// Owns one descriptor of a library. The program may, as daemons do, close every descriptor that it
// finds and open its own files under the same numbers; the destructor closes only the file that was
// given to the constructor.
//
// Thread safety: none, except that calls of IsOurs() may run concurrently. If a thread of the
// program closes the number between IsOurs() and its use, that goes unnoticed.
class GuardedFd {
 public:
  explicit GuardedFd(ScopedFd fd) noexcept
      : fd_(std::move(fd)), identity_(IdentityOf(fd_.get()).value_or(FileIdentity{})) {}
  GuardedFd(GuardedFd&& other) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept {
    if (this == &other) return *this;
    Close();
    fd_ = std::move(other.fd_);
    identity_ = other.identity_;
    return *this;
  }
  GuardedFd(const GuardedFd&) = delete;
  GuardedFd& operator=(const GuardedFd&) = delete;
  ~GuardedFd() { Close(); }

  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }
  // The number still stands for the file that was given to the constructor. One system call.
  [[nodiscard]] bool IsOurs() const noexcept {
    return fd_.valid() && IdentityOf(fd_.get()) == identity_;
  }

 private:
  void Close() noexcept {
    if (IsOurs()) fd_.reset();
    static_cast<void>(fd_.release());
  }

  ScopedFd fd_;
  FileIdentity identity_;
};

}  // namespace idd

#endif  // IDD_BASE_GUARDED_FD_H_
