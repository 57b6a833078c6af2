// SPDX-License-Identifier: Apache-2.0
//
// Which worker id a host takes, and which window of time it leases.
#include "leasing/snowflake_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "refill/snowflake_policy.h"
#include "support/fake_marks.h"
#include "support/fake_store.h"

namespace idd::daemon {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kClock = 1'800'000'000'000;

class WindowTest : public ::testing::Test {
 protected:
  WindowTest() { store_.AddSnowflake("t", layout_); }

  Result<WindowPlan> Plan(const std::string& counter, std::uint64_t floor = 0,
                          std::int64_t unix_ms = kClock) {
    const Result<TagRecord> tag = store_.FindTag("t");
    return PlanWindow({.tag = "t", .counter = counter, .token = "token", .floor = floor},
                      tag.value(), unix_ms, store_, marks_);
  }
  // The counter that the host is sent to.
  std::string Taken(std::uint64_t floor = 0, std::int64_t unix_ms = kClock) {
    const Result<WindowPlan> plan = Plan("", floor, unix_ms);
    return plan.ok() ? plan.value().counter : plan.status().message();
  }
  [[nodiscard]] std::uint64_t At(std::int64_t unix_ms) const {
    return layout_.FirstOf(layout_.TimeAt(unix_ms));
  }

  SnowflakeLayout layout_{.time_bits = 41, .worker_bits = 2, .sequence_bits = 12};
  FakeStore store_;
  FakeMarks marks_;
};

TEST_F(WindowTest, HostWithoutAWorkerIdTakesTheLowestThatWasNeverUsed) {
  store_.OwnWorker("t", 0, "other", At(kClock) + 1);
  EXPECT_EQ(Taken(), "t#1");
  EXPECT_EQ(Taken(), "t#1") << "it is this host's now";
}

TEST_F(WindowTest, HostThatComesBackTakesItsOwnWorkerIdUnlessThatIsTooFarAhead) {
  store_.OwnWorker("t", 0, "other", At(kClock) - 1);
  store_.OwnWorker("t", 1, FakeStore::kHost, At(kClock - 5000));
  store_.OwnWorker("t", 2, FakeStore::kHost, At(kClock + 1000));
  EXPECT_EQ(Taken(), "t#2") << "the one that it used last";
  EXPECT_EQ(Taken(0, kClock - 1), "t#1");
  EXPECT_EQ(Taken(0, kClock - 7000), "t#3") << "both are ahead by more than max_ahead";
}

TEST_F(WindowTest, WorkerIdOfAnotherHostIsTakenOnceAllItsWindowsAreOver) {
  for (std::uint32_t worker = 0; worker < 4; ++worker) {
    store_.OwnWorker("t", worker, "other", At(kClock + 1000 + worker));
  }
  const Result<WindowPlan> plan = Plan("");
  EXPECT_EQ(plan.status().code(), Code::kUnavailable);
  EXPECT_THAT(plan.status().message(), HasSubstr("all 4 worker ids are in use; the first is free "
                                                 "at 2027-01-15T08:00:01.000Z"));
  EXPECT_EQ(store_.script.Count("TakeWorker"), 0);
  EXPECT_EQ(Taken(0, kClock + 999), Plan("", 0, kClock + 999).status().message());
  EXPECT_EQ(Taken(0, kClock + 1000), "t#0");
}

TEST_F(WindowTest, WindowBeginsWhereTheClockIsAndLastsForTheTolerance) {
  const std::string counter = Taken();
  const Result<WindowPlan> plan = Plan(counter);
  ASSERT_TRUE(plan.ok() && plan.value().request.has_value()) << plan.status().message();
  EXPECT_EQ(plan.value().request->floor, At(kClock));
  EXPECT_EQ(plan.value().request->count, layout_.FirstOf(600'000));
  EXPECT_TRUE(plan.value().request->is_of_worker);
}

TEST_F(WindowTest, NextWindowContinuesTheOneThatIsHeldEvenIfTheClockWasSetBack) {
  store_.OwnWorker("t", 0, FakeStore::kHost, At(kClock + 450'000));
  const std::uint64_t floor = At(kClock + 450'000);
  const Result<WindowPlan> plan = Plan("t#0", floor);
  ASSERT_TRUE(plan.ok() && plan.value().request.has_value());
  EXPECT_EQ(plan.value().request->floor, floor);
  EXPECT_EQ(plan.value().request->count, layout_.FirstOf(150'000));
  const Result<WindowPlan> back = Plan("t#0", floor, kClock - 3'600'000);
  ASSERT_TRUE(back.ok() && back.value().request.has_value());
  EXPECT_EQ(back.value().request->floor, floor);
}

TEST_F(WindowTest, NothingBelowTheMarkIsLeased) {
  store_.OwnWorker("t", 0, FakeStore::kHost, 1);
  ASSERT_TRUE(marks_.RaiseAll({{.tag = "t#0", .mark = At(kClock + 500) + 7}}).ok());
  const Result<WindowPlan> plan = Plan("t#0");
  ASSERT_TRUE(plan.ok() && plan.value().request.has_value());
  EXPECT_EQ(plan.value().request->floor, At(kClock + 501)) << "the next whole time";
  ASSERT_TRUE(marks_.RaiseAll({{.tag = "t#0", .mark = At(kClock + 5000)}}).ok());
  EXPECT_EQ(Plan("t#0").value().counter, "t#1");
}

TEST_F(WindowTest, WorkerIdThatTheStoreDoesNotGiveIsNotChosenAgain) {
  store_.OwnWorker("t", 0, FakeStore::kHost, At(kClock - 10));
  store_.RefuseWorker(0);
  EXPECT_EQ(Taken(), "t#1");
  EXPECT_EQ(store_.script.Count("TakeWorker"), 2);
}

// A failover lifts every counter to its ceiling.
TEST_F(WindowTest, WorkerIdWhoseCounterWasLiftedIsLeftOnceTheHeldWindowIsNearlyOver) {
  store_.OwnWorker("t", 0, FakeStore::kHost, At(kClock + 86'400'000));
  const Result<WindowPlan> early = Plan("t#0", At(kClock + 5000));
  ASSERT_TRUE(early.ok());
  EXPECT_GT(early.value().not_before, MonotonicClock::now());
  EXPECT_TRUE(early.value().counter.empty());
  const Result<WindowPlan> late = Plan("t#0", At(kClock + 1000));
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(late.value().counter, "t#1");
  const Result<WindowPlan> next = Plan("t#1", At(kClock + 1000));
  ASSERT_TRUE(next.ok() && next.value().request.has_value());
  EXPECT_EQ(next.value().request->floor, At(kClock + 1000)) << "ids of the host rise";
}

TEST_F(WindowTest, WorkerIdThatAnotherHostHasTakenOverIsLeft) {
  store_.OwnWorker("t", 0, "other", At(kClock - 10));
  EXPECT_EQ(Plan("t#0").value().counter, "t#1");
  EXPECT_EQ(Plan("unknown#0").value().counter, "t#1");
}

TEST_F(WindowTest, ClockThatIsFarAheadOfTheStoresIsRefused) {
  store_.SetClock(StoreFacts::Clock{.store_ms = kClock - 60'000});
  const Result<WindowPlan> plan = Plan("");
  EXPECT_EQ(plan.status().code(), Code::kUnavailable);
  EXPECT_THAT(plan.status().message(), HasSubstr("clock is 60000 ms ahead of the store's"));
  store_.SetClock(StoreFacts::Clock{.store_ms = kClock + 60'000});
  EXPECT_EQ(Taken(), "t#0") << "a clock that is behind makes no window useless";
  store_.SetClock(StoreFacts::Clock{.store_ms = kClock - 60'000});
  EXPECT_EQ(Plan("t#0").status().code(), Code::kUnavailable) << "the clock jumped meanwhile";
  store_.SetClock(StoreFacts::Clock{.ahead_ms = 0, .store_ms = kClock - 60'000});
  EXPECT_EQ(Plan("").status().code(), Code::kUnavailable) << "it was set right after it was read";
  const std::uint64_t held = At(kClock + 100'000);
  store_.OwnWorker("t", 0, FakeStore::kHost, held);
  EXPECT_TRUE(Plan("t#0", held).ok()) << "the window that is held is continued";
}

TEST_F(WindowTest, TimeBeforeTheEpochAndAfterTheLastBitIsRefused) {
  EXPECT_EQ(Plan("", 0, layout_.epoch_ms - 1).status().code(), Code::kUnavailable);
  const Result<WindowPlan> late = Plan("", 0, layout_.end_ms());
  EXPECT_EQ(late.status().code(), Code::kOutOfIds);
  EXPECT_THAT(late.status().message(), HasSubstr("used up at " + UtcText(layout_.end_ms())));
}

TEST_F(WindowTest, PolicyLeasesTimeWhileTheTagIsUsed) {
  using std::chrono::milliseconds;
  const SnowflakePolicy policy{RefillSettings{}};
  RefillView view;
  EXPECT_EQ(policy.Wanted(view), 0U) << "nobody uses it";
  view.time = {.held = milliseconds(0), .is_new = true};
  EXPECT_EQ(policy.Wanted(view), 1U);
  view.time = {.held = milliseconds(450'001), .is_used = true};
  EXPECT_EQ(policy.Wanted(view), 0U);
  view.time.held = milliseconds(450'000);
  EXPECT_EQ(policy.Wanted(view), 1U) << "a quarter of the window is over";
  view.time.is_used = false;
  EXPECT_EQ(policy.Wanted(view), 0U);
  view.waiting = 1;
  EXPECT_EQ(policy.Wanted(view), 1U);
  view.time.held = milliseconds(599'000);
  EXPECT_EQ(policy.Wanted(view), 0U) << "it waits for the clock";
  view.time.is_dry = true;
  EXPECT_EQ(policy.Wanted(view), 1U);
}

}  // namespace
}  // namespace idd::daemon
