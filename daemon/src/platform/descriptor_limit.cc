// SPDX-License-Identifier: Apache-2.0
#include "platform/descriptor_limit.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cerrno>

#include "idd/base/error_text.h"
#include "idd/base/scoped_fd.h"

namespace idd::daemon {
namespace {

constexpr std::size_t kNoLimit = std::size_t{1} << 20;
// For connections, and for files that idd opens for a moment: a report's connection to the store,
// the configuration, the file of metrics.
constexpr std::size_t kReserve = 2 * kFewestConnections;

std::string Needs() {
  return "; raise LimitNOFILE= of the unit, or ulimit -n: idd needs " +
         std::to_string(kOwnDescriptors + kFewestConnections) + " and " +
         std::to_string(kDescriptorsOfRing) + " more for each tag and 1 for each connection";
}

}  // namespace

Status RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) {
    return Status::Ok();
  }
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return Status::Ok();
  return Status::FromErrno(errno, "setrlimit");
}

std::size_t DescriptorLimit() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_known ? static_cast<std::size_t>(limit.rlim_cur) : kNoLimit;
}

std::string DescriptorShortage() {
  const ScopedFd fd(::eventfd(0, EFD_CLOEXEC));
  const int error = errno;
  if (fd.valid() || (error != EMFILE && error != ENFILE)) return "";
  return ErrorText(error);
}

Status CheckRoomToStart(std::size_t passed) {
  const std::size_t limit = DescriptorLimit();
  const std::size_t needed = kOwnDescriptors + kFewestConnections + passed;
  if (needed <= limit) return Status::Ok();
  const std::string rings =
      passed == 0 ? ""
                  : " for the " + std::to_string(passed) + " of the rings that an earlier idd left";
  return {Code::kSystem, "the limit of descriptors, " + std::to_string(limit) + ", is too low" +
                             rings + Needs() + ", here " + std::to_string(needed)};
}

Status CheckRoomBeside(int fd) {
  const std::size_t limit = DescriptorLimit();
  if (static_cast<std::size_t>(fd) + kReserve < limit) return Status::Ok();
  return {Code::kSystem, "the limit of descriptors, " + std::to_string(limit) +
                             ", leaves no room for connections beside another ring" + Needs()};
}

}  // namespace idd::daemon
