// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_IDENTITY_H_
#define IDD_TESTS_SUPPORT_IDENTITY_H_

#include <sys/types.h>

#include <vector>

namespace idd::harness {

// The user that a child or a thread runs as. The numbers need not be in /etc/passwd.
struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups{};
};

// Sets the effective ids of the calling thread alone, for as long as the object lives. Its
// connections and listeners carry them, while the process's other threads stay root. Needs root.
class ScopedIdentity {
 public:
  explicit ScopedIdentity(const Identity& identity);
  ~ScopedIdentity();
  ScopedIdentity(const ScopedIdentity&) = delete;
  ScopedIdentity& operator=(const ScopedIdentity&) = delete;

 private:
  const gid_t gid_before_;
  const uid_t uid_before_;
  std::vector<gid_t> groups_before_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_IDENTITY_H_
