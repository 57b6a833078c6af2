// SPDX-License-Identifier: Apache-2.0
//
// The event loop, and all that calls back on it: tasks, timers, descriptors, signals; and a thread
// for work that the loop must not wait for. The one door to Boost.Asio: what it is made of is known
// to event_loop.cc alone, so that another clock or another order can be put in its place.
//
// What holds for every callback:
// - It is called on the loop: in the thread that is in Run(), RunOne() or RunUntilIdle(), one at a
//   time, and never from within the call that asked for it.
// - It is called at most once for each time that it was asked for. What was cancelled, replaced,
//   closed or destroyed is not called any more, even if it was due already and only waited for its
//   turn. So it may capture the object that owns the timer or the descriptor.
// - It may cancel, use again or destroy what called it.
// - What it has captured is destroyed after the call; of one that is not called, later on the loop
//   or with the loop. Until then it may keep alive the timer that would have called it.
// - An exception of it leaves Run().
#ifndef IDD_DAEMON_PLATFORM_EVENT_LOOP_H_
#define IDD_DAEMON_PLATFORM_EVENT_LOOP_H_

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"

namespace idd::daemon {

// Calls tasks in the order in which they were posted, and what timers, descriptors and signals call
// back in the order in which it is found due; neither keeps the other waiting indefinitely.
//
// Thread safety: Post() and Stop() may be called on any thread, the rest on the loop's. It outlives
// the timers, watches and signals that are made with it, but for those that its own callbacks own.
class EventLoop {
 public:
  EventLoop();
  // Destroys, without calling them, the tasks and callbacks that are left.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls `task` once, later on the loop.
  void Post(std::function<void()> task);

  // Calls what is due, and waits for more, until Stop().
  void Run();
  // Run() returns after the callback that it is in, and at once if it is called later.
  void Stop();

  // For tests. Calls one callback, or passes by one that is not wanted any more, and waits for it
  // no longer than `patience`; false: none came. An earlier Stop() is forgotten.
  bool RunOne(std::chrono::nanoseconds patience);
  // For tests. As Run(), but ends when there is nothing left to wait for: no task, no timer that is
  // set, no descriptor and no signal that is waited for. An earlier Stop() is forgotten.
  void RunUntilIdle();

 private:
  friend class Timer;
  friend class DescriptorWatch;
  friend class Signals;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Calls back once, not before its time; then it is idle until it is set again. One of no delay is
// called after whatever is due on the loop already.
//
// Thread safety: none; event loop.
class Timer {
 public:
  explicit Timer(EventLoop& loop);
  // As Cancel().
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Set again, it forgets what it was set to before.
  void At(MonotonicTime at, std::function<void()> callback);
  void After(std::chrono::nanoseconds delay, std::function<void()> callback);
  // No effect on one that is idle.
  void Cancel();

  // What it was set to last, also when that is over.
  [[nodiscard]] MonotonicTime expiry() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // its callbacks look whether they are still wanted
};

// A descriptor, and callbacks as soon as it can be read or written. It owns the descriptor: as long
// as the kernel watches it, no other code can close it and have its number given to another file.
//
// Thread safety: none; event loop.
class DescriptorWatch {
 public:
  explicit DescriptorWatch(EventLoop& loop);
  // As Close().
  ~DescriptorWatch();
  DescriptorWatch(const DescriptorWatch&) = delete;
  DescriptorWatch& operator=(const DescriptorWatch&) = delete;

  // Precondition: it has none. kSystem: the kernel has no room to watch one more, or `fd` is none;
  // then it is closed. A file on a disk may be opened, and is never ready.
  [[nodiscard]] Status Open(ScopedFd fd);

  // Calls back once: when there is something to read, or to accept, the other end is gone, or there
  // is an error, which a read then tells. Something that is there already counts. Asked again
  // before that, it forgets the earlier callback. Without a descriptor nothing is ever called.
  void WhenReadable(std::function<void()> callback);
  // The same for room to write; both may be waited for at a time.
  void WhenWritable(std::function<void()> callback);
  // Nothing is waited for any more; the descriptor stays.
  void Cancel();
  void Close();

  // For the system calls of its owner, who does not close it; -1: none.
  [[nodiscard]] int fd() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// Calls back for each of some signals that comes, however often, until it is destroyed. They do not
// end the process, nor interrupt it otherwise; those that come while the loop does not run are
// reported later. One signal that comes several times meanwhile may be reported once.
//
// Thread safety: none; event loop. One object of a process for a signal.
class Signals {
 public:
  Signals(EventLoop& loop, std::initializer_list<int> signals,
          std::function<void(int signal)> callback);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// A thread that calls tasks, one after the other, in the order in which they were posted.
//
// Thread safety: Post() may be called on any thread, the rest on the owner's. No exception may
// leave a task.
class WorkThread {
 public:
  WorkThread();
  // Waits for the task that is under way. Those that have not begun are destroyed without a call.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  void Post(std::function<void()> task);
  // Waits until all tasks that were posted are done, and ends the thread: nothing is called of what
  // is posted later.
  void Finish();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_EVENT_LOOP_H_
