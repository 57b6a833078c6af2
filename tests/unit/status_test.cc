// SPDX-License-Identifier: Apache-2.0
#include "idd/base/status.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"

namespace idd {
namespace {

TEST(StatusTest, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(Status::Ok().ok());
  EXPECT_EQ(Status().code(), Code::kOk);
  EXPECT_TRUE(Status().message().empty());
}

TEST(StatusTest, ErrorKeepsItsCodeAndSentence) {
  const Status status(Code::kDenied, "not yours");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_EQ(status.message(), "not yours");
}

TEST(StatusTest, ContextGoesBeforeTheSentence) {
  const Status status =
      Status(Code::kTimeout, "no ids").WithContext("tag 'a'").WithContext("claim");
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.message(), "claim: tag 'a': no ids");
}

TEST(StatusTest, ContextOfAnOkStatusChangesNothing) {
  const Status status = Status::Ok().WithContext("claim");
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(status.message().empty());
}

TEST(StatusTest, ErrnoIsPutIntoWords) {
  const Status status = Status::FromErrno(ENOENT, "opening x");
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_EQ(status.message(), "opening x: No such file or directory");
}

TEST(StatusTest, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (std::uint32_t code = 0; code <= static_cast<std::uint32_t>(Code::kSystem); ++code) {
    names.insert(CodeName(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), 9U);
  EXPECT_FALSE(names.contains("UNKNOWN"));
  EXPECT_STREQ(CodeName(Code::kOutOfIds), "OUT_OF_IDS");
  EXPECT_STREQ(CodeName(static_cast<Code>(9)), "UNKNOWN");
  EXPECT_STREQ(CodeName(static_cast<Code>(0xffffffff)), "UNKNOWN");
}

TEST(ResultTest, HoldsAValueOrTheReasonOfItsAbsence) {
  const Result<int> value = 7;
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value.value(), 7);
  EXPECT_TRUE(value.status().ok());
  const Result<int> error = Status(Code::kInvalid, "bad");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().message(), "bad");
}

TEST(ResultTest, GivesUpItsValueWhenMoved) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, MisuseEndsTheProcess) {
  EXPECT_DEATH(static_cast<void>(Result<int>(Status(Code::kInvalid, "bad")).value()),
               "check failed");
  EXPECT_DEATH(static_cast<void>(Result<int>(Status::Ok())), "check failed");
}

TEST(DeadlineTest, PassesAfterItsDelayAndNotBefore) {
  const Deadline past = Deadline::After(std::chrono::milliseconds(-5));
  EXPECT_TRUE(past.passed());
  EXPECT_EQ(past.remaining().count(), 0) << "never negative";
  const Deadline far = Deadline::After(std::chrono::hours(1));
  EXPECT_FALSE(far.passed());
  EXPECT_GT(far.remaining(), std::chrono::minutes(59));
  EXPECT_LE(far.remaining(), std::chrono::hours(1));
}

TEST(DeadlineTest, RemainingIsRoundedUpSoThatNoPollWaitsForZero) {
  const Deadline soon = Deadline::After(std::chrono::milliseconds(3));
  while (soon.remaining().count() > 0) {
  }
  EXPECT_TRUE(soon.passed()) << "it is zero only when the time has come";
}

TEST(DeadlineTest, EarlierOfTwoIsTheEarlier) {
  const Deadline near = Deadline::After(std::chrono::seconds(1));
  const Deadline far = Deadline::After(std::chrono::seconds(2));
  EXPECT_EQ(near.EarlierOf(far).at(), near.at());
  EXPECT_EQ(far.EarlierOf(near).at(), near.at());
}

TEST(ScopedFdTest, ClosesWhatItOwnsOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ScopedFd write_end(ends[1]);
  {
    ScopedFd read_end(ends[0]);
    ScopedFd moved = std::move(read_end);
    EXPECT_FALSE(
        read_end.valid());  // NOLINT(bugprone-use-after-move): that it is empty is the point.
    EXPECT_EQ(moved.get(), ends[0]);
  }
  EXPECT_EQ(::fcntl(ends[0], F_GETFD), -1);
  const int released = write_end.release();
  EXPECT_FALSE(write_end.valid());
  EXPECT_EQ(::close(released), 0) << "it was still open";
}

}  // namespace
}  // namespace idd
