// SPDX-License-Identifier: Apache-2.0
#include "platform/descriptor_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <vector>

#include "idd/base/scoped_fd.h"

namespace idd::daemon {
namespace {

// This process has the limit while an object lives.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t limit) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit low{limit, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~SoftLimit() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;

 private:
  rlimit before_{};
};

bool Says(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

// Regression: with LimitNOFILE=40 and 17 tags a restart succeeded, and no client could connect.
TEST(DescriptorLimitTest, InheritedRingsThatLeaveNoRoomAreReportedWithTheLimitThatTheyNeed) {
  const SoftLimit limit(40);
  const Status status = CheckRoomToStart(2 * 17 + 1);
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_TRUE(Says(status, "the limit of descriptors, 40, is too low for the 35 of"))
      << status.message();
  EXPECT_TRUE(Says(status, "raise LimitNOFILE=")) << status.message();
  EXPECT_TRUE(Says(status, "here 75")) << status.message();
  const SoftLimit enough(75);
  EXPECT_TRUE(CheckRoomToStart(2 * 17 + 1).ok());
}

TEST(DescriptorLimitTest, StartThatInheritsNothingNeedsRoomForItsOwnFilesAndSomeConnections) {
  const SoftLimit enough(40);
  EXPECT_TRUE(CheckRoomToStart(0).ok());
  const SoftLimit low(39);
  EXPECT_TRUE(Says(CheckRoomToStart(0), "raise LimitNOFILE=")) << CheckRoomToStart(0).message();
}

TEST(DescriptorLimitTest, RingMustLeaveDescriptorsForConnections) {
  const SoftLimit limit(64);
  EXPECT_TRUE(CheckRoomBeside(40).ok());
  const Status status = CheckRoomBeside(50);
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_TRUE(Says(status, "LimitNOFILE=")) << status.message();
}

TEST(DescriptorLimitTest, ShortageIsReportedOnlyWhileThereIsOne) {
  EXPECT_EQ(DescriptorShortage(), "");
  std::vector<ScopedFd> all;
  const SoftLimit limit(64);
  while (true) {
    all.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!all.back().valid()) break;
  }
  EXPECT_NE(DescriptorShortage().find("raise the limit of descriptors"), std::string::npos);
  EXPECT_TRUE(Says(Status::FromErrno(EMFILE, "accept"), "accept: Too many open files; raise"));
  EXPECT_TRUE(Says(Status::FromErrno(ENFILE, "accept"), "sysctl fs.file-max"));
  all.clear();
  EXPECT_EQ(DescriptorShortage(), "");
}

}  // namespace
}  // namespace idd::daemon
