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

#include "world.h"

namespace idd::simulation {

// What happens to the cluster, and when. Its numbers choose the victim and the
// details.
struct Incident {
  enum class Kind {
    kKillIdd,
    kKillIddAtStep,
    kRestartIdd,
    kStopIdd,
    kSuspendIdd,
    kPowerOff,
    kNewProgram,
    kKillProgram,
    kSuspendProgram,
    kForkProgram,
    kCutLink,
    kLossyLink,
    kSlowLink,
    kKillServer,
    kHangServer,
    kFailOver,
    kSetLag,
    kDump,
    kRestoreDump,
    kDeleteTag,
    kCreateTag,
    kSetStep,
    kDrainTag,
    kDrainHost,
    kLeafTakes,
    kDiskFull,
    kForgetHost,
  };
  static constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kForgetHost) + 1;
  Nanos at = 0;
  Kind kind = Kind::kKillIdd;
  std::uint64_t who = 0;
  std::uint64_t how = 0;
};
[[nodiscard]] const char* IncidentName(Incident::Kind kind) noexcept;

// The names of all situations that a large set of runs must have met.
[[nodiscard]] std::vector<std::string> Situations();

struct RunResult {
  std::optional<std::string> failure;
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
  std::uint64_t claimed = 0;
  std::uint64_t leases = 0;
  std::vector<std::pair<std::string, std::uint64_t>> met;
};

using Tracer = std::function<void(Nanos, const std::string&)>;

// The incidents of a seed, enough for that many events of the world.
[[nodiscard]] std::vector<Incident> PlanIncidents(std::uint64_t seed, std::uint64_t steps);
// Runs the seed's cluster through these incidents, then heals everything and checks that everybody
// claims again. Stops at the first broken promise.
[[nodiscard]] RunResult RunScenario(std::uint64_t seed, const std::vector<Incident>& incidents,
                                    const Tracer& tracer = {});
// The fewest of the incidents, found by leaving some out, that still break a promise.
[[nodiscard]] std::vector<Incident> Shrink(std::uint64_t seed, std::vector<Incident> incidents);

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_SCENARIO_H_
