// SPDX-License-Identifier: Apache-2.0
#include "contest.h"

#include <algorithm>
#include <memory>

#include "comparison_policies.h"
#include "refill/leaf_policy.h"
#include "refill/promise_policy.h"

namespace idd::simulator {
namespace {

template <typename Policy>
Contestant Of(const char* name) {
  return {.name = name, .make_policy = [](const daemon::RefillSettings& settings) {
            return std::make_unique<Policy>(settings);
          }};
}

}  // namespace

std::vector<Contestant> AllContestants() {
  return {Of<daemon::PromisePolicy>("idd"), Of<daemon::LeafPolicy>("Leaf"),
          Of<TinyidPolicy>("tinyid"), Of<CosidPolicy>("CosId")};
}

daemon::RefillSettings ContestSettings() { return {.step = 1000}; }

Result Play(const Scenario& scenario, const Contestant& contestant, const StoreModel& store) {
  Result all;
  for (const Trace& trace : scenario.tags) {
    all.Add(Simulate(trace, ContestSettings(), contestant.make_policy, store));
  }
  return all;
}

Result PlayOutage(const Scenario& scenario, const Contestant& contestant, Outage outage) {
  constexpr double kAfterS = 120;
  StoreModel store;
  store.outage = outage;
  Result all;
  for (Trace trace : scenario.tags) {
    trace.end_s = std::min(trace.end_s, outage.end_s + kAfterS);
    all.Add(Simulate(trace, ContestSettings(), contestant.make_policy, store));
  }
  return all;
}

}  // namespace idd::simulator
