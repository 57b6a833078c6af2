// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/lost_commits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::SizeIs;
constexpr MonotonicTime kNow = MonotonicTime{} + 1h;

TEST(LostCommitsTest, StatementsAbandonWhatIsActiveAndAskForWhatHasEnded) {
  LostCommits lost;
  EXPECT_TRUE(lost.empty());
  lost.Add({"token-a", "token-b"}, kNow);
  const auto statements = lost.Statements("host-1");
  ASSERT_THAT(statements, SizeIs(2));
  EXPECT_THAT(statements[0], HasSubstr("SET state = 'abandoned', abandoned = `limit` - base"));
  EXPECT_THAT(statements[0], HasSubstr("AND state = 'active'"));
  EXPECT_THAT(statements[1], HasSubstr("SELECT token"));
  EXPECT_THAT(statements[1], HasSubstr("AND state <> 'active'"));
  for (const auto& statement : statements) {
    EXPECT_THAT(statement, HasSubstr("host = _utf8mb4'host-1'"));
    EXPECT_THAT(statement, HasSubstr("token-a"));
    EXPECT_THAT(statement, HasSubstr("token-b"));
  }
}

TEST(LostCommitsTest, WhatHasEndedIsForgottenAndTheRestIsAskedForAgain) {
  LostCommits lost;
  lost.Add({"token-a", "token-b"}, kNow);
  lost.Forget({"token-a"}, kNow + 1s);
  EXPECT_THAT(lost.Statements("h")[0], Not(HasSubstr("token-a")));
  EXPECT_THAT(lost.Statements("h")[0], HasSubstr("token-b"));
  lost.Forget({"token-b"}, kNow + 2s);
  EXPECT_TRUE(lost.empty());
}

// The statement may still be running at the server.
TEST(LostCommitsTest, WhatIsNotInTheJournalIsAskedForAgainForTwoMinutes) {
  LostCommits lost;
  lost.Add({"token-a"}, kNow);
  lost.Forget({}, kNow + 120s);
  EXPECT_FALSE(lost.empty());
  lost.Add({"token-b"}, kNow + 120s);
  lost.Forget({}, kNow + 121s);
  EXPECT_THAT(lost.Statements("h")[0], Not(HasSubstr("token-a")));
  EXPECT_THAT(lost.Statements("h")[0], HasSubstr("token-b"));
}

}  // namespace
}  // namespace idd::daemon
