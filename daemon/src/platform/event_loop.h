// SPDX-License-Identifier: Apache-2.0
//
// The event loop, and all that calls back on it: tasks, timers, descriptors, signals; and a thread
// for work that the loop must not wait for. Only event_loop.cc uses Boost.Asio, so another clock or
// another order can replace it.
//
// Rules for every callback:
// - It is called on the loop: in the thread that is in Run(), RunOne() or RunUntilIdle(), one at a
//   time, and never from within the call that asked for it.
// - It is called at most once for each time that it was asked for. It is no longer called once its
//   wait was cancelled or replaced, or the object closed or destroyed, even if it was already due
//   and only waited for its turn. So it may capture the object that owns the timer or descriptor.
// - It may cancel, use again or destroy the object that called it.
// - Its captures are destroyed after the call. If it is not called, they are destroyed later on the
//   loop or with the loop, and until then may keep alive the timer that would have called it.
// - An exception that it throws leaves Run().
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

// Calls tasks in the order in which they were posted, and the callbacks of timers, descriptors and
// signals in the order in which they are found due. Neither kind keeps the other waiting
// indefinitely.
//
// A callback holds the loop until it returns: its turn. Work that may take longer than a turn asks
// IsTurnOver() between its steps and leaves the rest to later turns (platform/turns.h). Short tasks
// share a turn; if more are posted than fit, the loop looks at timers and descriptors in between.
//
// Thread safety: Post() and Stop() may be called on any thread, the rest on the loop's. It outlives
// the timers, watches and signals that are made with it, except those that its own callbacks own.
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
  // Makes Run() return after the present callback, or at once if Run() is called later.
  void Stop();

  // Whether the present callback has held the loop for as long as it should. False outside of
  // callbacks.
  [[nodiscard]] bool IsTurnOver() const;
  // How long that is; a millisecond, unless a test sets it.
  void SetTurn(std::chrono::nanoseconds turn);
  // Calls `watch` after each callback with the processor time that it took. Null: none.
  using TurnWatch = std::function<void(std::chrono::nanoseconds processor_time)>;
  void WatchTurns(TurnWatch watch);

  // For tests. Calls one callback, or skips one that was cancelled, and waits for it at most
  // `patience`; false: none came. An earlier Stop() is forgotten.
  bool RunOne(std::chrono::nanoseconds patience);
  // For tests. Like Run(), but ends when nothing is left to wait for: no task, no timer that is
  // set, no descriptor and no signal that is waited for. An earlier Stop() is forgotten.
  void RunUntilIdle();

 private:
  friend class Timer;
  friend class DescriptorWatch;
  friend class Signals;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Calls back once, not before its time; then it is idle until it is set again. A callback with no
// delay comes after the timers and descriptors that are already due on the loop, and after one turn
// of tasks.
//
// Thread safety: none; event loop.
class Timer {
 public:
  explicit Timer(EventLoop& loop);
  // Like Cancel().
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Setting the timer again replaces its earlier time and callback.
  void At(MonotonicTime at, std::function<void()> callback);
  void After(std::chrono::nanoseconds delay, std::function<void()> callback);
  // No effect on one that is idle.
  void Cancel();

  // The time that it was last set to, even if that has passed.
  [[nodiscard]] MonotonicTime expiry() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // its callbacks check whether they are still wanted
};

// Owns a descriptor and calls back as soon as it can be read or written. Because of the ownership,
// no other code can close the descriptor while the kernel watches it, so its number cannot pass to
// another file.
//
// Thread safety: none; event loop.
class DescriptorWatch {
 public:
  explicit DescriptorWatch(EventLoop& loop);
  // Like Close().
  ~DescriptorWatch();
  DescriptorWatch(const DescriptorWatch&) = delete;
  DescriptorWatch& operator=(const DescriptorWatch&) = delete;

  // Precondition: there is no descriptor yet. kSystem: the kernel has no room to watch one more, or
  // `fd` is not a descriptor; `fd` is then closed. A file on a disk can be opened, but is never
  // ready.
  [[nodiscard]] Status Open(ScopedFd fd);

  // Calls back once: when there is something to read or accept, the other end is gone, or there is
  // an error, which a read then returns. Data that is already there counts. A new call replaces the
  // earlier callback. Without a descriptor, nothing is ever called.
  void WhenReadable(std::function<void()> callback);
  // The same for room to write; both may be waited for at a time.
  void WhenWritable(std::function<void()> callback);
  // Ends both waits; the descriptor stays open.
  void Cancel();
  void Close();

  // For the owner's system calls. The owner must not close it. -1: none.
  [[nodiscard]] int fd() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// Calls back for every arrival of the given signals until it is destroyed. The signals do not end
// or interrupt the process. Signals that come while the loop does not run are reported later;
// several arrivals of one signal may then be reported once.
//
// Thread safety: none; event loop. At most one object per signal in a process.
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
  // Waits for the task that is under way. Tasks that have not begun are destroyed without a call.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  void Post(std::function<void()> task);
  // Waits until all posted tasks are done and ends the thread. Tasks that are posted later are
  // never called.
  void Finish();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_EVENT_LOOP_H_
