// SPDX-License-Identifier: Apache-2.0
#include "incidents.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "snowflakes.h"

namespace idd::simulation {
namespace {

using Kind = Incident::Kind;

// How often each kind of incident occurs, relative to the others.
struct Weight {
  Kind kind;
  const char* name;
  unsigned weight;
};
constexpr std::array<Weight, Incident::kKinds> kWeights = {{
    {Kind::kKillIdd, "kill idd", 6},
    {Kind::kKillIddAtStep, "kill idd at a step", 10},
    {Kind::kRestartIdd, "restart idd", 8},
    {Kind::kStopIdd, "stop idd", 4},
    {Kind::kSuspendIdd, "suspend idd", 5},
    {Kind::kPowerOff, "power off", 3},
    {Kind::kNewProgram, "new program", 6},
    {Kind::kKillProgram, "kill program", 6},
    {Kind::kSuspendProgram, "suspend program", 4},
    {Kind::kForkProgram, "fork program", 3},
    {Kind::kCutLink, "cut link", 6},
    {Kind::kLossyLink, "lossy link", 4},
    {Kind::kSlowLink, "slow link", 2},
    {Kind::kKillServer, "kill server", 5},
    {Kind::kHangServer, "hang server", 3},
    {Kind::kFailOver, "fail over", 6},
    {Kind::kSetLag, "set lag", 4},
    {Kind::kDump, "dump", 2},
    {Kind::kRestoreDump, "restore dump", 2},
    {Kind::kDeleteTag, "delete tag", 2},
    {Kind::kCreateTag, "create tag", 3},
    {Kind::kSetStep, "set step", 3},
    {Kind::kDrainTag, "drain tag", 3},
    {Kind::kDrainHost, "drain host", 2},
    {Kind::kLeafTakes, "Leaf takes", 4},
    {Kind::kDiskFull, "disk full", 2},
    {Kind::kForgetHost, "forget host", 2},
    {Kind::kRunByHand, "run idd by hand", 2},
    {Kind::kCloneHost, "clone a host", 2},
}};

// Apart from the weights: see AddWitnessIncidents() and AddClockIncidents().
constexpr std::pair<Kind, const char*> kOtherKinds[] = {
    {Kind::kSetWitnesses, "set witnesses"},
    {Kind::kClockBack, "clock back"},
    {Kind::kClockAhead, "clock ahead"},
    {Kind::kClockRight, "clock right"},
};

// Kinds that are dangerous together. Some seeds have incidents of one theme only.
const std::vector<std::vector<Kind>> kThemes = {
    {Kind::kCutLink, Kind::kFailOver, Kind::kSetLag, Kind::kPowerOff, Kind::kKillIddAtStep,
     Kind::kSuspendIdd},
    {Kind::kDump, Kind::kRestoreDump, Kind::kSuspendIdd, Kind::kPowerOff, Kind::kCutLink,
     Kind::kStopIdd},
    {Kind::kDrainTag, Kind::kDrainHost, Kind::kKillIdd, Kind::kKillIddAtStep, Kind::kDump,
     Kind::kRestoreDump, Kind::kKillServer, Kind::kDiskFull, Kind::kLossyLink},
};

// Situations that World::Met() is called with, beside the incidents.
constexpr const char* kOtherSituations[] = {
    "a claim found the clock set back beyond max_ahead",
    "a claim of a ring that the daemon moved got ids",
    "a claim that stopped in the middle got ids",
    "a claim waited for the clock",
    "a client was gone when its answer came",
    "a clock was refused by the store's clock",
    "a dry claim was served by idd",
    "a dump was restored",
    "a failover",
    "a file was replaced by a copy",
    "a file was restored in place",
    "a file was restored with its witness",
    "a host had no worker id to take until the end",
    "a host took a worker id again that it had before",
    "a host took a worker id that was never used",
    "a host took another worker id because its counter was lifted",
    "a host that is no witness ended a term",
    "a host was cloned",
    "a host was cut off from one server",
    "a Leaf server took ids",
    "a lease packet found another term",
    "a lease packet was refused by its guard",
    "a list of witnesses became active",
    "a list of witnesses was wanted",
    "another host was raising ceilings",
    "a machine lost its power",
    "a machine's name was held by another one",
    "a packet reached a server that hangs",
    "a program forged a cursor",
    "a restart with inherited rings",
    "a server's machine was set back to a snapshot",
    "a snowflake claim that stopped in the middle got ids",
    "a stop without the store",
    "a term was begun",
    "a ticket was claimed",
    "a worker id of another host was taken over",
    "a worker id was no longer as the host had seen it",
    "all worker ids were in use",
    "an answer was lost",
    "an operator forgot a host that is off",
    "an operator had to name other witnesses",
    "an operator moved a worker id's counter ahead",
    "idd waited for the clock",
    "idd was killed",
    "idd was killed in the middle of a step",
    "idd was run by hand",
    "ids of a snowflake tag fell, as idd had begun without knowing the earlier ones",
    "the journal was compared with all claims",
    "the journal was compared with the claims since all was healed",
    "the term was no longer as a host had found it",
    "two primaries were in use",
};

void Insert(std::vector<Incident>& incidents, Kind kind, Nanos at, Random& random) {
  Incident incident;
  incident.at = at;
  incident.kind = kind;
  incident.who = random.Next() >> 8;
  incident.how = random.Next() >> 8;
  incidents.push_back(incident);
}

// A seed begins with one witness, and a run is too short for the hosts to choose others. In half of
// the seeds an operator names three at once; in some the list changes later, too.
void AddWitnessIncidents(std::uint64_t seed, std::vector<Incident>& incidents) {
  Random random(seed ^ 0x7769746e65737365);
  const Nanos last = incidents.back().at;
  if (random.Percent(50)) {
    for (int i = 0; i < 3; ++i) {  // some hosts come later
      Insert(incidents, Kind::kSetWitnesses, random.Between(1, 10) * kSecond, random);
    }
  }
  if (random.Percent(30)) {
    const std::uint64_t count = 1 + random.Below(6);
    for (std::uint64_t i = 0; i < count; ++i) {
      Insert(incidents, Kind::kSetWitnesses, random.Between(kSecond, last), random);
    }
  }
}

void AddTwoPrimaries(std::uint64_t seed, std::vector<Incident>& incidents) {
  if (!HasTwoPrimaries(seed)) return;
  Random random(seed ^ 0x6f6c647072696d61);
  const Nanos last = incidents.back().at;
  const auto later = [&random, last] {
    return random.Between(2 * kSecond, std::max(last, 3 * kSecond));
  };
  const std::uint64_t count = 1 + random.Below(3);
  for (std::uint64_t i = 0; i < count; ++i) Insert(incidents, Kind::kFailOver, later(), random);
  if (random.Percent(50)) return;
  for (int i = 0; i < 10; ++i) Insert(incidents, Kind::kSetWitnesses, later(), random);
}

}  // namespace

bool HasTwoPrimaries(std::uint64_t seed) { return Random(seed ^ 0x74776f20696e2075).Percent(10); }

std::vector<std::string> Situations() {
  std::vector<std::string> all(std::begin(kOtherSituations), std::end(kOtherSituations));
  for (const Weight& weight : kWeights) all.emplace_back(weight.name);
  for (const auto& [kind, name] : kOtherKinds) all.emplace_back(name);
  return all;
}

const char* IncidentName(Incident::Kind kind) noexcept {
  for (const Weight& weight : kWeights) {
    if (weight.kind == kind) return weight.name;
  }
  for (const auto& [other, name] : kOtherKinds) {
    if (other == kind) return name;
  }
  return "?";
}

std::vector<Incident> PlanIncidents(std::uint64_t seed, std::uint64_t steps) {
  Random random(seed ^ 0x9e6c63d0876a9a47);
  // Each seed has its own weights, and leaves some kinds out: otherwise a failure that needs
  // several incidents of the same few kinds would be rare.
  std::array<Weight, Incident::kKinds> weights = kWeights;
  unsigned total = 0;
  for (Weight& weight : weights) {
    static constexpr unsigned kFactors[] = {0, 0, 1, 1, 4};
    weight.weight *= kFactors[random.Below(std::size(kFactors))];
    total += weight.weight;
  }
  if (random.Percent(40)) {
    const std::vector<Kind>& theme = kThemes[random.Below(kThemes.size())];
    total = 0;
    for (Weight& weight : weights) {
      const bool is_in = std::find(theme.begin(), theme.end(), weight.kind) != theme.end();
      weight.weight = is_in ? 1 : 0;
      total += weight.weight;
    }
  }
  if (total == 0) return {};
  std::vector<Incident> incidents;
  // In some runs the store loses nothing, so that the journal can be checked at the end.
  const bool is_kept = random.Percent(40);
  Nanos at = random.Between(1, 5) * kSecond;
  for (std::uint64_t i = 0; i < steps; ++i) {
    Incident incident;
    incident.at = at;
    auto pick = static_cast<unsigned>(random.Below(total));
    for (const Weight& weight : weights) {
      if (pick < weight.weight) {
        incident.kind = weight.kind;
        break;
      }
      pick -= weight.weight;
    }
    const bool loses = incident.kind == Kind::kFailOver || incident.kind == Kind::kRestoreDump;
    if (loses && is_kept) incident.kind = Kind::kKillServer;
    incident.who = random.Next() >> 8;
    incident.how = random.Next() >> 8;
    incidents.push_back(incident);
    static constexpr Nanos kGaps[] = {10 * kMillisecond, 500 * kMillisecond, 5 * kSecond};
    at += random.Between(1, kGaps[random.Below(std::size(kGaps))]);
  }
  AddWitnessIncidents(seed, incidents);
  AddTwoPrimaries(seed, incidents);
  std::stable_sort(incidents.begin(), incidents.end(),
                   [](const Incident& a, const Incident& b) { return a.at < b.at; });
  AddClockIncidents(seed, incidents);
  return incidents;
}

}  // namespace idd::simulation
