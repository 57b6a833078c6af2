// SPDX-License-Identifier: Apache-2.0
//
// The event loop's guarantees: it calls each callback at most once, on the loop, and never after
// its cancellation.
#include "platform/event_loop.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;

class EventLoopTest : public ::testing::Test {
 protected:
  // False if the condition does not hold within five seconds.
  [[nodiscard]] bool RunUntil(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::After(5s);
    while (!condition() && !deadline.passed()) loop_.RunOne(5ms);
    return condition();
  }
  // Runs everything that is due.
  void Settle() {
    while (loop_.RunOne(20ms)) {
    }
  }
  // A callback that records its call.
  [[nodiscard]] std::function<void()> Note(const std::string& name) {
    return [this, name] { called_.push_back(name); };
  }

  EventLoop loop_;
  std::vector<std::string> called_;
};

TEST_F(EventLoopTest, TasksAreCalledInTheOrderInWhichTheyWerePosted) {
  loop_.Post(Note("a"));
  loop_.Post([this] {
    called_.push_back("b");
    loop_.Post(Note("d"));
    EXPECT_THAT(called_, ElementsAre("a", "b")) << "it must not be called from within Post()";
  });
  loop_.Post(Note("c"));
  EXPECT_TRUE(called_.empty());
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("a", "b", "c", "d"));
}

// A thread that posts faster than the loop calls must not keep clients waiting.
TEST_F(EventLoopTest, ManyTasksDoNotKeepTimersAndDescriptorsWaiting) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  DescriptorWatch watch(loop_);
  ASSERT_TRUE(watch.Open(ScopedFd(ends[0])).ok());
  const ScopedFd writer(ends[1]);
  loop_.SetTurn(1ms);
  int tasks = 0;
  int before_timer = 0;
  int before_descriptor = 0;
  Timer timer(loop_);
  timer.After(0ns, [&] { before_timer = tasks; });
  watch.WhenReadable([&] { before_descriptor = tasks; });
  ASSERT_EQ(::write(writer.get(), "x", 1), 1);
  for (int i = 0; i < 100; ++i) {
    loop_.Post([&tasks, i] {
      EXPECT_EQ(tasks++, i) << "the order must stay";
      std::this_thread::sleep_for(1ms);
    });
  }
  loop_.RunUntilIdle();
  EXPECT_EQ(tasks, 100);
  EXPECT_LE(before_timer, 3);
  EXPECT_LE(before_descriptor, 3);
}

TEST_F(EventLoopTest, TasksAfterAStopOrAnExceptionAreCalledInTheNextRun) {
  loop_.Post([this] { loop_.Stop(); });
  loop_.Post(Note("after the stop"));
  loop_.Post([] { throw std::runtime_error("a task's"); });
  loop_.Post(Note("after the exception"));
  loop_.Run();
  EXPECT_TRUE(called_.empty());
  EXPECT_THROW(loop_.RunUntilIdle(), std::runtime_error);
  EXPECT_THAT(called_, ElementsAre("after the stop"));
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("after the stop", "after the exception"));
}

TEST_F(EventLoopTest, TurnIsOverAfterItsTimeAndNotOutside) {
  loop_.SetTurn(20ms);
  EXPECT_FALSE(loop_.IsTurnOver());
  loop_.Post([this] {
    std::this_thread::sleep_for(20ms);
    if (loop_.IsTurnOver()) called_.push_back("over");
  });
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("over"));
  EXPECT_FALSE(loop_.IsTurnOver());
}

TEST_F(EventLoopTest, ProcessorTimeOfATurnIsReportedAndASleepIsNot) {
  std::vector<std::chrono::nanoseconds> turns;
  loop_.WatchTurns([&turns](std::chrono::nanoseconds time) { turns.push_back(time); });
  loop_.Post([] {
    const Deadline deadline = Deadline::After(30ms);
    while (!deadline.passed()) {
    }
  });
  loop_.RunUntilIdle();
  loop_.Post([] { std::this_thread::sleep_for(2s); });
  loop_.RunUntilIdle();
  ASSERT_EQ(turns.size(), 2U);
  EXPECT_GT(turns[0], 0ns);
  EXPECT_LT(turns[1], 1s);
  loop_.WatchTurns(nullptr);
  loop_.Post(Note("unwatched"));
  loop_.RunUntilIdle();
  EXPECT_EQ(turns.size(), 2U);
}

TEST_F(EventLoopTest, TaskOfAnotherThreadIsCalledOnTheLoop) {
  std::thread::id called_in;
  std::thread other([&] {
    loop_.Post([&] {
      called_in = std::this_thread::get_id();
      loop_.Stop();
    });
  });
  loop_.Run();
  other.join();
  EXPECT_EQ(called_in, std::this_thread::get_id());
}

TEST_F(EventLoopTest, RunEndsAfterTheCallbackThatStopsItAndTheRestIsDestroyed) {
  const auto owned = std::make_shared<int>(0);
  auto loop = std::make_unique<EventLoop>();
  loop->Post([&] { loop->Stop(); });
  loop->Post([this, owned] { called_.push_back("late"); });
  loop->Run();
  loop->Run();
  EXPECT_TRUE(called_.empty());
  EXPECT_EQ(owned.use_count(), 2);
  loop.reset();
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_TRUE(called_.empty());
}

TEST_F(EventLoopTest, RunOneWaitsNoLongerThanItsPatience) {
  EXPECT_FALSE(loop_.RunOne(0ns));
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_FALSE(loop_.RunOne(20ms));
  EXPECT_GE(MonotonicClock::now() - began, 20ms);
  loop_.Post(Note("a"));
  loop_.Post(Note("b"));
  EXPECT_TRUE(loop_.RunOne(0ns));
  EXPECT_THAT(called_, ElementsAre("a"));
}

TEST_F(EventLoopTest, TimerCallsOnceAndNotBeforeItsTime) {
  Timer timer(loop_);
  const MonotonicTime at = MonotonicClock::now() + 30ms;
  MonotonicTime called_at{};
  timer.At(at, [&] {
    called_.push_back("due");
    called_at = MonotonicClock::now();
  });
  EXPECT_EQ(timer.expiry(), at);
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("due"));
  EXPECT_GE(called_at, at);
  EXPECT_EQ(timer.expiry(), at) << "the expiry must stay readable";
  Settle();
  EXPECT_EQ(called_.size(), 1U);
}

TEST_F(EventLoopTest, TimersAreCalledInTheOrderOfTheirTimes) {
  Timer later(loop_);
  Timer sooner(loop_);
  later.After(20ms, Note("later"));
  sooner.After(5ms, Note("sooner"));
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("sooner", "later"));
}

TEST_F(EventLoopTest, TimerWithoutDelayComesAfterWhatIsDueAlready) {
  Timer timer(loop_);
  loop_.Post(Note("before"));
  timer.After(0ns, Note("timer"));
  EXPECT_TRUE(called_.empty());
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("before", "timer"));
}

TEST_F(EventLoopTest, CancelledTimerNeverCalls) {
  Timer timer(loop_);
  timer.Cancel();
  timer.After(5ms, Note("due"));
  timer.Cancel();
  std::this_thread::sleep_for(10ms);
  Settle();
  EXPECT_TRUE(called_.empty());
}

// Both timers are due when the first is called. Then only the second one's call can be prevented.
TEST_F(EventLoopTest, TimerThatIsDueAlreadyCanStillBeCancelled) {
  Timer first(loop_);
  Timer second(loop_);
  first.After(1ms, [&] { second.Cancel(); });
  second.After(2ms, Note("second"));
  std::this_thread::sleep_for(10ms);
  Settle();
  EXPECT_TRUE(called_.empty());
}

TEST_F(EventLoopTest, TimerThatIsSetAgainForgetsWhatItWasSetTo) {
  Timer timer(loop_);
  timer.After(1ms, Note("first"));
  timer.After(2ms, Note("second"));
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("second"));
}

TEST_F(EventLoopTest, TimerThatIsDueAlreadyAndSetAgainCallsAtItsNewTimeOnly) {
  Timer first(loop_);
  Timer second(loop_);
  MonotonicTime at{};
  MonotonicTime called_at{};
  first.After(1ms, [&] {
    at = MonotonicClock::now() + 20ms;
    second.At(at, [&] {
      called_.push_back("again");
      called_at = MonotonicClock::now();
    });
  });
  second.After(2ms, Note("second"));
  std::this_thread::sleep_for(10ms);
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("again"));
  EXPECT_GE(called_at, at);
}

TEST_F(EventLoopTest, TimerMayBeSetAgainInItsOwnCallback) {
  Timer timer(loop_);
  std::function<void()> again = [&] {
    called_.push_back("tick");
    if (called_.size() < 3) timer.After(1ms, again);
  };
  timer.After(1ms, again);
  loop_.RunUntilIdle();
  EXPECT_EQ(called_.size(), 3U);
}

TEST_F(EventLoopTest, DestroyedTimerNeverCalls) {
  auto waiting = std::make_unique<Timer>(loop_);
  auto due = std::make_unique<Timer>(loop_);
  Timer first(loop_);
  first.After(1ms, [&] { due.reset(); });
  due->After(2ms, Note("due"));
  waiting->After(1h, Note("waiting"));
  waiting.reset();
  std::this_thread::sleep_for(10ms);
  loop_.RunUntilIdle();
  EXPECT_TRUE(called_.empty());
}

TEST_F(EventLoopTest, TimerMayBeDestroyedInItsOwnCallback) {
  auto timer = std::make_unique<Timer>(loop_);
  const std::string text = "what the callback has captured lives as long as its call";
  timer->After(1ms, [&, text] {
    timer.reset();
    called_.push_back(text);
  });
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre(text));
}

TEST_F(EventLoopTest, CallbackMayOwnItsTimer) {
  std::weak_ptr<Timer> called;
  std::weak_ptr<Timer> left;
  {
    EventLoop loop;
    const auto own = [&](std::chrono::milliseconds delay) {
      auto timer = std::make_shared<Timer>(loop);
      timer->After(delay, [this, timer] { called_.push_back("own"); });
      return std::weak_ptr<Timer>(timer);
    };
    called = own(1ms);
    left = own(std::chrono::hours(1));
    while (called_.empty()) loop.RunOne(5ms);
    EXPECT_TRUE(called.expired());
    EXPECT_FALSE(left.expired());
  }
  EXPECT_TRUE(left.expired()) << "it must end with the loop";
}

class DescriptorWatchTest : public EventLoopTest {
 protected:
  DescriptorWatchTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    peer_.reset(ends[1]);
    EXPECT_TRUE(watch_.Open(ScopedFd(ends[0])).ok());
  }
  void SendToUs() const { EXPECT_EQ(::send(peer_.get(), "x", 1, 0), 1); }
  void Receive() const {
    char byte = 0;
    EXPECT_EQ(::recv(watch_.fd(), &byte, 1, 0), 1);
  }
  void FillPeer() const {
    while (::send(watch_.fd(), "x", 1, 0) == 1) {
    }
    EXPECT_EQ(errno, EAGAIN);
  }
  void DrainPeer() const {
    char byte = 0;
    while (::recv(peer_.get(), &byte, 1, 0) == 1) {
    }
  }
  [[nodiscard]] bool PeerSeesEnd() const {
    char byte = 0;
    return ::recv(peer_.get(), &byte, 1, 0) == 0;
  }

  ScopedFd peer_;
  DescriptorWatch watch_{loop_};
};

TEST_F(DescriptorWatchTest, CallsOnceWhenThereIsSomethingToRead) {
  watch_.WhenReadable(Note("readable"));
  Settle();
  EXPECT_TRUE(called_.empty());
  SendToUs();
  SendToUs();
  Settle();
  EXPECT_THAT(called_, ElementsAre("readable"));
}

TEST_F(DescriptorWatchTest, WhatIsThereAlreadyCounts) {
  SendToUs();
  SendToUs();
  watch_.WhenReadable([this] {
    Receive();
    watch_.WhenReadable(Note("more"));
  });
  Settle();
  EXPECT_THAT(called_, ElementsAre("more"));
}

TEST_F(DescriptorWatchTest, EndOfThePeerIsReadable) {
  watch_.WhenReadable(Note("readable"));
  peer_.reset();
  Settle();
  EXPECT_THAT(called_, ElementsAre("readable"));
}

TEST_F(DescriptorWatchTest, CallsWhenThereIsRoomToWrite) {
  FillPeer();
  watch_.WhenReadable(Note("readable"));
  watch_.WhenWritable(Note("writable"));
  Settle();
  EXPECT_TRUE(called_.empty());
  DrainPeer();
  Settle();
  EXPECT_THAT(called_, ElementsAre("writable"));
  SendToUs();
  Settle();
  EXPECT_THAT(called_, ElementsAre("writable", "readable"));
}

TEST_F(DescriptorWatchTest, SecondRequestReplacesTheEarlierCallback) {
  watch_.WhenReadable(Note("first"));
  watch_.WhenReadable(Note("second"));
  SendToUs();
  Settle();
  EXPECT_THAT(called_, ElementsAre("second"));
}

TEST_F(DescriptorWatchTest, KeepsTheDescriptorWhenCancelledAndMayBeAskedAgain) {
  watch_.WhenReadable(Note("first"));
  SendToUs();
  watch_.Cancel();
  Settle();
  EXPECT_TRUE(called_.empty());
  watch_.WhenReadable(Note("second"));
  Settle();
  EXPECT_THAT(called_, ElementsAre("second"));
}

// The kernel has reported both at once.
TEST_F(DescriptorWatchTest, WhatIsDueAlreadyCanStillBeCancelled) {
  SendToUs();
  const auto note_and_cancel = [this] {
    called_.push_back("one of both");
    watch_.Cancel();
  };
  watch_.WhenReadable(note_and_cancel);
  watch_.WhenWritable(note_and_cancel);
  Settle();
  EXPECT_THAT(called_, ElementsAre("one of both"));
}

TEST_F(DescriptorWatchTest, CallsNothingAndHasNoDescriptorWhenClosed) {
  watch_.WhenReadable(Note("readable"));
  SendToUs();
  watch_.Close();
  EXPECT_EQ(watch_.fd(), -1);
  DrainPeer();
  watch_.WhenReadable(Note("without a descriptor"));
  watch_.WhenWritable(Note("without a descriptor"));
  watch_.Cancel();
  watch_.Close();
  Settle();
  EXPECT_TRUE(called_.empty());
}

TEST_F(DescriptorWatchTest, ClosesItsDescriptorOnceAndNoOther) {
  const int number = watch_.fd();
  watch_.Close();
  EXPECT_TRUE(PeerSeesEnd());
  const ScopedFd other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(other.get(), number) << "the next file must get the number";
  watch_.Close();
  watch_.Cancel();
  Settle();
  EXPECT_NE(::fcntl(other.get(), F_GETFD), -1);
}

TEST_F(DescriptorWatchTest, MayBeDestroyedInItsOwnCallback) {
  auto watch = std::make_unique<DescriptorWatch>(loop_);
  ASSERT_TRUE(watch->Open(ScopedFd(::fcntl(watch_.fd(), F_DUPFD_CLOEXEC, 0))).ok());
  FillPeer();
  watch->WhenWritable(Note("not wanted any more"));
  watch->WhenReadable([&] {
    watch.reset();
    called_.push_back("readable");
  });
  SendToUs();
  Settle();
  DrainPeer();
  Settle();
  EXPECT_THAT(called_, ElementsAre("readable"));
}

TEST_F(DescriptorWatchTest, OpensAnotherAfterItWasClosed) {
  watch_.Close();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const ScopedFd writer(ends[1]);
  ASSERT_TRUE(watch_.Open(ScopedFd(ends[0])).ok());
  watch_.WhenReadable(Note("readable"));
  ASSERT_EQ(::write(writer.get(), "x", 1), 1);
  Settle();
  EXPECT_THAT(called_, ElementsAre("readable"));
}

TEST_F(DescriptorWatchTest, WhatIsNoDescriptorIsAnError) {
  watch_.Close();
  const Status status = watch_.Open(ScopedFd());
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_EQ(watch_.fd(), -1);
  watch_.WhenReadable(Note("without a descriptor"));
  Settle();
  EXPECT_TRUE(called_.empty());
}

TEST_F(EventLoopTest, SignalsAreReportedEachTimeUntilTheEnd) {
  std::vector<int> told;
  auto signals = std::make_unique<Signals>(loop_, std::initializer_list<int>{SIGUSR1, SIGUSR2},
                                           [&](int signal) { told.push_back(signal); });
  ::raise(SIGUSR1);
  ASSERT_TRUE(RunUntil([&] { return told.size() == 1; }));
  ::raise(SIGUSR2);
  ASSERT_TRUE(RunUntil([&] { return told.size() == 2; }));
  EXPECT_THAT(told, ElementsAre(SIGUSR1, SIGUSR2));
  ::raise(SIGUSR1);
  signals.reset();
  Settle();
  EXPECT_EQ(told.size(), 2U);
}

TEST_F(EventLoopTest, SignalsMayBeDestroyedInTheirOwnCallback) {
  std::unique_ptr<Signals> signals;
  signals = std::make_unique<Signals>(loop_, std::initializer_list<int>{SIGUSR1}, [&](int) {
    signals.reset();
    called_.push_back("told");
  });
  ::raise(SIGUSR1);
  loop_.RunUntilIdle();
  EXPECT_THAT(called_, ElementsAre("told"));
}

TEST(WorkThreadTest, TasksAreCalledOnOneOtherThreadInOrder) {
  WorkThread thread;
  std::vector<int> called;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 100; ++i) {
    thread.Post([&, i] {
      called.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  thread.Finish();
  ASSERT_EQ(called.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(called[static_cast<std::size_t>(i)], i);
  EXPECT_NE(threads.front(), std::this_thread::get_id());
  EXPECT_EQ(threads.front(), threads.back());
}

TEST(WorkThreadTest, FinishWaitsForWhatIsPostedAndNoMoreIsCalled) {
  std::atomic<int> called = 0;
  WorkThread thread;
  thread.Post([&] { std::this_thread::sleep_for(10ms); });
  thread.Post([&] { ++called; });
  thread.Finish();
  EXPECT_EQ(called, 1);
  thread.Post([&] { ++called; });
  thread.Finish();
  EXPECT_EQ(called, 1);
}

TEST(WorkThreadTest, EndWaitsForTheTaskUnderWayAndDestroysTheOthers) {
  std::atomic<bool> is_over = false;
  const auto owned = std::make_shared<int>(0);
  bool was_called = false;
  {
    WorkThread thread;
    std::promise<void> begun;
    thread.Post([&] {
      begun.set_value();
      std::this_thread::sleep_for(50ms);
      is_over = true;
    });
    thread.Post([&was_called, owned] { was_called = true; });
    begun.get_future().wait();
    EXPECT_EQ(owned.use_count(), 2);
  }
  EXPECT_TRUE(is_over);
  EXPECT_FALSE(was_called);
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace idd::daemon
