// SPDX-License-Identifier: Apache-2.0
//
// platform/event_loop.h on the simulated world, in place of event_loop.cc: a loop runs in a thread
// of a simulated process, timers follow the world's clock, and a WorkThread is a fiber. Between two
// callbacks a little time passes, so that other threads and hosts come in between.
//
// There are no real descriptors to watch and no signals.
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "idd/base/check.h"
#include "platform/event_loop.h"
#include "world.h"

namespace idd::daemon {
namespace {

using simulation::kMicrosecond;
using simulation::Nanos;
using simulation::Process;
using simulation::Thread;
using simulation::World;

// How long a callback takes.
Nanos CallbackTime() { return World::Get().random().Between(1, 10) * kMicrosecond; }

// The world's time of a time on this process's clock.
Nanos WorldTime(MonotonicTime time) {
  return time.time_since_epoch().count() - Process::Current()->clock().monotonic_offset();
}

}  // namespace

struct EventLoop::Impl {
  // Calls the first callback that is due. False: none is due.
  bool CallNext() {
    const MonotonicTime now = MonotonicClock::now();
    while (!alarms.empty() && alarms.begin()->first <= now) {
      ready.push_back(std::move(alarms.begin()->second));
      alarms.erase(alarms.begin());
    }
    if (ready.empty()) return false;
    const std::function<void()> next = std::move(ready.front());
    ready.pop_front();
    next();
    return true;
  }
  void WakeRunner() const {
    if (runner != nullptr) runner->Wake();
  }

  std::deque<std::function<void()>> ready;
  std::multimap<MonotonicTime, std::function<void()>> alarms;
  Thread* runner = nullptr;
  bool is_stopped = false;
};

struct Timer::State {
  explicit State(EventLoop& the_loop) : loop(the_loop) {}

  EventLoop& loop;
  MonotonicTime expiry{};
  std::uint64_t wait = 0;  // the newest one's number
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}

EventLoop::~EventLoop() = default;

void EventLoop::Post(std::function<void()> task) {
  impl_->ready.push_back(std::move(task));
  impl_->WakeRunner();
}

void EventLoop::Run() {
  impl_->runner = Thread::Current();
  while (!impl_->is_stopped) {
    if (impl_->CallNext()) {
      impl_->runner->Sleep(CallbackTime());
    } else if (impl_->alarms.empty()) {
      impl_->runner->Wait(std::nullopt);
    } else {
      impl_->runner->Wait(WorldTime(impl_->alarms.begin()->first));
    }
  }
  impl_->runner = nullptr;
}

void EventLoop::Stop() {
  impl_->is_stopped = true;
  impl_->WakeRunner();
}

// The clock stands still during a callback, so chance cuts the work.
bool EventLoop::IsTurnOver() const { return World::Get().random().Percent(50); }

void EventLoop::SetTurn(std::chrono::nanoseconds /*turn*/) {}

void EventLoop::WatchTurns(TurnWatch /*watch*/) {}

Timer::Timer(EventLoop& loop) : state_(std::make_shared<State>(loop)) {}

Timer::~Timer() { Cancel(); }

void Timer::At(MonotonicTime at, std::function<void()> callback) {
  state_->expiry = at;
  EventLoop::Impl& loop = *state_->loop.impl_;
  // The loop owns the callback, which may own the timer.
  loop.alarms.emplace(at, [state = state_, wait = ++state_->wait, callback = std::move(callback)] {
    if (wait == state->wait) callback();
  });
  loop.WakeRunner();
}

void Timer::After(std::chrono::nanoseconds delay, std::function<void()> callback) {
  At(MonotonicClock::now() + delay, std::move(callback));
}

void Timer::Cancel() { ++state_->wait; }

MonotonicTime Timer::expiry() const { return state_->expiry; }

// Never ready.
struct DescriptorWatch::State {
  ScopedFd fd;
};

DescriptorWatch::DescriptorWatch(EventLoop& /*loop*/) : state_(std::make_shared<State>()) {}

DescriptorWatch::~DescriptorWatch() { Close(); }

Status DescriptorWatch::Open(ScopedFd fd) {
  state_->fd = std::move(fd);
  return Status::Ok();
}

void DescriptorWatch::WhenReadable(std::function<void()> /*callback*/) {}

void DescriptorWatch::WhenWritable(std::function<void()> /*callback*/) {}

void DescriptorWatch::Cancel() {}

void DescriptorWatch::Close() { state_->fd = ScopedFd(); }

int DescriptorWatch::fd() const { return state_->fd.get(); }

struct Signals::State {};

Signals::Signals(EventLoop& /*loop*/, std::initializer_list<int> /*signals*/,
                 std::function<void(int signal)> /*callback*/) {}

Signals::~Signals() = default;

struct WorkThread::Impl {
  std::deque<std::function<void()>> tasks;
  bool ends = false;         // when no task is left
  bool is_given_up = false;  // at once
  Thread* waiter = nullptr;  // in Finish()
  Thread* thread = nullptr;

  void Work() {
    while (!is_given_up) {
      if (tasks.empty()) {
        if (ends) break;
        thread->Wait(std::nullopt);
        continue;
      }
      const std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      task();
      thread->Sleep(CallbackTime());
    }
  }
};

WorkThread::WorkThread() : impl_(std::make_unique<Impl>()) {
  impl_->thread = &Process::Current()->AddThread([impl = impl_.get()] {
    impl->Work();
    if (impl->waiter != nullptr) impl->waiter->Wake();
  });
}

WorkThread::~WorkThread() {
  impl_->is_given_up = true;
  Process& process = impl_->thread->process();
  if (!process.is_dead()) Finish();
  process.Remove(*impl_->thread);
}

void WorkThread::Post(std::function<void()> task) {
  if (impl_->ends) return;
  impl_->tasks.push_back(std::move(task));
  impl_->thread->Wake();
}

void WorkThread::Finish() {
  impl_->ends = true;
  impl_->waiter = Thread::Current();
  impl_->thread->Wake();
  try {
    while (!impl_->thread->has_ended() && !impl_->thread->process().is_dead()) {
      impl_->waiter->Wait(std::nullopt);
    }
  } catch (const simulation::Killed&) {
    // This may be a destructor; the waiter's later waits end at once.
  }
  impl_->waiter = nullptr;
}

}  // namespace idd::daemon
