// SPDX-License-Identifier: Apache-2.0
//
// An /etc/idd/idd.toml that exists but cannot be read, or that is gone at a reload: idd never falls
// back to the defaults, an SQLite file without access rules. Each case has its own /etc
// (mount_namespace.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/host.h"
#include "support/test_environment.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kConfig = "/etc/idd/idd.toml";

class UnreadableConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    // A user namespace with one uid has no other users.
    std::ifstream map("/proc/self/uid_map");
    std::uint64_t inside = 0;
    std::uint64_t outside = 0;
    std::uint64_t count = 0;
    map >> inside >> outside >> count;
    if (count <= kAlice.uid) GTEST_SKIP() << "only root can act as another user";
    RequireErrno(::chmod(dir_.path().c_str(), 0755) == 0, "chmod");
    std::filesystem::create_directories(dir_.File("etc/idd"));
    std::filesystem::create_directories(dir_.File("alice"));
    RequireErrno(::chown(dir_.File("alice").c_str(), kAlice.uid, kAlice.gid) == 0, "chown");
    for (const char* name : {"passwd", "group"}) {
      std::filesystem::copy_file(std::string("/etc/") + name, dir_.File("etc/") + name);
    }
    RequireErrno(::mount(dir_.File("etc").c_str(), "/etc", nullptr, MS_BIND, nullptr) == 0,
                 "mount /etc");
    is_mounted_ = true;
  }
  void TearDown() override {
    if (is_mounted_) ::umount2("/etc", MNT_DETACH);
  }

  // The other options of a start, in a directory that the user may write to.
  [[nodiscard]] ChildOptions Idd(const std::vector<std::string>& more = {}) const {
    const std::string folder = dir_.File("alice/");
    ChildOptions options;
    options.argv = {IddBinary(),
                    "--socket",
                    folder + "sock",
                    "--host-id",
                    "h",
                    "--database",
                    "sqlite:" + folder + "store",
                    "--state-dir",
                    folder + "state"};
    options.argv.insert(options.argv.end(), more.begin(), more.end());
    return options;
  }
  // As an unprivileged user, because root can read everything.
  void ExpectRefusal(const std::string& why) const {
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{}, {"--check-config"}}) {
      ChildOptions options = Idd(more);
      options.identity = kAlice;
      ChildProcess process(options);
      EXPECT_EQ(process.WaitFor(Patience(5s)).value_or(-1), 2) << "it runs on the defaults";
      process.Kill();
      EXPECT_THAT(process.stderr_text(), HasSubstr(kConfig));
      EXPECT_THAT(process.stderr_text(), HasSubstr(why));
      EXPECT_THAT(process.stdout_text(), Not(HasSubstr("valid")));
    }
    EXPECT_FALSE(Exists(dir_.File("alice/store"))) << "idd made the default store";
  }

  const TempDir dir_;
  bool is_mounted_ = false;
};

// Regression: the directory was root's with mode 0700, and idd ran without the rules in the file.
TEST_F(UnreadableConfig, DirectoryOfAnotherUserEndsTheStart) {
  WriteFile(kConfig, "database = \"mysql://idd@db/idd\"\n");
  RequireErrno(::chmod("/etc/idd", 0700) == 0, "chmod");
  ExpectRefusal("Permission denied");
}

TEST_F(UnreadableConfig, FileOfAnotherUserEndsTheStart) {
  WriteFile(kConfig, "");
  RequireErrno(::chmod("/etc/idd", 0755) == 0 && ::chmod(kConfig, 0600) == 0, "chmod");
  ExpectRefusal("Permission denied");
}

TEST_F(UnreadableConfig, FileThatIsGoneAtAReloadChangesNothing) {
  WriteFile(kConfig, "log_level = \"debug\"\n");
  ChildProcess process(Idd());
  const auto says = [&](const char* words) {
    return WaitUntil(Patience(10s),
                     [&] { return process.stderr_text().find(words) != std::string::npos; });
  };
  ASSERT_TRUE(says("idd.ready")) << process.stderr_text();
  RequireErrno(::unlink(kConfig) == 0, "unlink");
  process.Signal(SIGHUP);
  EXPECT_TRUE(says("config.reload")) << process.stderr_text();
  EXPECT_THAT(process.stderr_text(), HasSubstr("config.reload_failed"));
  EXPECT_THAT(process.stderr_text(), HasSubstr("/etc/idd/idd.toml is gone"));
  WriteFile(kConfig, "log_level = \"info\"\n");
  process.Signal(SIGHUP);
  EXPECT_TRUE(says("changed=log_level")) << process.stderr_text();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.WaitFor(Patience(10s)), 0);
}

}  // namespace
}  // namespace idd::harness
