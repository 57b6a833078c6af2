// SPDX-License-Identifier: Apache-2.0
#include "platform/bounded_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

TEST(BoundedCallTest, CallThatEndsIsDone) {
  const auto answer = std::make_shared<int>(0);
  EXPECT_TRUE(RunWithin(harness::Patience(30s), "the call", [answer] { *answer = 7; }).ok());
  EXPECT_EQ(*answer, 7);
}

TEST(BoundedCallTest, CallThatHangsIsGivenUpAndNotRepeatedUntilItEnds) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto hang = [opened = std::shared_future<void>(gate->get_future())] { opened.wait(); };
  const Status hung = RunWithin(10ms, "the call", hang);
  EXPECT_EQ(hung.code(), Code::kUnavailable);
  EXPECT_THAT(hung.message(), HasSubstr("the call has not ended within 10 ms"));
  EXPECT_THAT(RunWithin(1ms, "the call", hang).message(), HasSubstr("began earlier"));
  EXPECT_TRUE(RunWithin(harness::Patience(30s), "another call", [] {}).ok());
  gate->set_value();
  EXPECT_TRUE(harness::WaitUntil(harness::Patience(30s), [&] {
    return RunWithin(harness::Patience(30s), "the call", [] {}).ok();
  }));
}

TEST(BoundedCallDeathTest, ProcessThatDoesNotEndIsEnded) {
  EXPECT_EXIT(
      {
        EndProcessWithin(10ms, 7);
        for (;;) ::pause();
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace idd::daemon
