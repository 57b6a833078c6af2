// SPDX-License-Identifier: Apache-2.0
#include "scenario.h"

#include <algorithm>
#include <utility>

#include "cluster_run.h"

namespace idd::simulation {
namespace {

// The kind of a failure: "twice", "stuck" ...
std::string KindOf(const std::optional<std::string>& failure) {
  return failure.value_or("").substr(0, failure.value_or("").find(':'));
}

}  // namespace

RunResult RunScenario(std::uint64_t seed, const std::vector<Incident>& incidents,
                      const Tracer& tracer) {
  ClusterRun run(seed, tracer);
  return run.Run(incidents);
}

std::vector<Incident> Shrink(std::uint64_t seed, std::vector<Incident> incidents) {
  const std::string kind = KindOf(RunScenario(seed, incidents).failure);
  for (std::size_t part = std::max<std::size_t>(incidents.size() / 2, 1); part > 0; part /= 2) {
    for (std::size_t begin = 0; begin < incidents.size();) {
      std::vector<Incident> fewer = incidents;
      const std::size_t end = std::min(begin + part, fewer.size());
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(begin),
                  fewer.begin() + static_cast<std::ptrdiff_t>(end));
      if (KindOf(RunScenario(seed, fewer).failure) == kind) {
        incidents = std::move(fewer);
      } else {
        begin += part;
      }
    }
  }
  return incidents;
}

}  // namespace idd::simulation
