// SPDX-License-Identifier: Apache-2.0
//
// Asio calls the handler of a cancelled wait with an error or, if the wait had already succeeded,
// as if it was not cancelled. Here each wait has a number, and a handler does nothing if its number
// is no longer the newest.
#include "platform/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <ctime>
#include <deque>
#include <mutex>
#include <utility>

#include "idd/base/check.h"

namespace idd::daemon {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

// The processor time of this thread.
std::chrono::nanoseconds ProcessorTime() {
  timespec time{};
  static_cast<void>(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time));
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

struct EventLoop::Impl {
  // One callback.
  template <typename... Arguments>
  void TakeTurn(const std::function<void(Arguments...)>& callback, Arguments... arguments) {
    struct End {
      ~End() { is_in_turn = false; }
      bool& is_in_turn;
    };
    began = MonotonicClock::now();
    is_in_turn = true;
    const End end{is_in_turn};
    callback(arguments...);
    if (watch) NoteTurn();
  }
  // What the loop itself did since the last turn counts too: one reading of the clock, which is a
  // system call, instead of two.
  void NoteTurn() {
    const std::chrono::nanoseconds now = ProcessorTime();
    watch(now - std::exchange(used, now));
  }

  [[nodiscard]] bool IsTurnOver() const {
    return is_in_turn && MonotonicClock::now() - began >= turn;
  }

  void Post(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    posted.push_back(std::move(task));
    if (std::exchange(is_served, true)) return;
    boost::asio::post(context, [this] { ServePosted(); });
  }
  // Calls posted tasks for one turn. Asio would call all of them before it looks at the descriptors
  // again, and a thread may post more of them in that time than the loop can call.
  void ServePosted() {
    struct Rest {
      ~Rest() {
        const std::lock_guard lock(loop.mutex);
        loop.is_served = !loop.posted.empty();
        if (loop.is_served) boost::asio::post(loop.context, [&of = loop] { of.ServePosted(); });
      }
      Impl& loop;
    };
    const Rest rest{*this};
    TakeTurn(std::function<void()>([this] {
      do {
        std::function<void()> task;
        {
          const std::lock_guard lock(mutex);
          if (posted.empty()) return;
          task = std::move(posted.front());
          posted.pop_front();
        }
        task();
      } while (!is_one_by_one && !IsTurnOver() && !context.stopped());
    }));
  }
  // While tasks are destroyed, they may post others.
  void DropPosted() {
    std::deque<std::function<void()>> dropped;
    do {
      dropped.clear();
      const std::lock_guard lock(mutex);
      dropped.swap(posted);
    } while (!dropped.empty());
  }

  std::chrono::nanoseconds turn = std::chrono::milliseconds(1);
  MonotonicTime began{};  // the present or the last callback
  bool is_in_turn = false;
  std::chrono::nanoseconds used{0};  // ProcessorTime() after the last one
  TurnWatch watch;
  bool is_one_by_one = false;  // for RunOne()
  std::mutex mutex;
  std::deque<std::function<void()>> posted;
  bool is_served = false;           // ServePosted() will be called
  boost::asio::io_context context;  // last: its callbacks go first
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}

// Tasks may own timers, which must go before the context.
EventLoop::~EventLoop() { impl_->DropPosted(); }

void EventLoop::Post(std::function<void()> task) { impl_->Post(std::move(task)); }

void EventLoop::Run() {
  const auto work = boost::asio::make_work_guard(impl_->context);
  impl_->context.run();
}

void EventLoop::Stop() { impl_->context.stop(); }

bool EventLoop::IsTurnOver() const { return impl_->IsTurnOver(); }

void EventLoop::SetTurn(std::chrono::nanoseconds turn) { impl_->turn = turn; }

void EventLoop::WatchTurns(TurnWatch watch) {
  impl_->watch = std::move(watch);
  impl_->used = ProcessorTime();
}

bool EventLoop::RunOne(std::chrono::nanoseconds patience) {
  const auto work = boost::asio::make_work_guard(impl_->context);
  impl_->context.restart();
  impl_->is_one_by_one = true;
  // With no patience left, run_one_for() checks nothing.
  const bool has_run = impl_->context.poll_one() != 0 || impl_->context.run_one_for(patience) != 0;
  impl_->is_one_by_one = false;
  return has_run;
}

void EventLoop::RunUntilIdle() {
  impl_->context.restart();
  impl_->context.run();
  impl_->context.restart();  // running out of work is not a Stop()
}

struct Timer::State {
  explicit State(EventLoop::Impl& the_loop) : loop(the_loop), timer(the_loop.context) {}

  EventLoop::Impl& loop;
  boost::asio::steady_timer timer;
  std::uint64_t wait = 0;  // the newest one's number
};

Timer::Timer(EventLoop& loop) : state_(std::make_shared<State>(*loop.impl_)) {}

// NOLINTNEXTLINE(bugprone-exception-escape): cancelling has no error to report
Timer::~Timer() { Cancel(); }

void Timer::At(MonotonicTime at, std::function<void()> callback) {
  state_->timer.expires_at(at);
  state_->timer.async_wait([state = state_, wait = ++state_->wait,
                            callback = std::move(callback)](const error_code& error) {
    if (!error && wait == state->wait) state->loop.TakeTurn(callback);
  });
}

void Timer::After(std::chrono::nanoseconds delay, std::function<void()> callback) {
  At(MonotonicClock::now() + delay, std::move(callback));
}

void Timer::Cancel() {
  ++state_->wait;
  state_->timer.cancel();  // it has no error to report, so it does not throw
}

MonotonicTime Timer::expiry() const { return state_->timer.expiry(); }

struct DescriptorWatch::State {
  // One direction's newest wait, by its number.
  struct Direction {
    const stream_descriptor::wait_type type;
    std::uint64_t wait = 0;
  };

  explicit State(EventLoop::Impl& the_loop) : loop(the_loop), descriptor(the_loop.context) {}

  static void Wait(const std::shared_ptr<State>& state, Direction State::*direction,
                   std::function<void()> callback) {
    Direction& waiting = (*state).*direction;
    const std::uint64_t wait = ++waiting.wait;
    state->descriptor.async_wait(
        waiting.type,
        [state, direction, wait, callback = std::move(callback)](const error_code& error) {
          if (!error && wait == ((*state).*direction).wait) state->loop.TakeTurn(callback);
        });
  }
  void Forget() {
    ++readable.wait;
    ++writable.wait;
  }

  EventLoop::Impl& loop;
  stream_descriptor descriptor;
  Direction readable{.type = stream_descriptor::wait_read};
  Direction writable{.type = stream_descriptor::wait_write};
};

DescriptorWatch::DescriptorWatch(EventLoop& loop) : state_(std::make_shared<State>(*loop.impl_)) {}

DescriptorWatch::~DescriptorWatch() { Close(); }

Status DescriptorWatch::Open(ScopedFd fd) {
  IDD_CHECK(!state_->descriptor.is_open());
  error_code error;
  state_->descriptor.assign(fd.get(), error);
  if (error) return {Code::kSystem, "watching a descriptor: " + error.message()};
  static_cast<void>(fd.release());
  return Status::Ok();
}

void DescriptorWatch::WhenReadable(std::function<void()> callback) {
  State::Wait(state_, &State::readable, std::move(callback));
}

void DescriptorWatch::WhenWritable(std::function<void()> callback) {
  State::Wait(state_, &State::writable, std::move(callback));
}

void DescriptorWatch::Cancel() {
  state_->Forget();
  error_code ignored;  // it can only say that there is no descriptor
  state_->descriptor.cancel(ignored);
}

void DescriptorWatch::Close() {
  state_->Forget();
  error_code ignored;  // close(2) has no error to report for a socket
  state_->descriptor.close(ignored);
}

int DescriptorWatch::fd() const { return state_->descriptor.native_handle(); }

struct Signals::State {
  State(EventLoop::Impl& the_loop, std::function<void(int)> on_signal)
      : loop(the_loop), signals(the_loop.context), callback(std::move(on_signal)) {}

  static void Wait(const std::shared_ptr<State>& state) {
    state->signals.async_wait([state](const error_code& error, int signal) {
      if (error || state->is_over) return;
      state->loop.TakeTurn(state->callback, signal);
      if (!state->is_over) Wait(state);
    });
  }

  EventLoop::Impl& loop;
  boost::asio::signal_set signals;
  const std::function<void(int)> callback;
  bool is_over = false;
};

Signals::Signals(EventLoop& loop, std::initializer_list<int> signals,
                 std::function<void(int signal)> callback)
    : state_(std::make_shared<State>(*loop.impl_, std::move(callback))) {
  for (const int signal : signals) state_->signals.add(signal);
  State::Wait(state_);
}

Signals::~Signals() {
  state_->is_over = true;
  error_code ignored;               // there is one only for a signal that was not added
  state_->signals.cancel(ignored);  // else the wait would keep the state, and the state the wait
  state_->signals.clear(ignored);
}

struct WorkThread::Impl {
  boost::asio::thread_pool pool{1};
};

WorkThread::WorkThread() : impl_(std::make_unique<Impl>()) {}

WorkThread::~WorkThread() = default;

void WorkThread::Post(std::function<void()> task) {
  boost::asio::post(impl_->pool, std::move(task));
}

void WorkThread::Finish() { impl_->pool.join(); }

}  // namespace idd::daemon
