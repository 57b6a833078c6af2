// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_STRESS_WORKER_ID_HOSTS_H_
#define IDD_TESTS_STRESS_WORKER_ID_HOSTS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "leasing/snowflake_windows.h"
#include "store/store.h"
#include "store/term_store.h"
#include "unit/support/fake_marks.h"
#include "worker_id_oracle.h"

namespace idd::daemon {

// What happened to all hosts of a run.
struct WorkerIdTally {
  std::atomic<std::uint64_t> leases{0};
  std::atomic<std::uint64_t> returns{0};
  std::atomic<std::uint64_t> crashes{0};
  std::atomic<std::uint64_t> takes{0};
  std::atomic<std::uint64_t> changes{0};     // takes from another host
  std::atomic<std::uint64_t> all_in_use{0};  // refusals to plan
  std::atomic<std::uint64_t> not_owner{0};   // leases that were refused
  std::atomic<std::uint64_t> lost{0};        // a take that another host was faster with
  std::atomic<std::uint64_t> lifts{0};
  std::atomic<std::uint64_t> waits{0};     // for a window that is held to end
  std::atomic<std::uint64_t> unknown{0};   // calls that the store did not answer
  std::atomic<std::uint64_t> reopened{0};  // stores, without a crash of their host
  std::atomic<std::uint64_t> steps{0};
};

// What the hosts of a run share.
struct WorkerIdRun {
  std::function<std::unique_ptr<Store>(const std::string& host)> make_store;
  TagRecord tag;
  std::int64_t step_ms = 0;  // how far the clock moves on for each step, on average
  std::atomic<std::int64_t> clock_ms{1'800'000'000'000};
  std::atomic<std::uint64_t> tokens{0};
  WorkerIdOracle oracle;
  WorkerIdTally tally;
};

// A host as far as worker ids and windows go: what leasing/ and tags/ do with a store, on a virtual
// clock of its own. It leases, stops, and crashes at random.
//
// Thread safety: none; hosts of one run may be used by different threads.
class WorkerIdHost {
 public:
  WorkerIdHost(WorkerIdRun& run, std::string name, std::uint64_t seed);
  ~WorkerIdHost();

  // Does one thing.
  void Step();
  // Takes all worker ids, and leases from some. Returns how many it was given.
  [[nodiscard]] std::size_t TakeEveryWorkerId();

 private:
  class WatchedStore;

  [[nodiscard]] std::uint64_t Between(std::uint64_t least, std::uint64_t most);
  [[nodiscard]] bool IsOneOf(std::uint64_t chances) { return Between(1, chances) == 1; }
  [[nodiscard]] std::int64_t NowMs() const { return run_.clock_ms + skew_ms_; }
  [[nodiscard]] std::uint64_t NumberAt(std::int64_t unix_ms) const;

  [[nodiscard]] bool Open();
  [[nodiscard]] Status Recover();
  [[nodiscard]] Status ArriveAtTerm();
  [[nodiscard]] Status OpenCounter(const std::string& counter);
  void PassTime();
  void CloseOver();
  void LeaseAWindow();
  [[nodiscard]] bool HoldsEnough() const;
  // Nothing: there is no plan now.
  [[nodiscard]] std::optional<WindowPlan> Plan();
  // Whether the lease was granted.
  bool Take(const LeaseRequest& request);
  // Hands back what is held, the newest first, and keeps what was used by then.
  void HandBack();
  [[nodiscard]] bool HandBackOne(const Lease& lease, std::uint64_t used);
  void Stop();
  void Crash();
  void Lift();
  // Counts a call that was not answered. Another error is a failure of the run.
  void OnError(const Status& status, const char* what);

  WorkerIdRun& run_;
  std::string name_;
  std::mt19937_64 random_;
  std::unique_ptr<FakeMarks> marks_;
  std::unique_ptr<WatchedStore> store_;
  bool was_open_ = false;         // this object of a store
  TermRow term_;                  // of a store with terms
  std::set<std::string> opened_;  // counters that may be leased in it
  std::int64_t skew_ms_ = 0;
  std::string counter_;
  std::deque<Lease> held_;
  std::uint64_t floor_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_STRESS_WORKER_ID_HOSTS_H_
