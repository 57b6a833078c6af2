// SPDX-License-Identifier: Apache-2.0
//
// refill_simulator: runs every scenario with every policy, and idd's policy also with outages, and
// prints the results as JSON. scripts/refill-report makes the table and the charts of
// docs/refill.md from them.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "contest.h"

int main() {
  using namespace idd::simulator;
  nlohmann::json all = nlohmann::json::array();
  for (const Scenario& scenario : AllScenarios()) {
    const int outages = scenario.tags.size() > 1 ? 4 : 20;
    nlohmann::json rows = nlohmann::json::array();
    for (const Contestant& contestant : AllContestants()) {
      const Result result = Play(scenario, contestant);
      const double hours = scenario.tags.front().end_s / 3600;
      const double tolerance =
          std::chrono::duration<double>(ContestSettings().outage_tolerance).count();
      double outage_dry = 0;
      for (int i = 0; i < outages; ++i) {
        const double room = scenario.tags.front().end_s - scenario.shown_s - tolerance;
        const double begin = scenario.shown_s + room * i / outages;
        outage_dry +=
            PlayOutage(scenario, contestant, {begin, begin + tolerance}).outage_dry_claims;
      }
      rows.push_back({{"policy", contestant.name},
                      {"claims", result.claims},
                      {"dry_claims", result.dry_claims},
                      {"longest_dry_ms", result.longest_dry_s * 1e3},
                      {"leases_per_hour", static_cast<double>(result.leases) / hours},
                      {"held_mean", result.held_mean},
                      {"held_max", result.held_max},
                      {"wasted", result.wasted},
                      {"outage_dry_claims", outage_dry / outages}});
    }
    all.push_back({{"scenario", scenario.name},
                   {"what", scenario.what},
                   {"tags", scenario.tags.size()},
                   {"policies", rows}});
  }
  std::puts(all.dump(1).c_str());
  return 0;
}
