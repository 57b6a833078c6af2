// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_WORKER_SITUATION_H_
#define IDD_TESTS_SIMULATION_WORKER_SITUATION_H_

#include <algorithm>
#include <vector>

#include "store/store.h"

namespace idd::simulation {

// Why a host took a worker id, by the owners and counters right before.
[[nodiscard]] inline const char* SituationOf(const std::vector<daemon::WorkerRecord>& before,
                                             const daemon::WorkerChoice& choice) {
  const auto is_mine = [](const daemon::WorkerRecord& worker) { return worker.is_mine; };
  const bool has_another = std::any_of(before.begin(), before.end(), [&](const auto& worker) {
    return is_mine(worker) && worker.worker != choice.worker && worker.next_number > choice.at_most;
  });
  const bool is_again = std::any_of(before.begin(), before.end(), [&](const auto& worker) {
    return is_mine(worker) && worker.worker == choice.worker;
  });
  if (is_again) return "a host took a worker id again that it had before";
  if (has_another) return "a host took another worker id because its counter was lifted";
  if (choice.owner.has_value()) return "a worker id of another host was taken over";
  return "a host took a worker id that was never used";
}

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_WORKER_SITUATION_H_
