// SPDX-License-Identifier: Apache-2.0
//
// The lease budget, and whose turn it is.
#include "leasing/lease_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "platform/event_loop.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;

TEST(LeaseBudgetTest, ATenthAtOnceAndThenItsRate) {
  LeaseBudget budget(100);
  MonotonicTime now = MonotonicTime{} + 1h;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.Take(now));
  EXPECT_FALSE(budget.Take(now));
  EXPECT_FALSE(budget.Take(now + 9ms));
  EXPECT_TRUE(budget.Take(now + 11ms));
  now += 1h;
  int taken = 0;
  while (budget.Take(now)) ++taken;
  EXPECT_EQ(taken, 10) << "no more is saved up";
}

TEST(LeaseBudgetTest, WhoWaitsUntilTheNextFindsIt) {
  LeaseBudget budget(1000);
  MonotonicTime now = MonotonicTime{} + 1h;
  while (budget.Take(now)) {
  }
  for (int i = 0; i < 1000; ++i) {
    const MonotonicTime next = budget.NextAt(now);
    EXPECT_GT(next, now);
    EXPECT_LE(next - now, 2ms);
    now = next;
    EXPECT_TRUE(budget.Take(now)) << i;
  }
}

class LeaseTurnsTest : public ::testing::Test {
 protected:
  // 10 a second, of which one at once.
  EventLoop loop_;
  std::map<std::string, std::uint64_t> wanted_;
  std::vector<std::string> started_;
  LeaseTurns turns_{loop_, 10, [this](const std::string& tag) { return wanted_[tag]; },
                    [this](const std::string& tag, std::uint64_t wanted) {
                      EXPECT_EQ(wanted, wanted_[tag]);
                      started_.push_back(tag);
                    }};
};

TEST_F(LeaseTurnsTest, FirstIsServedAtOnce) {
  wanted_["a"] = 5;
  turns_.Ask("a");
  EXPECT_THAT(started_, ElementsAre("a"));
  EXPECT_FALSE(turns_.Awaits("a"));
}

TEST_F(LeaseTurnsTest, OneThatAsksAllTheTimeKeepsTheOthersWaitingForOneLease) {
  wanted_ = {{"hog", 1000}, {"b", 1}, {"c", 1}};
  turns_.Ask("hog");
  for (int i = 0; i < 10; ++i) turns_.Ask("hog");
  turns_.Ask("b");
  for (int i = 0; i < 10; ++i) turns_.Ask("hog");
  turns_.Ask("c");
  EXPECT_TRUE(turns_.Awaits("hog"));
  const MonotonicTime began = MonotonicClock::now();
  loop_.RunUntilIdle();
  EXPECT_THAT(started_, ElementsAre("hog", "hog", "b", "c"));
  EXPECT_GE(MonotonicClock::now() - began, 250ms) << "three leases of the next three tenths";
}

TEST_F(LeaseTurnsTest, WhoWantsNothingAnyMoreCostsNothing) {
  wanted_ = {{"a", 1}, {"b", 1}, {"c", 1}};
  turns_.Ask("a");
  turns_.Ask("b");
  turns_.Ask("c");
  wanted_["b"] = 0;
  loop_.RunUntilIdle();
  EXPECT_THAT(started_, ElementsAre("a", "c"));
}

TEST_F(LeaseTurnsTest, NobodysTurnComesAfterTheEnd) {
  // One a second: the second tag's turn does not come while a busy machine is asking for it.
  LeaseTurns turns(
      loop_, 1, [](const std::string&) { return 1; },
      [this](const std::string& tag, std::uint64_t) { started_.push_back(tag); });
  const MonotonicTime began = MonotonicClock::now();
  turns.Ask("a");
  turns.Ask("b");
  turns.Stop();
  loop_.RunUntilIdle();
  if (MonotonicClock::now() - began < 1000ms) {
    EXPECT_THAT(started_, ElementsAre("a"));
  }
  EXPECT_FALSE(turns.Awaits("b"));
}

}  // namespace
}  // namespace idd::daemon
