// SPDX-License-Identifier: Apache-2.0
//
// The simulated world: one clock, one order of events, one source of chance; and processes, whose
// threads are fibers. Everything that happens follows from the seed.
#ifndef IDD_TESTS_SIMULATION_WORLD_H_
#define IDD_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fiber.h"
#include "host_clock.h"
#include "idd/base/clock.h"

namespace idd::simulation {

// Numbers that follow from a seed, the same on every machine (xoshiro256**, seeded by splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept;
  std::uint64_t Next() noexcept;
  // From 0 to below `n`, n > 0.
  std::uint64_t Below(std::uint64_t n) noexcept;
  // Both ends included.
  std::int64_t Between(std::int64_t low, std::int64_t high) noexcept;
  bool Percent(unsigned percent) noexcept { return Below(100) < percent; }

 private:
  std::uint64_t state_[4];
};

// At most one at a time; it is the source of MonotonicClock, WallClock and RandomBits while it
// exists.
class World {
 public:
  explicit World(std::uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] static World& Get();

  [[nodiscard]] Nanos now() const noexcept { return now_; }
  // For the times of what happens. Product code has another source, so that a change of one use
  // does not change all later times.
  [[nodiscard]] Random& random() noexcept { return random_; }
  [[nodiscard]] Random& product_random() noexcept { return product_random_; }

  // Calls `event` at that time, in the order of times, then of calls. A time that has passed is
  // now.
  void At(Nanos time, std::function<void()> event);
  void After(Nanos delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }
  // Calls the events up to that time.
  void RunUntil(Nanos time);

  // One line of the trace: what happened, for a reader. Lines count for the trace's hash, which two
  // runs of a seed share.
  void Trace(std::string line);
  void SetTracer(std::function<void(Nanos, const std::string&)> tracer) {
    tracer_ = std::move(tracer);
  }
  [[nodiscard]] std::uint64_t trace_hash() const noexcept { return trace_hash_; }
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }

  // 1, 2, ... in this world.
  [[nodiscard]] std::uint64_t NextId() noexcept { return ++last_id_; }

  // A situation that a set of runs must have met, and how often it did.
  void Met(std::string_view situation);
  [[nodiscard]] const std::vector<std::pair<std::string, std::uint64_t>>& met() const noexcept {
    return met_;
  }

 private:
  struct Event {
    Nanos time = 0;
    std::uint64_t number = 0;
    std::function<void()> call;
  };
  struct IsLater {
    bool operator()(const Event& a, const Event& b) const noexcept {
      return a.time != b.time ? a.time > b.time : a.number > b.number;
    }
  };

  Nanos now_ = 0;
  Random random_;
  Random product_random_;
  std::vector<Event> queue_;  // a heap
  std::uint64_t next_number_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t last_id_ = 0;
  std::uint64_t trace_hash_ = 0xcbf29ce484222325;
  std::function<void(Nanos, const std::string&)> tracer_;
  std::vector<std::pair<std::string, std::uint64_t>> met_;
};

// Thrown in every thread of a process that is killed, from the call in which it waits. Nothing
// catches it but Thread, so that destructors run, which must have no effect outside the process.
struct Killed {};

class Process;

// A thread of a process.
class Thread {
 public:
  [[nodiscard]] static Thread* Current() noexcept;
  [[nodiscard]] Process& process() const noexcept { return process_; }
  // Waits until Wake(), or until that time if it is given. Returns at once while the process dies
  // and this thread unwinds; otherwise throws Killed if it is killed.
  void Wait(std::optional<Nanos> until);
  void Sleep(Nanos duration);
  // The same for code that must not throw. False: the thread was killed; from then on the caller
  // must have no effect, and must call ThrowIfKilled() as soon as it may throw.
  [[nodiscard]] bool TryWait(std::optional<Nanos> until);
  void ThrowIfKilled();
  // Ends the Wait() that is under way, a moment later. No effect on a thread that does not wait.
  void Wake();
  [[nodiscard]] bool has_ended() const noexcept { return fiber_.has_ended(); }

 private:
  friend class Process;
  Thread(Process& process, std::function<void()> body);
  void Resume();
  void Continue(std::uint64_t wait);

  // Calls Continue() of the present wait at that time, if the thread still exists.
  void ContinueAt(Nanos time);

  Process& process_;
  Fiber fiber_;
  const std::shared_ptr<bool> exists_ = std::make_shared<bool>(true);
  std::uint64_t wait_ = 0;  // number of the newest Wait()
  bool is_waiting_ = false;
  bool is_unwinding_ = false;
};

// A process: its threads, its machine's clock, its end.
class Process {
 public:
  // `clock` must outlive it.
  Process(std::string name, const HostClock& clock);
  // Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The one whose thread runs; null outside.
  [[nodiscard]] static Process* Current() noexcept;
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const HostClock& clock() const noexcept { return clock_; }
  [[nodiscard]] bool is_dead() const noexcept { return is_dead_; }
  [[nodiscard]] bool is_suspended() const noexcept { return is_suspended_; }

  // Runs `main` in the first thread, a moment later; `on_exit` is called in the world when it has
  // returned, and not after a kill.
  void Start(std::function<void()> main, std::function<void()> on_exit);
  // Adds a thread. It begins a moment later.
  Thread& AddThread(std::function<void()> body);
  // Ends and removes a thread of this process, which must have nothing left to do or be unwinding.
  void Remove(Thread& thread);

  // kill -9, from outside of all fibers.
  void Kill();
  // kill -9 at this very point of the thread that runs, which is one of this process. Kill() must
  // follow from outside.
  [[noreturn]] void Die();
  // How often it was suspended so far.
  [[nodiscard]] std::uint64_t suspensions() const noexcept { return suspensions_; }
  // SIGSTOP and SIGCONT.
  void Suspend() noexcept {
    is_suspended_ = true;
    ++suspensions_;
  }
  void Unsuspend();

 private:
  friend class Thread;
  const std::string name_;
  const HostClock& clock_;
  std::list<std::unique_ptr<Thread>> threads_;  // the first is main
  std::vector<Thread*> held_up_;                // their wait ended while it was suspended
  bool is_dead_ = false;
  bool is_suspended_ = false;
  std::uint64_t suspensions_ = 0;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_WORLD_H_
