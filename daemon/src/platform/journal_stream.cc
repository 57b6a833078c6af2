// SPDX-License-Identifier: Apache-2.0
#include "platform/journal_stream.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace idd::daemon {

bool IsJournal() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read only.
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &info) != 0) return false;
  return std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) == stream;
}

}  // namespace idd::daemon
