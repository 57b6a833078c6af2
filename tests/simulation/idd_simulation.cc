// SPDX-License-Identifier: Apache-2.0
//
// Runs seeds of the simulated cluster.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "platform/logging.h"
#include "scenario.h"

namespace idd::simulation {
namespace {

struct Arguments {
  std::uint64_t seed = 1;
  std::uint64_t seeds = 1;
  std::uint64_t steps = 40;
  bool prints_trace = false;
  bool shrinks = false;
  bool logs = false;
  bool summarises = false;
  bool lists_situations = false;
  bool ends_with_first_failure = false;
  bool needs_two_primaries = false;
};

void PrintLine(Nanos at, const std::string& line) {
  std::printf("%12.6f  %s\n", static_cast<double>(at) / 1e9, line.c_str());
}

int Run(const Arguments& arguments) {
  if (arguments.lists_situations) {
    for (const std::string& situation : Situations()) std::puts(situation.c_str());
    return 0;
  }
  std::map<std::string, std::uint64_t> met;
  std::uint64_t failed = 0;
  std::uint64_t events = 0;
  std::uint64_t claimed = 0;
  std::uint64_t ran = 0;
  for (std::uint64_t i = 0; i < arguments.seeds; ++i) {
    const std::uint64_t seed = arguments.seed + i;
    if (arguments.needs_two_primaries && !HasTwoPrimaries(seed)) continue;
    ++ran;
    std::vector<Incident> incidents = PlanIncidents(seed, arguments.steps);
    const RunResult result =
        RunScenario(seed, incidents, arguments.prints_trace ? PrintLine : Tracer());
    events += result.events;
    claimed += result.claimed;
    for (const auto& [situation, times] : result.met) met[situation] += times;
    if (arguments.seeds == 1 && !arguments.summarises) {
      std::printf("seed %llu: trace %016llx, %llu events, %llu leases, %llu ids\n",
                  static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(result.trace_hash),
                  static_cast<unsigned long long>(result.events),
                  static_cast<unsigned long long>(result.leases),
                  static_cast<unsigned long long>(result.claimed));
    }
    if (!result.failure.has_value()) continue;
    ++failed;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), result.failure->c_str());
    std::fflush(stdout);
    if (arguments.ends_with_first_failure) return 1;
    if (!arguments.shrinks) continue;
    incidents = Shrink(seed, std::move(incidents));
    std::printf("with the %zu incidents that it takes:\n", incidents.size());
    static_cast<void>(RunScenario(seed, incidents, PrintLine));
  }
  if (arguments.seeds > 1 || arguments.summarises) {
    for (const auto& [situation, times] : met) {
      std::printf("%10llu  %s\n", static_cast<unsigned long long>(times), situation.c_str());
    }
    std::printf("%llu seeds, %llu events, %llu ids, %llu failed\n",
                static_cast<unsigned long long>(ran), static_cast<unsigned long long>(events),
                static_cast<unsigned long long>(claimed), static_cast<unsigned long long>(failed));
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace idd::simulation

int main(int argc, char** argv) {
  idd::simulation::Arguments arguments;
  CLI::App app("Simulates a cluster of idd hosts in one thread; everything follows from the seed.");
  app.add_option("--seed", arguments.seed, "The first seed")->capture_default_str();
  app.add_option("--seeds", arguments.seeds, "How many seeds, from the first on")
      ->capture_default_str();
  app.add_option("--steps", arguments.steps, "How many incidents in each run")
      ->capture_default_str();
  app.add_flag("--trace", arguments.prints_trace, "Print what happens");
  app.add_flag("--shrink", arguments.shrinks, "Shrink a failure to the fewest incidents");
  app.add_flag("--logs", arguments.logs, "Print what the simulated idds log");
  app.add_flag("--summary", arguments.summarises, "Print the sums, also of one seed");
  app.add_flag("--list-situations", arguments.lists_situations,
               "Print the names of the situations that are counted, and run nothing");
  app.add_flag("--first-failure", arguments.ends_with_first_failure,
               "End with the first seed that fails");
  app.add_flag("--two-primaries", arguments.needs_two_primaries,
               "Leave out the seeds in which one primary is in use at a time");
  CLI11_PARSE(app, argc, argv);
  idd::daemon::log::Configure(
      arguments.logs ? idd::daemon::log::Level::kInfo : idd::daemon::log::Level::kError,
      idd::daemon::log::Format::kText);
  if (!arguments.logs && std::freopen("/dev/null", "w", stderr) == nullptr) return 2;
  return idd::simulation::Run(arguments);
}
