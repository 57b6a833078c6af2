// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_LEASE_WORKER_H_
#define IDD_DAEMON_LEASING_LEASE_WORKER_H_

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "leasing/recovery.h"
#include "metrics/store_meter.h"
#include "platform/event_loop.h"
#include "platform/random.h"
#include "store/store.h"

namespace idd::daemon {

// Whether the store answers, as seen last.
struct StoreHealth {
  bool up = false;
  MonotonicTime since{};     // of the present state
  std::string last_error;    // empty while up
  MonotonicTime next_try{};  // while down: until then, jobs fail at once
  AgreementReport agreement;
};

// The one thread that talks to the store and to the high-water marks: no database call is made on
// the event loop. Jobs run one after the other in the order of Submit; their completions are posted
// to the loop in the same order, so that the loop never sees a store's state from before a job
// whose completion it has handled.
//
// After a failure of the store (IsOfStore()) the worker leaves it alone for a jittered, growing
// pause, at most a second, in which jobs fail at once with the last error. So there is never a
// storm of calls on a store that is down. An error of one tag, row or request fails its job only.
//
// Before each job the worker checks that the store that it has open is still the one in place, and
// looks at the term if that is due. No job runs on a (re)opened store before the recovery
// has succeeded.
//
// It has more members than a class should: those of two threads, the queue between them and the
// open store.
//
// Thread safety: Submit from any thread; Start and Stop from the owner.
class LeaseWorker {
 public:
  // Runs a completion on the event loop.
  using Post = std::function<void(std::function<void()>)>;
  // Called on the loop, before the completion of the job that noticed it.
  using HealthChange = std::function<void(const StoreHealth&)>;
  // The worker's first step on a store that it has (re)opened: Recover() in recovery.h.
  using Recovery = std::function<Status(Store&, HighWaterMarks&, StoreSession&)>;

  LeaseWorker(std::unique_ptr<Store> store, std::unique_ptr<HighWaterMarks> marks, Post post);
  ~LeaseWorker();
  LeaseWorker(const LeaseWorker&) = delete;
  LeaseWorker& operator=(const LeaseWorker&) = delete;

  // `recovery` runs after every successful Open; if it fails, the store counts as not open.
  void Start(Recovery recovery, HealthChange on_health);
  // Finishes the submitted jobs and ends the thread. Their completions are still posted.
  void Stop();
  // Gives up the jobs that have not begun; their completions never come.
  void DropQueued();

  // Checks that the store is in place and opens it if not, unless jobs are waiting, which do the
  // same. Reports only a change, to the HealthChange, so that an idle daemon is not woken.
  void CheckStore();

  // Uses another store from the next job on. Closes and forgets the present one; opens and recovers
  // the new one as a replacement of it, whatever identity it reports.
  void Replace(std::unique_ptr<Store> store);

  // Opens the store, and makes its database if it is missing or empty, although this host has used
  // it before or knows of granted ids: an operator wants it. The recovery then pushes what this
  // host knows, so that no id is leased twice. `done`: whether the database was made.
  void MakeDatabase(std::function<void(Result<bool>)> done);

  // To be called before Start: what this host holds and knows before the store is opened.
  void Assume(StoreSession session);

  // May be called from any thread.
  [[nodiscard]] StoreMeter& meter() noexcept { return meter_; }

  // Runs `work` on the worker's thread with an open store, then posts `done` with its result. If
  // the store cannot be opened, `work` is not run and the result is that failure.
  template <typename T>
  void Submit(std::function<Result<T>(Store&, HighWaterMarks&)> work,
              std::function<void(Result<T>)> done) {
    SubmitWithSession<T>([work = std::move(work)](Store& store, HighWaterMarks& marks,
                                                  StoreSession&) { return work(store, marks); },
                         std::move(done));
  }
  // The same for work that needs the session.
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
  void RunNext();
  [[nodiscard]] Status Prepare();
  [[nodiscard]] Status OpenAndRecover();
  [[nodiscard]] Status OpenStore();
  [[nodiscard]] Result<bool> OpenOrMake();
  [[nodiscard]] Result<bool> LookAtTerm();
  void LeaveStore();
  void Observe(const Status& status);
  void Publish();
  [[nodiscard]] std::chrono::milliseconds NextPause();

  const Post post_;
  Recovery recovery_;
  HealthChange on_health_;

  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;  // the thread has a task for each
  StoreMeter meter_;

  // Below: the worker's thread only.
  std::unique_ptr<Store> store_;
  std::unique_ptr<HighWaterMarks> marks_;
  StoreHealth health_;
  StoreSession session_;
  bool opened_ = false;  // and recovered as well
  int failures_ = 0;
  std::mt19937_64 jitter_{RandomBits::Next()};

  std::unique_ptr<WorkThread> thread_;  // set by Start(); last: it ends before the rest goes
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_WORKER_H_
