// SPDX-License-Identifier: Apache-2.0
#include "support/identity.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "support/test_environment.h"

namespace idd::harness {
namespace {

// The raw system calls: the C library's functions change all threads of the process.
constexpr long kKeep = -1;

bool SetGroups(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

}  // namespace

ScopedIdentity::ScopedIdentity(const Identity& identity)
    : gid_before_(::getegid()), uid_before_(::geteuid()) {
  const int count = ::getgroups(0, nullptr);
  RequireErrno(count >= 0, "getgroups");
  groups_before_.resize(static_cast<std::size_t>(count));
  RequireErrno(::getgroups(count, groups_before_.data()) == count, "getgroups");
  RequireErrno(SetGroups(identity.groups), "setgroups");
  RequireErrno(::syscall(SYS_setresgid, kKeep, identity.gid, kKeep) == 0, "setresgid");
  RequireErrno(::syscall(SYS_setresuid, kKeep, identity.uid, kKeep) == 0, "setresuid");
}

ScopedIdentity::~ScopedIdentity() {
  const bool is_back = ::syscall(SYS_setresuid, kKeep, uid_before_, kKeep) == 0 &&
                       ::syscall(SYS_setresgid, kKeep, gid_before_, kKeep) == 0 &&
                       SetGroups(groups_before_);
  if (is_back) return;
  std::perror("restoring the identity");  // later tests would be meaningless
  std::abort();
}

}  // namespace idd::harness
