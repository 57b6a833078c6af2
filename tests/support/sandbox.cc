// SPDX-License-Identifier: Apache-2.0
//
// idd_sandbox CALLS PROGRAM [ARGUMENT...]: becomes PROGRAM under those restrictions of idd.service
// that a test process can impose: the system calls named in the file CALLS and EPERM for all
// others, no capability, no new privileges, the unit's umask.
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

namespace {

constexpr mode_t kUmask = 0077;

// Root keeps no capability over the exec either, because the bounding set is empty. Other users
// have none.
void DropCapabilities() {
  for (unsigned long capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    ::prctl(PR_CAPBSET_DROP, capability);
  }
}

bool LoadFilter(const char* calls) {
  std::ifstream names(calls);
  scmp_filter_ctx filter = ::seccomp_init(SCMP_ACT_ERRNO(EPERM));
  if (filter == nullptr || !names) return false;
  std::size_t allowed = 0;
  for (std::string name; std::getline(names, name);) {
    const int number = ::seccomp_syscall_resolve_name(name.c_str());
    if (number < 0) continue;  // another architecture's
    if (::seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0) == 0) ++allowed;
  }
  // Also sets no_new_privs.
  const bool is_loaded = allowed > 0 && ::seccomp_load(filter) == 0;
  ::seccomp_release(filter);
  return is_loaded;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  ::umask(kUmask);
  DropCapabilities();
  if (!LoadFilter(argv[1])) {
    std::fputs("idd_sandbox: the filter cannot be loaded\n", stderr);
    return 126;
  }
  ::execv(argv[2], argv + 2);
  std::perror("idd_sandbox");
  return 126;
}
