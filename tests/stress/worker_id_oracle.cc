// SPDX-License-Identifier: Apache-2.0
#include "worker_id_oracle.h"

#include <algorithm>
#include <set>
#include <utility>

#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

constexpr std::size_t kMostProblems = 20;

std::string TextOf(const WorkerGrant& grant) {
  return "worker " + std::to_string(grant.worker) + ": lease [" + std::to_string(grant.ids.first) +
         ", " + std::to_string(grant.ids.limit) + ") of " + grant.host;
}

// Whether `host` may have become the owner, and stayed it, between the end of `take` and `tick`.
bool MayHaveRetaken(const std::vector<WorkerTake>& takes, const std::string& host,
                    const WorkerTake& take, std::uint64_t tick) {
  return std::any_of(takes.begin(), takes.end(), [&](const WorkerTake& other) {
    return other.host == host && other.begin < tick && other.end > take.begin;
  });
}

}  // namespace

void WorkerIdOracle::Add(const WorkerTake& take) {
  const std::lock_guard lock(mutex_);
  workers_[take.worker].takes.push_back(take);
}

void WorkerIdOracle::Add(const WorkerGrant& grant) {
  const std::lock_guard lock(mutex_);
  Worker& worker = workers_[grant.worker];
  for (const WorkerGrant& other : worker.grants) {
    const std::uint64_t limit = std::min(other.ids.limit, other.used_limit);
    if (std::max(other.ids.first, grant.ids.first) < std::min(limit, grant.ids.limit)) {
      FailLocked(TextOf(grant) + " overlaps " + TextOf(other));
    }
  }
  if (!places_.emplace(grant.token, std::pair(grant.worker, worker.grants.size())).second) {
    FailLocked(TextOf(grant) + " has the token of another lease");
  }
  worker.grants.push_back(grant);
}

void WorkerIdOracle::Trim(const std::string& token, std::uint64_t limit) {
  const std::lock_guard lock(mutex_);
  const auto [worker, place] = places_.at(token);
  WorkerGrant& grant = workers_[worker].grants[place];
  grant.used_limit = limit;
  grant.returned = Tick();
}

void WorkerIdOracle::Fail(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  FailLocked(problem);
}

void WorkerIdOracle::FailLocked(const std::string& problem) {
  if (problems_.size() < kMostProblems) problems_.push_back(problem);
}

bool WorkerIdOracle::has_failed() const {
  const std::lock_guard lock(mutex_);
  return !problems_.empty();
}

std::string WorkerIdOracle::Judge(const std::vector<WorkerRecord>& owners,
                                  const std::vector<LeaseRecord>& journal) {
  const std::lock_guard lock(mutex_);
  std::map<std::uint32_t, std::string> last_owners;
  for (const WorkerRecord& owner : owners) last_owners[owner.worker] = owner.host;
  for (const auto& [number, worker] : workers_) {
    JudgeOwners(worker);
    JudgeChanges(worker);
    JudgeChain(worker, last_owners[number]);
  }
  JudgeJournal(journal);
  std::string text;
  for (const std::string& problem : problems_) text += problem + "\n";
  return text;
}

void WorkerIdOracle::JudgeOwners(const Worker& worker) {
  for (const WorkerGrant& grant : worker.grants) {
    const bool is_owner =
        std::any_of(worker.takes.begin(), worker.takes.end(), [&](const WorkerTake& mine) {
          if (mine.host != grant.host || mine.begin >= grant.end) return false;
          return std::none_of(worker.takes.begin(), worker.takes.end(),
                              [&](const WorkerTake& other) {
                                return other.is_certain && other.host != grant.host &&
                                       mine.end < other.begin && other.end < grant.begin;
                              });
        });
    if (!is_owner) FailLocked(TextOf(grant) + ": the host did not own the worker id");
  }
}

void WorkerIdOracle::JudgeChanges(const Worker& worker) {
  for (const WorkerTake& take : worker.takes) {
    if (!take.is_certain || take.owner == take.host) continue;
    for (const WorkerGrant& grant : worker.grants) {
      const bool is_earlier = grant.host != take.host && grant.begin < take.end &&
                              !MayHaveRetaken(worker.takes, grant.host, take, grant.end);
      if (!is_earlier || grant.LimitAt(take.end) <= take.now) continue;
      FailLocked(TextOf(grant) + " was not over for " + take.host +
                 ", which took the worker id at " + std::to_string(take.now));
    }
  }
}

void WorkerIdOracle::JudgeChain(const Worker& worker, const std::string& last_owner) {
  struct Links {
    int certainly_in = 0;
    int perhaps_in = 0;
    int out = 0;
  };
  std::map<std::string, Links> hosts;
  bool is_certain = true;
  const std::string nobody;
  for (const WorkerTake& take : worker.takes) {
    if (take.owner == take.host) continue;
    is_certain = is_certain && take.is_certain;
    ++(take.is_certain ? hosts[take.host].certainly_in : hosts[take.host].perhaps_in);
    if (take.is_certain) ++hosts[take.owner.value_or(nobody)].out;
  }
  hosts[nobody].certainly_in = 1;
  for (const auto& [host, links] : hosts) {
    const int left = links.certainly_in - links.out - (host == last_owner ? 1 : 0);
    const bool is_right = is_certain ? left == 0 : left + links.perhaps_in >= 0;
    if (is_right || worker.takes.empty()) continue;
    FailLocked("worker " + std::to_string(worker.takes.front().worker) + ": '" + host +
               "' became its owner " + std::to_string(links.certainly_in) + " times (perhaps " +
               std::to_string(links.perhaps_in) + " more), lost it " + std::to_string(links.out) +
               " times, and '" + last_owner + "' owns it at the end");
  }
}

// Every answered lease is journalled as its host's, and no number was kept by two leases, answered
// or not.
void WorkerIdOracle::JudgeJournal(const std::vector<LeaseRecord>& journal) {
  std::map<std::string, std::vector<shm::IdRange>> kept;
  std::set<std::string> found;
  for (const LeaseRecord& lease : journal) {
    const std::uint64_t size = lease.ids.size() - lease.returned;
    if (size != 0) kept[lease.tag].push_back({lease.ids.first, lease.ids.first + size});
    const auto place = places_.find(lease.token);
    if (place == places_.end()) continue;
    const WorkerGrant& grant = workers_[place->second.first].grants[place->second.second];
    found.insert(lease.token);
    const std::optional<CounterOf> counter = ParseCounterName(lease.tag);
    const bool is_same = counter.has_value() && counter->worker == grant.worker &&
                         lease.host == grant.host && lease.ids == grant.ids;
    if (!is_same) FailLocked(TextOf(grant) + " is not as journalled");
    if (lease.ids.first + size < std::min(grant.used_limit, grant.ids.limit)) {
      FailLocked(TextOf(grant) + ": more went back than its host gave back");
    }
  }
  if (found.size() != places_.size()) {
    FailLocked(std::to_string(places_.size() - found.size()) + " leases are not in the journal");
  }
  for (auto& [counter, ranges] : kept) {
    std::sort(ranges.begin(), ranges.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first < ranges[i - 1].limit) {
        FailLocked(counter + ": numbers from " + std::to_string(ranges[i].first) +
                   " on were kept by two leases");
      }
    }
  }
}

}  // namespace idd::daemon
