// SPDX-License-Identifier: Apache-2.0
#include "leasing/lease_worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/service_harness.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

class LeaseWorkerTest : public ::testing::Test {
 protected:
  LeaseWorkerTest() {
    h_.Start([this](const StoreHealth& health) { healths_.push_back(health); });
  }
  ~LeaseWorkerTest() override { h_.store.script.Release(); }

  // Runs one job that returns the result of the store's FindTag, and returns its status.
  Status RunJob() {
    Status outcome;
    bool done = false;
    h_.worker.Submit<TagRecord>(
        [this](Store& store, HighWaterMarks&) {
          ++jobs_run_;
          return store.FindTag("orders");
        },
        [&](const Result<TagRecord>& result) {
          outcome = result.status();
          done = true;
        });
    EXPECT_TRUE(h_.RunUntil([&] { return done; }));
    return outcome;
  }
  // Makes one call of the store fail, after the pause for the previous failure.
  void FailOnce() {
    if (!healths_.empty()) std::this_thread::sleep_until(healths_.back().next_try);
    h_.store.script.Fail("FindTag", {Code::kUnavailable, "gone"});
    EXPECT_EQ(RunJob().code(), Code::kUnavailable);
  }

  WorkerHarness h_;
  std::vector<StoreHealth> healths_;
  std::atomic<int> jobs_run_{0};
};

TEST_F(LeaseWorkerTest, JobsRunOneAfterTheOtherAndCompleteInTheirOrder) {
  std::vector<int> ran;
  std::vector<int> completed;
  std::atomic<int> inside{0};
  for (int i = 0; i < 200; ++i) {
    h_.worker.Submit<int>(
        [&, i](Store&, HighWaterMarks&) -> Result<int> {
          EXPECT_EQ(++inside, 1);
          ran.push_back(i);
          --inside;
          return i;
        },
        [&](const Result<int>& result) { completed.push_back(result.value()); });
  }
  ASSERT_TRUE(h_.RunUntil([&] { return completed.size() == 200; }));
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(completed[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(LeaseWorkerTest, NoJobRunsOnTheSubmittersThreadNorCompletesOnTheWorkers) {
  std::thread::id ran;
  std::thread::id completed;
  bool done = false;
  h_.worker.Submit<bool>(
      [&](Store&, HighWaterMarks&) -> Result<bool> {
        ran = std::this_thread::get_id();
        return true;
      },
      [&](const Result<bool>&) {
        completed = std::this_thread::get_id();
        done = true;
      });
  ASSERT_TRUE(h_.RunUntil([&] { return done; }));
  EXPECT_NE(ran, std::this_thread::get_id());
  EXPECT_EQ(completed, std::this_thread::get_id());
}

TEST_F(LeaseWorkerTest, StoreIsOpenedOnceForManyJobs) {
  h_.store.AddTag("orders", 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(RunJob().ok());
  EXPECT_EQ(h_.store.script.Count("Open"), 1);
  EXPECT_EQ(h_.store.script.calls().front(), "Open");
}

TEST_F(LeaseWorkerTest, JobIsNotRunWhenTheStoreCannotBeOpened) {
  h_.store.script.Fail("Open", {Code::kUnavailable, "no route"});
  const Status status = RunJob();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "no route");
  EXPECT_EQ(jobs_run_, 0);
}

TEST_F(LeaseWorkerTest, HealthIsReportedBeforeTheCompletionThatNoticedIt) {
  bool told_first = false;
  bool done = false;
  h_.worker.Submit<bool>([](Store&, HighWaterMarks&) -> Result<bool> { return true; },
                         [&](const Result<bool>&) {
                           told_first = healths_.size() == 1 && healths_[0].up;
                           done = true;
                         });
  ASSERT_TRUE(h_.RunUntil([&] { return done; }));
  EXPECT_TRUE(told_first);
  h_.store.AddTag("orders", 10);
  EXPECT_TRUE(RunJob().ok());
  EXPECT_EQ(healths_.size(), 1U) << "only changes must be reported";
}

TEST_F(LeaseWorkerTest, AnAnswerIsHealthWhateverItSays) {
  EXPECT_EQ(RunJob().code(), Code::kNoSuchTag);
  ASSERT_EQ(healths_.size(), 1U);
  EXPECT_TRUE(healths_[0].up);
  for (const Code code : {Code::kOutOfIds, Code::kInvalid, Code::kTimeout}) {
    h_.store.script.Fail("FindTag", {code, "of this tag"});
    EXPECT_EQ(RunJob().code(), code);
  }
  EXPECT_EQ(healths_.size(), 1U);
}

TEST_F(LeaseWorkerTest, WhateverKeepsTheStoreFromOpeningIsItsFailure) {
  h_.store.script.Fail("Open", {Code::kInvalid, "the server refuses a statement"});
  EXPECT_EQ(RunJob().code(), Code::kUnavailable);
  ASSERT_EQ(healths_.size(), 1U);
  EXPECT_FALSE(healths_[0].up);
  EXPECT_EQ(healths_[0].last_error, "the server refuses a statement");
}

TEST_F(LeaseWorkerTest, AStoreThatIsDownIsLeftAlone) {
  int failed_at_once = 0;
  // Each failure makes the pause longer, so even a slow machine gets a job into one.
  while (failed_at_once == 0 && healths_.size() < 10) {
    FailOnce();
    ASSERT_FALSE(healths_.back().up);
    EXPECT_EQ(healths_.back().last_error, "gone");
    const std::size_t calls = h_.store.script.calls().size();
    const std::size_t told = healths_.size();
    while (MonotonicClock::now() + milliseconds(20) < healths_.back().next_try) {
      const Status status = RunJob();
      if (MonotonicClock::now() >= healths_[told - 1].next_try) break;  // too slow for this check
      EXPECT_EQ(status.code(), Code::kUnavailable);
      EXPECT_EQ(status.message(), "the store is down; last error: gone");
      EXPECT_EQ(h_.store.script.calls().size(), calls) << "a call was made in the pause";
      EXPECT_EQ(healths_.size(), told) << "an untried job must not change the health";
      ++failed_at_once;
    }
  }
  EXPECT_GT(failed_at_once, 0);
}

TEST_F(LeaseWorkerTest, StoreIsTriedAndOpenedAgainAfterThePause) {
  h_.store.AddTag("orders", 10);
  FailOnce();
  std::this_thread::sleep_until(healths_.back().next_try);
  EXPECT_TRUE(RunJob().ok());
  EXPECT_TRUE(healths_.back().up);
  EXPECT_TRUE(healths_.back().last_error.empty());
  EXPECT_EQ(h_.store.script.Count("Open"), 2);
}

TEST_F(LeaseWorkerTest, PausesDoubleFromFiftyMillisecondsToOneSecondJittered) {
  const milliseconds longest[] = {milliseconds(50),  milliseconds(100), milliseconds(200),
                                  milliseconds(400), milliseconds(800), milliseconds(1000)};
  for (const milliseconds pause : longest) {
    if (!healths_.empty()) std::this_thread::sleep_until(healths_.back().next_try);
    const MonotonicTime before = MonotonicClock::now();
    FailOnce();
    const MonotonicTime after = MonotonicClock::now();
    EXPECT_GE(healths_.back().next_try - before, pause / 2) << pause.count();
    EXPECT_LE(healths_.back().next_try - after, pause) << pause.count();
  }
  EXPECT_EQ(healths_.size(), std::size(longest)) << "each failure is reported with its next try";
  for (const StoreHealth& health : healths_) {
    EXPECT_EQ(health.since, healths_.front().since) << "down since the first";
  }
}

TEST_F(LeaseWorkerTest, OneSuccessMakesThePauseShortAgain) {
  h_.store.AddTag("orders", 10);
  for (int i = 0; i < 3; ++i) FailOnce();
  std::this_thread::sleep_until(healths_.back().next_try);
  ASSERT_TRUE(RunJob().ok());
  FailOnce();
  EXPECT_LE(healths_.back().next_try - MonotonicClock::now(), milliseconds(50));
}

TEST_F(LeaseWorkerTest, StopFinishesWhatWasSubmitted) {
  h_.store.script.Hold("FindTag");
  std::atomic<int> ran{0};
  for (int i = 0; i < 20; ++i) {
    h_.worker.Submit<bool>(
        [&ran](Store& store, HighWaterMarks&) -> Result<bool> {
          static_cast<void>(store.FindTag("orders"));
          ++ran;
          return true;
        },
        [](const Result<bool>&) {});
  }
  h_.store.script.Release();
  h_.worker.Stop();
  EXPECT_EQ(ran, 20);
}

TEST_F(LeaseWorkerTest, DatabaseIsNeverCreatedWhereIdsWereGranted) {
  h_.store.AddTag("orders", 10);
  EXPECT_TRUE(RunJob().ok());
  EXPECT_TRUE(h_.store.may_create()) << "the first start of all";
  ASSERT_TRUE(h_.marks.SetIncarnation("0123456789abcdef").ok());
  ASSERT_TRUE(h_.marks.SetDatabase("elsewhere:").ok());
  const auto open_again = [this] {
    FailOnce();
    std::this_thread::sleep_until(healths_.back().next_try);
    EXPECT_TRUE(RunJob().ok());
  };
  open_again();
  EXPECT_TRUE(h_.store.may_create()) << "none was granted from the one that is known";
  ASSERT_TRUE(h_.marks.Raise("orders", 11).ok());
  open_again();
  EXPECT_FALSE(h_.store.may_create());
}

TEST_F(LeaseWorkerTest, DatabaseIsNeverCreatedWhereThisHostHasHadOne) {
  h_.store.AddTag("orders", 10);
  ASSERT_TRUE(h_.marks.SetIncarnation("0123456789abcdef").ok());
  ASSERT_TRUE(h_.marks.SetDatabase(h_.store.DisplayUrl()).ok());
  EXPECT_TRUE(RunJob().ok());
  EXPECT_FALSE(h_.store.may_create());
}

TEST_F(LeaseWorkerTest, OperatorMayHaveADatabaseMadeWhereIdsWereGranted) {
  ASSERT_TRUE(h_.marks.SetIncarnation("0123456789abcdef").ok());
  ASSERT_TRUE(h_.marks.SetDatabase("elsewhere:").ok());
  ASSERT_TRUE(h_.marks.Raise("orders", 11).ok());
  std::optional<bool> made;
  const auto make = [&] {
    made.reset();
    h_.worker.MakeDatabase([&made](const Result<bool>& result) { made = result.value(); });
    EXPECT_TRUE(h_.RunUntil([&] { return made.has_value(); }));
  };
  h_.store.script.Fail("Open", {Code::kUnavailable, "there is none"}, 2);
  EXPECT_EQ(RunJob().code(), Code::kUnavailable);
  EXPECT_FALSE(h_.store.may_create());
  make();  // does not wait for the next try
  EXPECT_EQ(made, true);
  EXPECT_TRUE(h_.store.may_create());
  EXPECT_TRUE(healths_.back().up);
  make();
  EXPECT_EQ(made, false) << "it is there now";
}

TEST(LeaseWorkerRecoveryTest, StoreThatWasReplacedIsOpenedAndRecoveredBeforeTheNextJob) {
  WorkerHarness h;
  std::atomic<int> recoveries{0};
  std::vector<StoreHealth> healths;
  h.Start([&](const StoreHealth& health) { healths.push_back(health); },
          [&](Store&, HighWaterMarks&, StoreSession&) {
            ++recoveries;
            return Status::Ok();
          });
  h.Settle();
  EXPECT_EQ(recoveries, 1);
  h.store.Replace("fedcba9876543210");
  int seen_by_job = 0;
  h.worker.Submit<bool>(
      [&](Store&, HighWaterMarks&) -> Result<bool> {
        seen_by_job = recoveries;
        return true;
      },
      [](const Result<bool>&) {});
  h.Settle();
  EXPECT_EQ(seen_by_job, 2);
  EXPECT_EQ(h.store.script.Count("Open"), 2);
  EXPECT_EQ(healths.size(), 1U) << "it was never down";
}

// Its generation number alone must not make the new store count as the old one.
TEST(LeaseWorkerRecoveryTest, StoreThatIsHandedInIsRecoveredAsAnotherBeforeTheNextJob) {
  WorkerHarness h;
  std::vector<bool> looked_the_same;
  h.Start([](const StoreHealth&) {},
          [&](Store& store, HighWaterMarks&, StoreSession& session) {
            looked_the_same.push_back(session.generation == store.generation());
            session.generation = store.generation();
            return Status::Ok();
          });
  h.Settle();
  ASSERT_TRUE(h.marks.SetIncarnation("0123456789abcdef").ok());
  ASSERT_TRUE(h.marks.Raise("orders", 11).ok());
  auto other = std::make_unique<FakeStore>();
  FakeStore& fresh = *other;
  const Store* seen = nullptr;
  const auto note = [&seen](Store& store, HighWaterMarks&) -> Result<bool> {
    seen = &store;
    return true;
  };
  bool done = false;
  h.worker.Submit<bool>(note, [&](const Result<bool>&) {
    EXPECT_NE(seen, &fresh) << "it was asked before";
    done = true;
  });
  EXPECT_TRUE(h.RunUntil([&] { return done; }));
  h.worker.Replace(std::move(other));
  done = false;
  h.worker.Submit<bool>(note, [&](const Result<bool>&) { done = true; });
  EXPECT_TRUE(h.RunUntil([&] { return done; }));
  EXPECT_EQ(seen, &fresh);
  EXPECT_EQ(looked_the_same, (std::vector<bool>{false, false}));
  EXPECT_FALSE(fresh.may_create()) << "one is known";
  EXPECT_EQ(fresh.script.Count("Open"), 1);
}

TEST(LeaseWorkerRecoveryTest, RecoveryRunsOnceBeforeTheFirstJob) {
  WorkerHarness h;
  std::atomic<int> recoveries{0};
  int seen_by_job = 0;
  h.Start([](const StoreHealth&) {},
          [&](Store&, HighWaterMarks&, StoreSession&) {
            ++recoveries;
            return Status::Ok();
          });
  for (int i = 0; i < 3; ++i) {
    h.worker.Submit<bool>(
        [&](Store&, HighWaterMarks&) -> Result<bool> {
          seen_by_job = recoveries;
          return true;
        },
        [](const Result<bool>&) {});
  }
  h.Settle();
  EXPECT_EQ(seen_by_job, 1);
  EXPECT_EQ(recoveries, 1);
}

TEST(LeaseWorkerRecoveryTest, FailedRecoveryIsTriedAgainAndNoJobRunsBeforeIt) {
  WorkerHarness h;
  std::atomic<int> recoveries{0};
  std::atomic<int> jobs{0};
  StoreHealth health;
  h.Start([&](const StoreHealth& news) { health = news; },
          [&](Store&, HighWaterMarks&, StoreSession&) {
            return ++recoveries == 1 ? Status(Code::kUnavailable, "half way") : Status::Ok();
          });
  const auto submit = [&] {
    bool done = false;
    h.worker.Submit<bool>(
        [&](Store&, HighWaterMarks&) -> Result<bool> {
          ++jobs;
          return true;
        },
        [&](const Result<bool>&) { done = true; });
    EXPECT_TRUE(h.RunUntil([&] { return done; }));
  };
  submit();
  EXPECT_EQ(jobs, 0);
  EXPECT_FALSE(health.up);
  EXPECT_EQ(health.last_error, "half way");
  std::this_thread::sleep_until(health.next_try);
  submit();
  EXPECT_EQ(jobs, 1);
  EXPECT_EQ(recoveries, 2);
  // After a later failure the worker opens the store again, which may then be another one.
  h.store.script.Fail("FindTag", {Code::kUnavailable, "gone"});
  bool done = false;
  h.worker.Submit<TagRecord>([](Store& store, HighWaterMarks&) { return store.FindTag("x"); },
                             [&](const Result<TagRecord>&) { done = true; });
  ASSERT_TRUE(h.RunUntil([&] { return done; }));
  std::this_thread::sleep_until(health.next_try);
  submit();
  EXPECT_EQ(h.store.script.Count("Open"), 3);
  EXPECT_EQ(recoveries, 3);
}

}  // namespace
}  // namespace idd::daemon
