// SPDX-License-Identifier: Apache-2.0
//
// Which tag leases next, and which leases go together.
#include "leasing/lease_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/leases.h"
#include "support/service_harness.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LeaseSchedulerTest : public ::testing::Test {
 protected:
  LeaseSchedulerTest() {
    for (const char* tag : {"a", "b", "c", "hog"}) h_.store.AddTag(tag, 1000);
    h_.Start();
    h_.Settle();
  }

  // A budget of `leases_per_s`, of which a tenth may go at once.
  std::unique_ptr<LeaseScheduler> Make(std::uint32_t leases_per_s) {
    return std::make_unique<LeaseScheduler>(
        h_.loop, h_.worker, leases_per_s, [this](const std::string& tag) { return OrderOf(tag); },
        [this](const LeaseOrder& order, const Result<LeaseOutcome>& outcome) {
          outcomes_.emplace_back(order.tag, outcome.ok());
        });
  }
  std::optional<LeaseOrder> OrderOf(const std::string& tag) {
    if (wanted_[tag] == 0) return std::nullopt;
    turns_.push_back(tag);
    return LeaseOrder{.tag = tag,
                      .token = Token(static_cast<char>('a' + turns_.size() % 26)),
                      .wanted = wanted_[tag],
                      .step = wanted_[tag]};
  }
  // Waits until that many orders have outcomes.
  bool Await(std::size_t outcomes) {
    return h_.RunUntil([this, outcomes] { return outcomes_.size() >= outcomes; });
  }

  WorkerHarness h_;
  std::map<std::string, std::uint64_t> wanted_;
  std::vector<std::string> turns_;
  std::vector<std::pair<std::string, bool>> outcomes_;
};

TEST_F(LeaseSchedulerTest, FirstIsServedAtOnce) {
  const auto scheduler = Make(10);
  wanted_["a"] = 5;
  scheduler->Ask("a");
  EXPECT_THAT(turns_, ElementsAre("a"));
  EXPECT_FALSE(scheduler->Awaits("a"));
  ASSERT_TRUE(Await(1));
  EXPECT_TRUE(outcomes_[0].second);
}

TEST_F(LeaseSchedulerTest, TurnThatGoesOnWaitsForNoBudget) {
  const auto scheduler = Make(1);
  wanted_ = {{"a", 1}, {"b", 1}};
  scheduler->Ask("a");
  scheduler->Ask("b");
  ASSERT_TRUE(Await(1));
  EXPECT_THAT(turns_, ElementsAre("a"));
  scheduler->GoOn("a");
  EXPECT_THAT(turns_, ElementsAre("a", "a")) << "before b, which waits for a second";
  EXPECT_EQ(scheduler->waiting(), 1U);
  ASSERT_TRUE(Await(2));
  wanted_["a"] = 0;
  scheduler->GoOn("a");
  EXPECT_EQ(turns_.size(), 2U);
}

TEST_F(LeaseSchedulerTest, OneThatAsksAllTheTimeDelaysTheOthersByOneLease) {
  const auto scheduler = Make(10);
  wanted_ = {{"hog", 1000}, {"b", 1}, {"c", 1}};
  const MonotonicTime began = MonotonicClock::now();
  scheduler->Ask("hog");
  for (int i = 0; i < 10; ++i) scheduler->Ask("hog");
  scheduler->Ask("b");
  for (int i = 0; i < 10; ++i) scheduler->Ask("hog");
  scheduler->Ask("c");
  EXPECT_TRUE(scheduler->Awaits("hog"));
  EXPECT_EQ(scheduler->waiting(), 3U);
  ASSERT_TRUE(Await(4));
  EXPECT_THAT(turns_, ElementsAre("hog", "hog", "b", "c"));
  EXPECT_GE(MonotonicClock::now() - began, 250ms) << "three leases of the next three tenths";
}

TEST_F(LeaseSchedulerTest, TagThatNeedsNothingAnyMoreCostsNothing) {
  const auto scheduler = Make(10);
  wanted_ = {{"a", 1}, {"b", 1}, {"c", 1}};
  const MonotonicTime began = MonotonicClock::now();
  scheduler->Ask("a");
  scheduler->Ask("b");
  scheduler->Ask("c");
  wanted_["b"] = 0;
  ASSERT_TRUE(Await(2));
  EXPECT_THAT(turns_, ElementsAre("a", "c"));
  EXPECT_GE(MonotonicClock::now() - began, 80ms);
  EXPECT_EQ(h_.store.script.Count("TakeLeases"), 2);
}

TEST_F(LeaseSchedulerTest, NoTurnComesAfterTheEndButOrdersAreCarriedOut) {
  // One lease a second, so that even on a busy machine the second tag's turn does not come before
  // Stop().
  const auto scheduler = Make(1);
  wanted_ = {{"a", 1}, {"b", 1}};
  const MonotonicTime began = MonotonicClock::now();
  scheduler->Ask("a");
  scheduler->Ask("b");
  scheduler->Stop();
  if (MonotonicClock::now() - began < 1000ms) {
    EXPECT_THAT(turns_, ElementsAre("a"));
  }
  EXPECT_FALSE(scheduler->Awaits("b"));
  ASSERT_TRUE(Await(1));
}

TEST_F(LeaseSchedulerTest, OrdersThatComeWhileTheWorkerIsBusyGoTogether) {
  const auto scheduler = Make(1000);
  wanted_ = {{"a", 1}, {"b", 1}, {"c", 1}};
  h_.store.script.Hold("TakeLeases");
  scheduler->Ask("a");
  scheduler->Ask("b");
  scheduler->Ask("c");
  EXPECT_THAT(outcomes_, IsEmpty());
  h_.store.script.Release();
  ASSERT_TRUE(Await(3));
  EXPECT_EQ(h_.store.script.Count("TakeLeases"), 2) << "a alone, b and c together";
}

// The tag was deleted and created again: a transaction of the store takes each tag only once.
TEST_F(LeaseSchedulerTest, SecondOrderOfATagGoesIntoTheNextBatch) {
  const auto scheduler = Make(1000);
  wanted_ = {{"a", 1}, {"b", 1}};
  h_.store.script.Hold("TakeLeases");
  for (const char* tag : {"a", "b", "b", "a"}) scheduler->Ask(tag);
  h_.store.script.Release();
  ASSERT_TRUE(Await(4));
  EXPECT_EQ(h_.store.script.Count("TakeLeases"), 3) << "a; b; b and a";
}

// A fault in one tag's row must not make another tag's lease fail twice.
TEST_F(LeaseSchedulerTest, AfterAFailureOrdersGoOneByOne) {
  const auto scheduler = Make(1000);
  wanted_ = {{"a", 1}, {"b", 1}, {"c", 1}};
  h_.store.script.Hold("TakeLeases");
  h_.store.script.Fail("TakeLeases", {Code::kInvalid, "a lock is held"});
  for (const char* tag : {"a", "b", "c"}) scheduler->Ask(tag);
  h_.store.script.Release();
  ASSERT_TRUE(Await(3));
  EXPECT_THAT(outcomes_,
              ElementsAre(std::pair(std::string("a"), false), std::pair(std::string("b"), true),
                          std::pair(std::string("c"), true)));
  EXPECT_EQ(h_.store.script.Count("TakeLeases"), 3);
}

}  // namespace
}  // namespace idd::daemon
