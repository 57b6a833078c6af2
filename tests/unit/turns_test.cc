// SPDX-License-Identifier: Apache-2.0
//
// Long work is cut into turns, and may be cancelled, replaced or destroyed between any two.
#include "platform/turns.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "platform/event_loop.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ns;
using Next = Turns::Next;

class TurnsTest : public ::testing::Test {
 protected:
  TurnsTest() { loop_.SetTurn(1h); }

  // Work of so many steps.
  [[nodiscard]] Turns::Step Steps(int count, Next each = Next::kStep) {
    return [this, count, each] { return ++steps_ < count ? each : Next::kEnd; };
  }
  // Begins the work in a turn of the loop. Returns how many steps fitted in.
  int BeginOnTheLoop(Turns::Step step) {
    int fitted = 0;
    loop_.Post([this, &fitted, step = std::move(step)] {
      turns_.Begin(step);
      fitted = steps_;
    });
    loop_.RunOne(1h);
    return fitted;
  }

  EventLoop loop_;
  Turns turns_{loop_};
  int steps_ = 0;
};

TEST_F(TurnsTest, WorkThatFitsIntoOneTurnIsDoneAtOnce) {
  EXPECT_EQ(BeginOnTheLoop(Steps(1000)), 1000);
  EXPECT_FALSE(turns_.is_under_way());
}

TEST_F(TurnsTest, RestWaitsForLaterTurns) {
  loop_.SetTurn(0ns);
  EXPECT_EQ(BeginOnTheLoop(Steps(3)), 1);
  int others = 0;
  while (turns_.is_under_way()) {
    loop_.Post([&others] { ++others; });
    loop_.RunOne(1h);
  }
  EXPECT_EQ(steps_, 3);
  EXPECT_GE(others, 1) << "nothing else ran in between";
}

TEST_F(TurnsTest, StepMayAskForAnotherTurn) {
  EXPECT_EQ(BeginOnTheLoop(Steps(3, Next::kTurn)), 1);
  loop_.RunUntilIdle();
  EXPECT_EQ(steps_, 3);
}

// Outside of a callback there is no turn that could be over.
TEST_F(TurnsTest, OutsideOfTheLoopNothingIsCut) {
  loop_.SetTurn(0ns);
  turns_.Begin(Steps(1000));
  EXPECT_EQ(steps_, 1000);
}

TEST_F(TurnsTest, CancelEndsItBetweenTwoTurns) {
  loop_.SetTurn(0ns);
  EXPECT_EQ(BeginOnTheLoop(Steps(3)), 1);
  turns_.Cancel();
  loop_.RunUntilIdle();
  EXPECT_EQ(steps_, 1);
  EXPECT_FALSE(turns_.is_under_way());
}

TEST_F(TurnsTest, OtherWorkReplacesIt) {
  loop_.SetTurn(0ns);
  EXPECT_EQ(BeginOnTheLoop(Steps(1000)), 1);
  int others = 0;
  turns_.Begin([&others] { return ++others < 5 ? Next::kStep : Next::kEnd; });
  loop_.RunUntilIdle();
  EXPECT_EQ(steps_, 1);
  EXPECT_EQ(others, 5);
}

TEST_F(TurnsTest, StepMayCancelAndBeginAgain) {
  int steps = 0;
  turns_.Begin([this, &steps] {
    if (++steps == 2) turns_.Cancel();
    return Next::kStep;
  });
  EXPECT_EQ(steps, 2);
  EXPECT_FALSE(turns_.is_under_way());
  turns_.Begin([this] {
    turns_.Begin(Steps(4));
    return Next::kStep;
  });
  loop_.RunUntilIdle();
  EXPECT_EQ(steps_, 4);
  EXPECT_FALSE(turns_.is_under_way());
}

TEST_F(TurnsTest, NextTurnWaitsForThePause) {
  std::function<void()> go_on;
  Turns paused(loop_, [&go_on](std::function<void()> call) { go_on = std::move(call); });
  paused.Begin(Steps(3, Next::kTurn));
  loop_.RunUntilIdle();
  EXPECT_EQ(steps_, 1);
  std::exchange(go_on, nullptr)();
  EXPECT_EQ(steps_, 2);
  EXPECT_TRUE(paused.is_under_way());
  const std::function<void()> late = std::exchange(go_on, nullptr);
  paused.Cancel();
  late();
  EXPECT_EQ(steps_, 2) << "a cancelled work goes on";
}

// The sanitizers see whether it stays, or goes too early.
TEST_F(TurnsTest, ObjectThatItsStepOwnsEndsWithTheWorkOrWithTheLoop) {
  for (const bool is_done : {true, false}) {
    std::weak_ptr<Turns> watched;
    {
      EventLoop loop;
      loop.SetTurn(0ns);
      loop.Post([&loop, &watched] {
        const auto owned = std::make_shared<Turns>(loop);
        watched = owned;
        owned->Begin([owned, left = 3]() mutable { return --left > 0 ? Next::kStep : Next::kEnd; });
      });
      if (is_done) {
        loop.RunUntilIdle();
        EXPECT_TRUE(watched.expired());
      } else {
        loop.RunOne(1h);
        EXPECT_FALSE(watched.expired());
      }
    }
    EXPECT_TRUE(watched.expired());
  }
}

}  // namespace
}  // namespace idd::daemon
