// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_STORE_HISTORY_H_
#define IDD_TESTS_SIMULATION_STORE_HISTORY_H_

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "data_set.h"
#include "store/store.h"

namespace idd::daemon {

// A random history of leases, hand-backs, closures, lifts, changes of tags and of the owners of
// worker ids by two hosts on one data set, carried out by a real store and by the simulator's model
// of it. Every answer must be the same, and the tables afterwards.
class StoreHistory {
 public:
  // `stores`: of hosts "a" and "b", on the same data set. Tags and tokens belong to the seed; the
  // leases that an earlier history left there count as abandoned.
  StoreHistory(std::uint32_t seed, std::array<Store*, 2> stores);
  void Run(int steps);

 private:
  struct Known {
    std::string token;
    std::string tag;
    std::size_t host = 0;
    shm::IdRange ids;
  };

  void Step();
  void TakeLease();
  void CloseLeases();
  void ReturnTail();
  void AbandonActive();
  void Reconcile();
  void SettleLeases();
  void LiftTag();
  void DeleteTag();
  void CreateTag(const std::string& tag);
  void CreateSnowflake();
  void TakeWorker();
  void CompareTables();
  [[nodiscard]] std::uint64_t Below(std::uint64_t n) { return random_() % n; }
  [[nodiscard]] const std::string& AnyTag() { return tags_[Below(tags_.size())]; }
  void CompareWorkers();
  void CompareSums();
  [[nodiscard]] std::string NewToken();
  // The steps so far, for the message of a failure.
  [[nodiscard]] std::string Story() const;
  void Say(std::string step);

  std::mt19937_64 random_;
  const std::uint32_t seed_;
  const std::array<Store*, 2> stores_;
  const std::array<std::string, 2> hosts_{"a", "b"};
  simulation::DataSet model_;
  std::vector<std::string> tags_;  // rows of leaf_alloc: two tags, and counters of snowflake_
  std::string snowflake_;
  std::vector<Known> leases_;
  std::uint32_t tokens_ = 0;
  std::vector<std::string> story_;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_SIMULATION_STORE_HISTORY_H_
