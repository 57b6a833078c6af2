// SPDX-License-Identifier: Apache-2.0
#include "support/mount_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr const char* kInsideVariable = "TEST_INSIDE_MOUNT_NAMESPACE";

[[noreturn]] void GiveUp(const char* what) {
  std::perror(what);
  std::exit(1);
}

[[noreturn]] void StartAgainInUserNamespace(char** argv) {
  std::array<char, 4096> self{};
  if (::readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) GiveUp("readlink");
  ::setenv(kInsideVariable, "1", 1);
  std::vector<const char*> command = {"unshare", "--map-root-user", "--mount", "--", self.data()};
  for (char** argument = argv + 1; *argument != nullptr; ++argument) command.push_back(*argument);
  command.push_back(nullptr);
  ::execvp(command[0], const_cast<char* const*>(command.data()));
  GiveUp("unshare");
}

}  // namespace

void EnterMountNamespace(char** argv) {
  const bool inside = std::getenv(kInsideVariable) != nullptr;
  if (!inside && ::geteuid() != 0) StartAgainInUserNamespace(argv);
  if (!inside && ::unshare(CLONE_NEWNS) != 0) {
    // Root without the capability, as in some containers.
    if (errno != EPERM) GiveUp("unshare");
    StartAgainInUserNamespace(argv);
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    GiveUp("mount --make-private");
}

SmallTmpfs::SmallTmpfs(const std::string& path, std::size_t kilobytes) : path_(path) {
  RequireErrno(::mkdir(path.c_str(), 0700) == 0, "mkdir " + path);
  const std::string size = "mode=0700,size=" + std::to_string(kilobytes) + "k";
  RequireErrno(::mount("tmpfs", path.c_str(), "tmpfs", 0, size.c_str()) == 0, "mount " + path);
}

SmallTmpfs::~SmallTmpfs() { ::umount2(path_.c_str(), MNT_DETACH); }

void SmallTmpfs::Remount(unsigned long flags) {
  RequireErrno(::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | flags, nullptr) == 0,
               "remount " + path_);
}

void SmallTmpfs::MakeReadOnly() { Remount(MS_RDONLY); }
void SmallTmpfs::MakeWritable() { Remount(0); }

void SmallTmpfs::Fill() {
  const ScopedFd fd(::open(File("filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  RequireErrno(fd.valid(), "open filler");
  const std::array<char, 4096> block{};
  while (::write(fd.get(), block.data(), block.size()) > 0) {
  }
  RequireErrno(errno == ENOSPC, "filling " + path_);
}

void SmallTmpfs::Free() { RequireErrno(::unlink(File("filler").c_str()) == 0, "unlink filler"); }

ReadOnlyFile::ReadOnlyFile(const std::string& path) : path_(path) {
  RequireErrno(::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0, "bind " + path);
  RequireErrno(
      ::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0,
      "bind read-only " + path);
}

ReadOnlyFile::~ReadOnlyFile() { ::umount2(path_.c_str(), MNT_DETACH); }

}  // namespace idd::harness
