// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_SCENARIO_H_
#define IDD_TESTS_SIMULATION_SCENARIO_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "incidents.h"
#include "world.h"

namespace idd::simulation {

struct RunResult {
  std::optional<std::string> failure;
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
  std::uint64_t claimed = 0;
  std::uint64_t leases = 0;
  std::vector<std::pair<std::string, std::uint64_t>> met;
};

using Tracer = std::function<void(Nanos, const std::string&)>;

// Runs the seed's cluster through these incidents, then heals everything and checks that every
// program claims again. Stops at the first broken promise.
[[nodiscard]] RunResult RunScenario(std::uint64_t seed, const std::vector<Incident>& incidents,
                                    const Tracer& tracer = {});
// The fewest of the incidents, found by leaving some out, that still break a promise.
[[nodiscard]] std::vector<Incident> Shrink(std::uint64_t seed, std::vector<Incident> incidents);

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_SCENARIO_H_
