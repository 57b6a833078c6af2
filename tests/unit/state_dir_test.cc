// SPDX-License-Identifier: Apache-2.0
#include "platform/state_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "support/child_exit.h"
#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

class StateDirTest : public ::testing::Test {
 protected:
  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  static std::string Contents(const std::string& path) {
    std::string text;
    std::ifstream in(path);
    std::getline(in, text);
    return text;
  }

  harness::TempDir dir_;
  const std::string state_ = dir_.File("state");
};

TEST_F(StateDirTest, MissingDirectoryIsMadeForTheOwnerAndItsGroup) {
  const mode_t old = ::umask(0);
  const Result<FileLock> lock = LockStateDir(state_);
  ::umask(old);
  ASSERT_TRUE(lock.ok()) << lock.status().message();
  EXPECT_EQ(ModeOf(state_), 0750U);
  EXPECT_EQ(ModeOf(state_ + "/idd.lock"), 0600U);
}

TEST_F(StateDirTest, LockFileNamesItsHolder) {
  const Result<FileLock> lock = LockStateDir(state_);
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(Contents(state_ + "/idd.lock"), std::to_string(::getpid()));
}

TEST_F(StateDirTest, SecondHolderIsRefusedWithTheFirstOnesPid) {
  const Result<FileLock> lock = LockStateDir(state_);
  ASSERT_TRUE(lock.ok());
  const Status status = LockStateDir(state_).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(std::to_string(::getpid())), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("another idd"), std::string::npos);
}

TEST_F(StateDirTest, AnotherProcessIsRefused) {
  const Result<FileLock> lock = LockStateDir(state_);
  ASSERT_TRUE(lock.ok());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(LockStateDir(state_).status().code() == Code::kUnavailable ? 0 : 1);
  EXPECT_EQ(harness::ExitOf(child), 0);
}

// Once the file was removed, a second idd started beside the first.
TEST_F(StateDirTest, RemovedLockFileLetsNoOtherIn) {
  const Result<FileLock> lock = LockStateDir(state_);
  ASSERT_TRUE(lock.ok());
  ASSERT_EQ(::unlink((state_ + "/idd.lock").c_str()), 0);
  const Status status = LockStateDir(state_).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("another idd uses this state directory"), std::string::npos);
}

TEST_F(StateDirTest, LockEndsWithItsObject) {
  {
    const Result<FileLock> lock = LockStateDir(state_);
    ASSERT_TRUE(lock.ok());
  }
  EXPECT_TRUE(LockStateDir(state_).ok());
}

TEST_F(StateDirTest, LockEndsWithAKilledHolder) {
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const ScopedFd ready_read(ready[0]);
  const ScopedFd ready_write(ready[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<FileLock> lock = LockStateDir(state_);
    if (!lock.ok() || ::write(ready_write.get(), "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready_read.get(), &byte, 1), 1);
  const Status held = LockStateDir(state_).status();
  EXPECT_EQ(held.code(), Code::kUnavailable);
  EXPECT_NE(held.message().find(std::to_string(child)), std::string::npos) << held.message();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(LockStateDir(state_).ok());
}

TEST_F(StateDirTest, ClosingAnotherDescriptorOfTheFileKeepsTheLock) {
  const Result<FileLock> lock = LockStateDir(state_);
  ASSERT_TRUE(lock.ok());
  Contents(state_ + "/idd.lock");  // opens and closes it: a POSIX record lock would be gone
  EXPECT_EQ(LockStateDir(state_).status().code(), Code::kUnavailable);
}

TEST_F(StateDirTest, ImpossiblePlacesAreSystemErrors) {
  EXPECT_EQ(LockStateDir(dir_.File("no/parent")).status().code(), Code::kSystem);
  std::ofstream(dir_.File("file")) << "x";
  EXPECT_EQ(LockStateDir(dir_.File("file")).status().code(), Code::kSystem);
}

TEST_F(StateDirTest, LockFileThatIsALinkIsNotFollowed) {
  ASSERT_EQ(::mkdir(state_.c_str(), 0750), 0);
  std::ofstream(dir_.File("victim")) << "precious";
  ASSERT_EQ(::symlink(dir_.File("victim").c_str(), (state_ + "/idd.lock").c_str()), 0);
  EXPECT_EQ(LockStateDir(state_).status().code(), Code::kSystem);
  EXPECT_EQ(Contents(dir_.File("victim")), "precious");
}

}  // namespace
}  // namespace idd::daemon
