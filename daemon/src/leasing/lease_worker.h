// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_LEASE_WORKER_H_
#define IDD_DAEMON_LEASING_LEASE_WORKER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "leasing/recovery.h"
#include "metrics/store_meter.h"
#include "store/store.h"

namespace idd::daemon {

// Whether the store answers, as last seen.
struct StoreHealth {
  bool up = false;
  MonotonicTime since{};     // of the present state
  std::string last_error;    // empty while up
  MonotonicTime next_try{};  // while down: earlier jobs fail at once
  FenceReport fence;
};

// The one thread that talks to the store and to the high-water marks: no database call is made on
// the event loop. Jobs run one after the other in the order of Submit; their completions are posted
// to the loop in the same order, so that the loop never sees a store's state from before a job
// whose completion it has handled.
//
// After a kUnavailable the store is left alone for a jittered, growing while (50 ms to 1 s): jobs
// that come in it fail at once with the last error. Never a storm of calls at a store that is down.
//
// Before each job the worker looks whether the store that it has open is still the one in place,
// and at the fence if a second has passed. No
// job runs on one that was (re)opened before the recovery has been through with it.
//
// Thread safety: Submit from any thread; Start and Stop from the owner.
class LeaseWorker {
 public:
  // Runs a completion on the event loop.
  using Post = std::function<void(std::function<void()>)>;
  // Called on the loop, before the completion of the job that noticed it.
  using HealthChange = std::function<void(const StoreHealth&)>;
  // What a host does first with a store that it has (re)opened: Recover() in recovery.h.
  using Recovery = std::function<Status(Store&, HighWaterMarks&, StoreSession&)>;

  LeaseWorker(std::unique_ptr<Store> store, std::unique_ptr<HighWaterMarks> marks, Post post);
  ~LeaseWorker();
  LeaseWorker(const LeaseWorker&) = delete;
  LeaseWorker& operator=(const LeaseWorker&) = delete;

  // `recovery` runs after every successful Open; if it fails the store counts as not open.
  void Start(Recovery recovery, HealthChange on_health);
  // Finishes the jobs already submitted and joins. Completions go on being posted.
  void Stop();
  // Gives up the jobs that have not begun; their completions never come.
  void DropQueued();

  // Looks whether the store is in place and opens it if not, unless jobs are waiting: they do it.
  // Only a change is told, to the HealthChange, so that an idle daemon is not woken.
  void CheckStore();

  // Works with another store from the next job on. What it has open is closed and forgotten; the
  // new one is opened and recovered as one that took the other's place, whatever it says it is.
  void Replace(std::unique_ptr<Store> store);

  // Before Start: what this host holds and knows before the store is opened.
  void Assume(StoreSession session);

  // From any thread.
  [[nodiscard]] StoreMeter& meter() noexcept { return meter_; }

  // Runs `work` on the worker's thread with an open store, then posts `done` with its result. When
  // the store cannot be opened `work` is not run and the result is that failure.
  template <typename T>
  void Submit(std::function<Result<T>(Store&, HighWaterMarks&)> work,
              std::function<void(Result<T>)> done) {
    SubmitWithSession<T>([work = std::move(work)](Store& store, HighWaterMarks& marks,
                                                  StoreSession&) { return work(store, marks); },
                         std::move(done));
  }
  // The same for work that needs to know what is held and leased.
  template <typename T>
  void SubmitWithSession(std::function<Result<T>(Store&, HighWaterMarks&, StoreSession&)> work,
                         std::function<void(Result<T>)> done) {
    Enqueue([this, work = std::move(work), done = std::move(done)] {
      Status ready = Prepare();
      Result<T> result =
          ready.ok() ? work(*store_, *marks_, session_) : Result<T>(std::move(ready));
      Observe(result.status());
      post_([done = std::move(done), result = std::move(result)]() mutable {
        done(std::move(result));
      });
    });
  }

  // The same for work on the marks alone: it is done whether or not the store can be opened, and
  // its failure is not the store's.
  template <typename T>
  void SubmitForMarks(std::function<Result<T>(HighWaterMarks&)> work,
                      std::function<void(Result<T>)> done) {
    Enqueue([this, work = std::move(work), done = std::move(done)] {
      post_(
          [done = std::move(done), result = work(*marks_)]() mutable { done(std::move(result)); });
    });
  }

 private:
  void Enqueue(std::function<void()> job);
  void Loop();
  [[nodiscard]] Status Prepare();
  [[nodiscard]] Result<bool> CheckFence();
  void LeaveFence();
  void Observe(const Status& status);
  void Publish();
  [[nodiscard]] std::chrono::milliseconds NextPause();

  const Post post_;
  Recovery recovery_;
  HealthChange on_health_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  StoreMeter meter_;

  // Below: the worker's thread only.
  std::unique_ptr<Store> store_;
  std::unique_ptr<HighWaterMarks> marks_;
  StoreHealth health_;
  StoreSession session_;
  bool opened_ = false;  // and recovered
  int failures_ = 0;
  std::mt19937 jitter_{std::random_device{}()};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_WORKER_H_
