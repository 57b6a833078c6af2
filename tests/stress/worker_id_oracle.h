// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_STRESS_WORKER_ID_ORACLE_H_
#define IDD_TESTS_STRESS_WORKER_ID_ORACLE_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "idd/shm/ring_protocol.h"
#include "store/store.h"

namespace idd::daemon {

// A call that made, or may have made, a host the owner of a worker id. Begin and end are ticks of
// the oracle.
struct WorkerTake {
  std::uint32_t worker = 0;
  std::string host;
  std::optional<std::string> owner{};  // before, as the host has seen it
  std::uint64_t now = 0;               // the first number of the host's time
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool is_certain = true;  // else the answer was lost
};

// A lease of a worker's counter that was answered.
struct WorkerGrant {
  std::uint32_t worker = 0;
  std::string host;
  std::string token;
  shm::IdRange ids{};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t used_limit = std::numeric_limits<std::uint64_t>::max();  // known once it goes back
  std::uint64_t returned = std::numeric_limits<std::uint64_t>::max();    // a tick

  // The end of what its host may use, as far as any call has changed that which had begun by then.
  [[nodiscard]] std::uint64_t LimitAt(std::uint64_t tick) const {
    if (returned >= tick) return ids.limit;
    return used_limit == ids.first ? 0 : used_limit;
  }
};

// Knows which host had which worker id and window, and finds out whether that was right.
//
// Calls of different hosts overlap in time, so it finds only what is wrong in whatever order the
// store has carried them out.
//
// Thread safety: all.
class WorkerIdOracle {
 public:
  // Rises with every call.
  [[nodiscard]] std::uint64_t Tick() { return ++tick_; }

  void Add(const WorkerTake& take);
  // Also finds out whether another host still uses numbers of the lease.
  void Add(const WorkerGrant& grant);
  // Call it before the store is asked: the host uses no number of the lease at or above `limit` any
  // more.
  void Trim(const std::string& token, std::uint64_t limit);
  void Fail(const std::string& problem);

  [[nodiscard]] bool has_failed() const;
  // Everything that was wrong; empty: nothing. `owners` and `journal` are the store's, at the end.
  [[nodiscard]] std::string Judge(const std::vector<WorkerRecord>& owners,
                                  const std::vector<LeaseRecord>& journal);

 private:
  struct Worker {
    std::vector<WorkerTake> takes;
    std::vector<WorkerGrant> grants;
  };

  void FailLocked(const std::string& problem);
  // Each lease belongs to the worker's owner at that moment.
  void JudgeOwners(const Worker& worker);
  // A worker id changes hands only when all windows of other hosts are over.
  void JudgeChanges(const Worker& worker);
  // The takes form a chain: of two hosts that saw the same owner, one takes the worker id.
  void JudgeChain(const Worker& worker, const std::string& last_owner);
  void JudgeJournal(const std::vector<LeaseRecord>& journal);

  std::atomic<std::uint64_t> tick_{0};
  mutable std::mutex mutex_;
  std::map<std::uint32_t, Worker> workers_;
  std::map<std::string, std::pair<std::uint32_t, std::size_t>> places_;  // of grants, by token
  std::vector<std::string> problems_;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_STRESS_WORKER_ID_ORACLE_H_
