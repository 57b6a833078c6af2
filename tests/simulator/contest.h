// SPDX-License-Identifier: Apache-2.0
//
// The policies side by side on every scenario.
#ifndef IDD_TESTS_SIMULATOR_CONTEST_H_
#define IDD_TESTS_SIMULATOR_CONTEST_H_

#include <string>
#include <vector>

#include "simulator.h"

namespace idd::simulator {

struct Contestant {
  std::string name;
  MakePolicy make_policy;
};

// idd first; then Leaf's rule, tinyid's and CosId's.
[[nodiscard]] std::vector<Contestant> AllContestants();

// The settings that all of them start from.
[[nodiscard]] daemon::RefillSettings ContestSettings();

// All tags of a scenario, each with a store of its own.
[[nodiscard]] Result Play(const Scenario& scenario, const Contestant& contestant,
                          const StoreModel& store = {});

// The same with an outage; ends at most two minutes after the outage.
[[nodiscard]] Result PlayOutage(const Scenario& scenario, const Contestant& contestant,
                                Outage outage);

}  // namespace idd::simulator

#endif  // IDD_TESTS_SIMULATOR_CONTEST_H_
