// SPDX-License-Identifier: Apache-2.0
#include "scenario.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "cluster_run.h"

namespace idd::simulation {
namespace {

// The kind of a failure: "twice", "stuck" ...
std::string KindOf(const std::optional<std::string>& failure) {
  return failure.value_or("").substr(0, failure.value_or("").find(':'));
}

// What a whole cluster may use, all programs and the records of the oracle included.
constexpr std::size_t kMostHeap = 16 << 20;
// And for each lease, which the journals of up to three servers and of a dump keep, in vectors.
constexpr std::size_t kMostForALease = 2048;
// Caches of libraries, which a run may fill.
constexpr std::size_t kMostLeft = 256 << 10;

// Under a sanitizer it is always 0.
std::size_t HeapInUse() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;  // large blocks are in either, as malloc likes
}

void CheckHeap(std::size_t before, std::size_t most, const char* what, RunResult& result) {
  const std::size_t now = HeapInUse();
  if (result.failure.has_value() || now <= before + most) return;
  result.failure = "memory: " + std::to_string(now - before) + " bytes " + what;
}

}  // namespace

RunResult RunScenario(std::uint64_t seed, const std::vector<Incident>& incidents,
                      const Tracer& tracer) {
  const std::size_t before = HeapInUse();
  RunResult result;
  {
    ClusterRun run(seed, tracer);
    result = run.Run(incidents);
    CheckHeap(before, kMostHeap + result.leases * kMostForALease, "in use at the end of a run",
              result);
  }
  CheckHeap(before, kMostLeft, "still in use after a run", result);
  return result;
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
