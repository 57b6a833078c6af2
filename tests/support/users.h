// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_USERS_H_
#define IDD_TESTS_SUPPORT_USERS_H_

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "support/host.h"
#include "support/identity.h"
#include "support/test_environment.h"

namespace idd::harness {

// The users in tests of permissions; the machine has no names for these numbers.
inline const Identity kAlice{.uid = 12345, .gid = 12345, .groups = {12001, 12002}};
inline const Identity kBob{.uid = 12346, .gid = 12346, .groups = {12002, 12003}};
inline const Identity kOutsider{.uid = 12399, .gid = 12399, .groups = {}};

// The rings that a process has mapped, including closed ones, by their cursors' inodes.
[[nodiscard]] inline std::set<std::string> RingsMappedBy(const std::string& pid) {
  std::ifstream maps("/proc/" + pid + "/maps");
  std::set<std::string> rings;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:idd-cursors") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string addresses;
    std::string permissions;
    std::string offset;
    std::string device;
    std::string inode;
    fields >> addresses >> permissions >> offset >> device >> inode;
    rings.insert(inode);
  }
  return rings;
}
[[nodiscard]] inline int MappedRings(const std::string& pid) {
  return static_cast<int>(RingsMappedBy(pid).size());
}

// A host whose socket other users can reach. Its tests need root, to act as other users.
class HostWithUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
    RequireErrno(::chmod(dir_.File("").c_str(), 0711) == 0, "chmod");
  }
  void Configure(const std::string& text) { WriteFile(host_.daemon.options().config, text); }
  // Writes the file and makes idd read it; returns the log line with the result.
  void Reload(const std::string& text) {
    Configure(text);
    const std::size_t mark = host_.daemon.LogMark();
    host_.daemon.Signal(SIGHUP);
    ASSERT_TRUE(
        host_.daemon.WaitForLogLine("config.reload", mark, Patience(std::chrono::seconds(5))));
  }
  static std::string Rule(const std::string& tags, uid_t user, const std::string& grant) {
    return "[[access]]\ntags = [" + tags + "]\nusers = [" + std::to_string(user) + "]\n" + grant +
           "\n";
  }

  const TempDir dir_;
  CleanHost host_{dir_};
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_USERS_H_
