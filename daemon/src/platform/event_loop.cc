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
#include <utility>

#include "idd/base/check.h"

namespace idd::daemon {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

}  // namespace

struct EventLoop::Impl {
  boost::asio::io_context context;
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}

EventLoop::~EventLoop() = default;

void EventLoop::Post(std::function<void()> task) {
  boost::asio::post(impl_->context, std::move(task));
}

void EventLoop::Run() {
  const auto work = boost::asio::make_work_guard(impl_->context);
  impl_->context.run();
}

void EventLoop::Stop() { impl_->context.stop(); }

bool EventLoop::RunOne(std::chrono::nanoseconds patience) {
  const auto work = boost::asio::make_work_guard(impl_->context);
  impl_->context.restart();
  // With no patience left, run_one_for() checks nothing.
  return impl_->context.poll_one() != 0 || impl_->context.run_one_for(patience) != 0;
}

void EventLoop::RunUntilIdle() {
  impl_->context.restart();
  impl_->context.run();
  impl_->context.restart();  // running out of work is not a Stop()
}

struct Timer::State {
  explicit State(boost::asio::io_context& context) : timer(context) {}

  boost::asio::steady_timer timer;
  std::uint64_t wait = 0;  // the newest one's number
};

Timer::Timer(EventLoop& loop) : state_(std::make_shared<State>(loop.impl_->context)) {}

Timer::~Timer() { Cancel(); }

void Timer::At(MonotonicTime at, std::function<void()> callback) {
  state_->timer.expires_at(at);
  state_->timer.async_wait([state = state_, wait = ++state_->wait,
                            callback = std::move(callback)](const error_code& error) {
    if (!error && wait == state->wait) callback();
  });
}

void Timer::After(std::chrono::nanoseconds delay, std::function<void()> callback) {
  At(MonotonicClock::now() + delay, std::move(callback));
}

void Timer::Cancel() {
  ++state_->wait;
  error_code ignored;  // it has none to report; the other form is declared to throw
  state_->timer.cancel(ignored);
}

MonotonicTime Timer::expiry() const { return state_->timer.expiry(); }

struct DescriptorWatch::State {
  // One direction's newest wait, by its number.
  struct Direction {
    const stream_descriptor::wait_type type;
    std::uint64_t wait = 0;
  };

  explicit State(boost::asio::io_context& context) : descriptor(context) {}

  static void Wait(const std::shared_ptr<State>& state, Direction State::*direction,
                   std::function<void()> callback) {
    Direction& waiting = (*state).*direction;
    const std::uint64_t wait = ++waiting.wait;
    state->descriptor.async_wait(
        waiting.type,
        [state, direction, wait, callback = std::move(callback)](const error_code& error) {
          if (!error && wait == ((*state).*direction).wait) callback();
        });
  }
  void Forget() {
    ++readable.wait;
    ++writable.wait;
  }

  stream_descriptor descriptor;
  Direction readable{.type = stream_descriptor::wait_read};
  Direction writable{.type = stream_descriptor::wait_write};
};

DescriptorWatch::DescriptorWatch(EventLoop& loop)
    : state_(std::make_shared<State>(loop.impl_->context)) {}

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
  State(boost::asio::io_context& context, std::function<void(int)> on_signal)
      : signals(context), callback(std::move(on_signal)) {}

  static void Wait(const std::shared_ptr<State>& state) {
    state->signals.async_wait([state](const error_code& error, int signal) {
      if (error || state->is_over) return;
      state->callback(signal);
      if (!state->is_over) Wait(state);
    });
  }

  boost::asio::signal_set signals;
  const std::function<void(int)> callback;
  bool is_over = false;
};

Signals::Signals(EventLoop& loop, std::initializer_list<int> signals,
                 std::function<void(int signal)> callback)
    : state_(std::make_shared<State>(loop.impl_->context, std::move(callback))) {
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
