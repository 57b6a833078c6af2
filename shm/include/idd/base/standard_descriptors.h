// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_BASE_STANDARD_DESCRIPTORS_H_
#define IDD_BASE_STANDARD_DESCRIPTORS_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "idd/base/scoped_fd.h"

namespace idd {

// If the caller of a program has closed a standard descriptor, the next file or socket would get
// its number and receive the output for people. So a file takes the number, open in the wrong
// direction: using the descriptor still fails. To be called first in main().
inline void OccupyStandardDescriptors() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", flags) < 0) return;  // the lowest free number: fd
  }
}

// The same file under a number above those of the standard descriptors, for a library, which must
// leave their numbers alone. Invalid, with errno, if none is free. The result is closed on exec.
[[nodiscard]] inline ScopedFd MoveAboveStandard(ScopedFd fd) noexcept {
  if (!fd.valid() || fd.get() > STDERR_FILENO) return fd;
  ScopedFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const int error = errno;
  fd.reset();
  errno = error;
  return moved;
}

}  // namespace idd

#endif  // IDD_BASE_STANDARD_DESCRIPTORS_H_
