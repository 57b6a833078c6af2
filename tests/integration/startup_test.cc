// SPDX-License-Identifier: Apache-2.0
//
// Starting and ending idd: what it must not take from others, and how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "support/host.h"
#include "support/raw_connection.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

class Startup : public ::testing::Test {
 protected:
  [[nodiscard]] ino_t SocketInode() const {
    struct stat info {};
    RequireErrno(::lstat(host_.daemon.socket().c_str(), &info) == 0, "lstat the socket");
    return info.st_ino;
  }

  // The first one continues undisturbed.
  void ExpectFirstIsUnharmed(ino_t inode) {
    EXPECT_EQ(SocketInode(), inode);
    EXPECT_EQ(host_.idctl.Claim("orders").size(), 1U);
    EXPECT_TRUE(host_.daemon.process().Running());
  }

  const TempDir dir_;
  CleanHost host_{dir_};
};

TEST_F(Startup, SaysThatItIsReady) {
  host_.daemon.Start();
  EXPECT_TRUE(host_.daemon.WaitForLogLine("ready", 0, Patience(2s))) << host_.daemon.Log();
  host_.daemon.Stop();
  EXPECT_FALSE(Exists(host_.daemon.socket()));
}

TEST_F(Startup, EndsCleanlyOnSigintToo) {
  host_.daemon.Start();
  host_.daemon.Signal(SIGINT);
  EXPECT_EQ(host_.daemon.process().WaitFor(Patience(10s)), 0);
}

TEST_F(Startup, SighupDoesNotEndIt) {
  host_.StartWithTag("orders", 10);
  const std::size_t mark = host_.daemon.LogMark();
  host_.daemon.Signal(SIGHUP);
  EXPECT_TRUE(host_.daemon.WaitForLogLine("reload|sighup", mark, Patience(5s)))
      << host_.daemon.Log();
  EXPECT_EQ(host_.idctl.Claim("orders", 30).size(), 30U);
  host_.daemon.Stop();
}

// The lock file got number 2, and messages were written into it.
TEST_F(Startup, ClosedStandardDescriptorsAreTakenByNoFileOfIdd) {
  const DaemonOptions& options = host_.daemon.options();
  ChildProcess idd({.argv = {"/bin/sh", "-c", R"(exec "$@" <&- >&- 2>&-)", "sh", IddBinary(),
                             "--socket", options.socket, "--state-dir", options.state_dir,
                             "--database", "sqlite:" + options.database},
                    .environment = {}});
  ASSERT_TRUE(
      WaitUntil(Patience(10s), [this] { return host_.idctl.Run({"status"}).exit_status == 0; }));
  for (const char* fd : {"0", "1", "2"}) {
    const std::string link = "/proc/" + std::to_string(idd.pid()) + "/fd/" + fd;
    EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/null");
  }
  EXPECT_EQ(ReadFile(options.state_dir + "/idd.lock"), std::to_string(idd.pid()) + "\n");
  idd.Signal(SIGTERM);
  EXPECT_EQ(idd.WaitFor(Patience(10s)), 0);
}

TEST_F(Startup, SecondInstanceOnTheSameStateDirIsRefused) {
  host_.StartWithTag("orders", 10);
  const ino_t inode = SocketInode();
  Host second(dir_, "second");
  second.daemon.options().state_dir = host_.daemon.options().state_dir;
  EXPECT_EQ(second.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_THAT(second.daemon.Log(), HasSubstr(host_.daemon.options().state_dir));
  EXPECT_FALSE(Exists(second.daemon.socket()));
  ExpectFirstIsUnharmed(inode);
}

TEST_F(Startup, SecondInstanceOnTheSameSocketIsRefused) {
  host_.StartWithTag("orders", 10);
  const ino_t inode = SocketInode();
  Host second(dir_, "second");
  second.daemon.options().socket = host_.daemon.socket();
  EXPECT_EQ(second.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_THAT(second.daemon.Log(), HasSubstr(host_.daemon.socket()));
  ExpectFirstIsUnharmed(inode);
}

// A stopped daemon does not answer, but its socket is alive.
TEST_F(Startup, SocketOfAStoppedInstanceIsNotTaken) {
  host_.StartWithTag("orders", 10);
  const ino_t inode = SocketInode();
  host_.daemon.Signal(SIGSTOP);
  Host second(dir_, "second");
  second.daemon.options().socket = host_.daemon.socket();
  EXPECT_EQ(second.daemon.LaunchAndWait(Patience(10s)), 1) << second.daemon.Log();
  host_.daemon.Signal(SIGCONT);
  ExpectFirstIsUnharmed(inode);
}

// No idd holds a lock there, but another program listens.
TEST_F(Startup, LiveSocketOfAnotherProgramIsNotTaken) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const ScopedFd listener = ListenAt(host_.daemon.socket(), type);
    const ino_t inode = SocketInode();
    EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1) << host_.daemon.Log();
    EXPECT_THAT(host_.daemon.Log(), HasSubstr(host_.daemon.socket()));
    EXPECT_EQ(SocketInode(), inode);
    ::unlink(host_.daemon.socket().c_str());
  }
}

TEST_F(Startup, StaleSocketOfADeadInstanceIsReplaced) {
  host_.StartWithTag("orders", 10);
  host_.daemon.Kill();
  ASSERT_TRUE(Exists(host_.daemon.socket()));
  host_.daemon.Start();
  EXPECT_EQ(host_.idctl.Claim("orders").size(), 1U);
}

TEST_F(Startup, RegularFileAtTheSocketPathIsRefusedAndKept) {
  WriteFile(host_.daemon.socket(), "precious");
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr(host_.daemon.socket()));
  EXPECT_EQ(ReadFile(host_.daemon.socket()), "precious");
  EXPECT_THAT(host_.daemon.Log(), Not(HasSubstr("store.up")));
  EXPECT_FALSE(Exists(host_.daemon.options().database)) << "before the store is opened";
}

TEST_F(Startup, DirectoryAtTheSocketPathIsRefusedBeforeTheStoreIsTouched) {
  RequireErrno(::mkdir(host_.daemon.socket().c_str(), 0700) == 0, "mkdir");
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("is not a socket; it is left alone"));
  EXPECT_FALSE(Exists(host_.daemon.options().database));
}

TEST_F(Startup, SymbolicLinkAtTheSocketPathIsNotFollowed) {
  WriteFile(dir_.File("target"), "precious");
  RequireErrno(::symlink(dir_.File("target").c_str(), host_.daemon.socket().c_str()) == 0,
               "symlink");
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1) << host_.daemon.Log();
  EXPECT_EQ(ReadFile(dir_.File("target")), "precious");
}

// Regression: a missing directory was reported as a lock file that could not be opened.
TEST_F(Startup, MissingDirectoryIsNamedForEachPath) {
  const std::string wrong = "directory '" + dir_.File("none") + "' does not exist; create it";
  const auto log_of = [&](const std::function<void(DaemonOptions&)>& change) {
    Host host(dir_, "other");
    change(host.daemon.options());
    EXPECT_EQ(host.daemon.LaunchAndWait(Patience(5s)), 1);
    return host.daemon.Log();
  };
  EXPECT_THAT(
      log_of([&](DaemonOptions& o) { o.socket = dir_.File("none/idd.sock"); }),
      ::testing::AllOf(HasSubstr("cannot listen at the socket " + dir_.File("none/idd.sock")),
                       HasSubstr(wrong)));
  EXPECT_THAT(log_of([&](DaemonOptions& o) { o.state_dir = dir_.File("none/state"); }),
              ::testing::AllOf(HasSubstr("cannot make the state directory"), HasSubstr(wrong)));
  WriteFile(dir_.File("file"), "");
  EXPECT_THAT(log_of([&](DaemonOptions& o) { o.state_dir = dir_.File("file"); }),
              HasSubstr("a file has that name"));
  EXPECT_THAT(log_of([&](DaemonOptions& o) { o.socket = dir_.File("file/idd.sock"); }),
              HasSubstr("'" + dir_.File("file") + "' is not a directory"));
  host_.daemon.options().database = dir_.File("none/idd.db");
  host_.daemon.options().more_arguments = {"--metrics-textfile", dir_.File("none/idd.prom")};
  host_.daemon.Start();
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.down.*" + wrong, 0, Patience(5s)));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("metrics.textfile_failed.*" + wrong, 0, Patience(5s)));
}

TEST_F(Startup, IncarnationAndSchemaAreWrittenOnceOnly) {
  host_.StartWithTag("orders", 10);
  host_.daemon.Stop();
  const std::string schema =
      host_.Database().QueryText("SELECT group_concat(sql, ';') FROM sqlite_schema");
  host_.daemon.Start();
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().QueryText("SELECT group_concat(sql, ';') FROM sqlite_schema"), schema);
}

// Leaf's own statements must work on the table.
TEST_F(Startup, LeafAllocHasLeafsColumns) {
  host_.daemon.Start();
  host_.idctl.Do({"tag", "create", "orders", "--step", "10", "--description", "order ids"});
  SqliteFile database = host_.Database();
  EXPECT_EQ(database.QueryText("SELECT group_concat(name) FROM pragma_table_info('leaf_alloc')"),
            "biz_tag,max_id,step,description,update_time");
  database.Execute("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'orders'");
  EXPECT_EQ(database.QueryText("SELECT biz_tag || max_id || step || description FROM leaf_alloc"),
            "orders1110order ids");
  EXPECT_EQ(database.QueryText("PRAGMA journal_mode"), "wal");
  // Leaf took [1, 11).
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 11U);
}

}  // namespace
}  // namespace idd::harness
