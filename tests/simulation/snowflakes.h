// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_SNOWFLAKES_H_
#define IDD_TESTS_SIMULATION_SNOWFLAKES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "host_clock.h"
#include "incidents.h"
#include "store/tag_record.h"

namespace idd::simulation {

// The snowflake tags of a seed: none in half of the seeds, otherwise one or two. They have random
// numbers of their own, so that a seed without them is what it was before there were any.
[[nodiscard]] std::vector<daemon::NewTag> PlanSnowflakes(std::uint64_t seed);
// How far the wall clock of a seed's n-th machine is ahead of the true time until it is set.
[[nodiscard]] Nanos ClockErrorOf(std::uint64_t seed, std::uint64_t machine);
// Adds incidents of wall clocks, in the order of time. None without a snowflake tag.
void AddClockIncidents(std::uint64_t seed, std::vector<Incident>& incidents);

// The request that makes the tag again after it was deleted.
[[nodiscard]] std::string CreateRequest(const daemon::NewTag& tag);

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_SNOWFLAKES_H_
