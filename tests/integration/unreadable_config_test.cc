// SPDX-License-Identifier: Apache-2.0
//
// An /etc/idd/idd.toml that exists but cannot be read, or that is gone at a reload: a service never
// falls back to the defaults, an SQLite file without access rules. A private idd does not need it.
// Each case has its own /etc
// (mount_namespace.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

  // The options of a private idd, in a directory that Alice may write to.
  [[nodiscard]] ChildOptions Idd(const std::vector<std::string>& more = {}) const {
    const std::string folder = dir_.File("alice/");
    ChildOptions options;
    options.argv = {IddBinary(),
                    "--host-id",
                    "h",
                    "--socket",
                    folder + "sock",
                    "--database",
                    "sqlite:" + folder + "store",
                    "--state-dir",
                    folder + "state"};
    options.argv.insert(options.argv.end(), more.begin(), more.end());
    return options;
  }
  // As an unprivileged user, because root can read everything.
  static void ExpectRefusal(ChildOptions options, const std::vector<std::string>& words) {
    options.identity = kAlice;
    ChildProcess process(options);
    EXPECT_EQ(process.WaitFor(Patience(5s)).value_or(-1), 2) << "it runs on the defaults";
    process.Kill();
    EXPECT_THAT(process.stderr_text(), HasSubstr(kConfig));
    for (const std::string& word : words) EXPECT_THAT(process.stderr_text(), HasSubstr(word));
    EXPECT_THAT(process.stdout_text(), Not(HasSubstr("valid")));
  }
  // Without one of the options that make an idd independent of the host's, where a file's directory
  // does not stand for it; with and without a check.
  void ExpectRefusals(const std::string& why) const {
    for (const std::string missing : {"--database", "--socket", "--state-dir"}) {
      for (const bool is_check : {false, true}) {
        ChildOptions options = Idd();
        if (missing == "--database") {
          const auto option = std::find(options.argv.begin(), options.argv.end(), missing);
          options.argv.erase(option, option + 2);
        } else {
          const std::string kept = missing == "--socket" ? "--state-dir" : "--socket";
          options.argv = {IddBinary(), "--database", "mysql://idd@127.0.0.1/idd", kept,
                          dir_.File("alice/kept")};
        }
        if (is_check) options.argv.emplace_back("--check-config");
        ExpectRefusal(options, {why, std::string("also give ") + missing});
      }
    }
    EXPECT_FALSE(Exists(dir_.File("alice/store"))) << "idd made a store";
  }
  void MakeUnreadable() const {
    WriteFile(kConfig, "database = \"mysql://idd@db/idd\"\n");
    RequireErrno(::chmod("/etc/idd", 0700) == 0, "chmod");
  }

  const TempDir dir_;
  bool is_mounted_ = false;
};

// Regression: the directory was root's with mode 0700, and idd ran without the rules in the file.
TEST_F(UnreadableConfig, DirectoryOfAnotherUserEndsTheStart) {
  MakeUnreadable();
  ExpectRefusals("Permission denied");
}

TEST_F(UnreadableConfig, FileOfAnotherUserEndsTheStart) {
  WriteFile(kConfig, "");
  RequireErrno(::chmod("/etc/idd", 0755) == 0 && ::chmod(kConfig, 0600) == 0, "chmod");
  ExpectRefusals("Permission denied");
}

// However complete its options are: its rules are only in the file.
TEST_F(UnreadableConfig, ServiceNeedsTheFileThatExists) {
  MakeUnreadable();
  ChildOptions service = Idd();
  service.environment = {"NOTIFY_SOCKET=" + dir_.File("alice/notify")};
  ExpectRefusal(service, {"Permission denied"});
  ChildOptions named = Idd({"--config", kConfig});
  ExpectRefusal(named, {"Permission denied"});
  named = Idd();
  named.environment = {std::string("IDD_CONFIG=") + kConfig};
  ExpectRefusal(named, {"Permission denied"});
  // The service's own user, whose directory has lost its rights. The first entry of a name counts.
  const std::string users = ReadFile("/etc/passwd");
  WriteFile("/etc/passwd", "idd:x:" + std::to_string(kAlice.uid) + ":" +
                               std::to_string(kAlice.gid) + "::/:/bin/false\n" + users);
  ExpectRefusal(Idd(), {"Permission denied"});
}

// Regression: where the package is installed, the example of idd(8) failed for every ordinary user,
// because the configuration of the service is not theirs.
TEST_F(UnreadableConfig, PrivateIddOfAnOrdinaryUserRunsWithoutIt) {
  MakeUnreadable();
  ChildOptions check = Idd({"--check-config"});
  check.identity = kAlice;
  ChildProcess checked(check);
  EXPECT_EQ(checked.WaitFor(Patience(5s)), 0) << checked.stderr_text();
  EXPECT_THAT(checked.stdout_text(), HasSubstr(std::string("may not read ") + kConfig));
  // A developer's: its socket and its state are beside its file.
  ChildOptions options;
  options.argv = {IddBinary(), "--database", "sqlite:" + dir_.File("alice/store")};
  options.identity = kAlice;
  ChildProcess process(options);
  const auto says = [&](const std::string& words) {
    return WaitUntil(Patience(10s),
                     [&] { return process.stderr_text().find(words) != std::string::npos; });
  };
  EXPECT_TRUE(says("idd.ready")) << process.stderr_text();
  EXPECT_THAT(process.stderr_text(), HasSubstr(std::string("config.skipped file=") + kConfig));
  process.Signal(SIGHUP);
  EXPECT_TRUE(says("config.reloaded")) << process.stderr_text();
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"tag", "create", "orders"}, {"claim", "orders"}}) {
    ChildOptions idctl;
    idctl.argv = {IdctlBinary(), "--socket", dir_.File("alice/idd.sock")};
    idctl.argv.insert(idctl.argv.end(), command.begin(), command.end());
    idctl.identity = kAlice;
    ChildProcess run(idctl);
    EXPECT_EQ(run.WaitFor(Patience(10s)), 0) << run.stderr_text();
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.WaitFor(Patience(10s)), 0);
  // The same in the directory where the user is, by a variable.
  ChildOptions here;
  here.argv = {"/bin/sh", "-c", "cd \"$0\" && exec \"$1\"", dir_.File("alice"), IddBinary()};
  here.environment = {"IDD_DATABASE=sqlite:store"};
  here.identity = kAlice;
  ChildProcess again(here);
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] {
    return again.stderr_text().find("idd.ready") != std::string::npos;
  })) << again.stderr_text();
  again.Signal(SIGTERM);
  EXPECT_EQ(again.WaitFor(Patience(10s)), 0);
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
