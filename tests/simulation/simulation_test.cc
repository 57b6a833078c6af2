// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scenario.h"

namespace idd::simulation {
namespace {

constexpr std::uint64_t kSteps = 25;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSeeds = 12;
#else
constexpr std::uint64_t kSeeds = 60;
#endif

RunResult RunSeed(std::uint64_t seed) { return RunScenario(seed, PlanIncidents(seed, kSteps)); }

TEST(SimulationTest, SeedIsItsTrace) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const RunResult once = RunSeed(seed);
    const RunResult again = RunSeed(seed);
    EXPECT_EQ(once.trace_hash, again.trace_hash) << "seed " << seed;
    EXPECT_EQ(once.events, again.events) << "seed " << seed;
    EXPECT_GT(once.claimed, 0U) << "seed " << seed;
  }
}

TEST(SimulationTest, NoSeedBreaksAPromise) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RunResult result = RunSeed(seed);
    EXPECT_FALSE(result.failure.has_value()) << "seed " << seed << ": " << *result.failure;
  }
}

}  // namespace
}  // namespace idd::simulation
