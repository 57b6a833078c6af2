// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATOR_TRACE_H_
#define IDD_TESTS_SIMULATOR_TRACE_H_

#include <iosfwd>
#include <string>
#include <vector>

namespace idd::simulator {

// The demand for one tag's ids: rates in ids a second, each constant for a while.
struct TracePiece {
  double begin_s = 0;
  double ids_per_s = 0;
};
struct Trace {
  std::vector<TracePiece> pieces;  // by begin_s; the first begins at 0
  double end_s = 0;
};

// A load of one or several tags. An outage is fair only after the load has shown its pattern and
// has lasted as long as the outage will: before `shown_s` no policy can know the load.
struct Scenario {
  std::string name;
  std::string what;
  std::vector<Trace> tags;
  double shown_s = 0;
};

// For the names of parametrised tests.
void PrintTo(const Scenario& scenario, std::ostream* out);

// steady, diurnal, burst, on-off, decay, zipf.
[[nodiscard]] std::vector<Scenario> AllScenarios();

}  // namespace idd::simulator

#endif  // IDD_TESTS_SIMULATOR_TRACE_H_
