// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_INCIDENTS_H_
#define IDD_TESTS_SIMULATION_INCIDENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "world.h"

namespace idd::simulation {

// One event in a run, and its time. `who` and `how` choose the victim and the details.
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
    kRunByHand,
    kCloneHost,
    // The others have random numbers of their own. Of witnesses:
    kSetWitnesses,
    // Only with snowflake tags (snowflakes.h).
    kClockBack,
    kClockAhead,
    kClockRight,
  };
  // Of those that every seed may have.
  static constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kCloneHost) + 1;
  Nanos at = 0;
  Kind kind = Kind::kKillIdd;
  std::uint64_t who = 0;
  std::uint64_t how = 0;
};
[[nodiscard]] const char* IncidentName(Incident::Kind kind) noexcept;

// Whether an old primary stays in use after a failover, in this seed.
[[nodiscard]] bool HasTwoPrimaries(std::uint64_t seed);
// The incidents of a seed.
[[nodiscard]] std::vector<Incident> PlanIncidents(std::uint64_t seed, std::uint64_t steps);
// The names of all situations that a large set of runs must have met.
[[nodiscard]] std::vector<std::string> Situations();

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_INCIDENTS_H_
