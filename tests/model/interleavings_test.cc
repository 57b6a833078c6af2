// SPDX-License-Identifier: Apache-2.0
//
// Runs the templates of ring_protocol.h and snowflake.h, the shipped code, under Relacy. Relacy
// runs every interleaving of a few threads, or many at random, and lets each load return any value
// that the C++11 memory model allows. README.md describes the scenarios. Each scenario is run again
// with one memory order weakened: the orders that matter must then fail, otherwise the scenario
// proves nothing.
//
// usage: interleavings_test [SCENARIO [LABEL]]   with a failure's history on stdout
#include <algorithm>
#include <array>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <ostream>
#include <string_view>

#include "ring_scenarios.h"

namespace idd::shm {
namespace {

struct Search {
  rl::scheduler_type_e type;
  unsigned iterations;  // of a random search
};
constexpr Search kFull{rl::fair_full_search_scheduler_type, 0};

struct Result {
  rl::test_result_e verdict;
  unsigned long long runs;
};

template <typename S>
Result Run(const Search& search, Label label, bool print) {
  weakened = label;
  std::ostream nowhere(nullptr);
  rl::test_params params;
  params.search_type = search.type;
  params.iteration_count = search.iterations;
  params.output_stream = print ? &std::cout : &nowhere;
  params.progress_stream = &nowhere;
  rl::simulate<S>(params);
  weakened = Label::kNone;
  return {params.test_result, params.stop_iteration};
}

// A scenario, its kind of search, and the orders that it needs.
struct Case {
  std::string_view name;
  Result (*run)(const Search&, Label, bool print);
  Search search;
  std::array<Label, 6> needs;
};

constexpr Search Random(unsigned iterations) { return {rl::random_scheduler_type, iterations}; }

const Case kCases[] = {
    {"SleeperMeetsRecycledSlot", Run<SleeperMeetsRecycledSlot>, kFull, {Label::kP4, Label::kC2}},
    {"BatchMeetsRecycledSlot", Run<BatchMeetsRecycledSlot>, kFull, {Label::kP4, Label::kC2}},
    {"PublishedSegmentHasItsIds", Run<PublishedSegmentHasItsIds>, kFull, {Label::kP5, Label::kC0}},
    {"DrainLeavesWhatNobodyClaimed",
     Run<DrainLeavesWhatNobodyClaimed>,
     Random(300'000),
     {Label::kD2AsTwo}},
    {"WithdrawnSegmentStaysClosed",
     Run<WithdrawnSegmentStaysClosed>,
     kFull,
     {Label::kC1, Label::kD2AsTwo}},
    {"DrainOvertakesClaimer",
     Run<DrainOvertakesClaimer>,
     kFull,
     {Label::kC6, Label::kD4, Label::kD2AsTwo}},
    {"EndOvertakesClaimer", Run<EndOvertakesClaimer>, kFull, {Label::kC6, Label::kD4}},
    {"EndOfRecycledSlotIsNotBelieved",
     Run<EndOfRecycledSlotIsNotBelieved>,
     Random(300'000),
     {Label::kC7, Label::kD2, Label::kD3}},
    {"RaceToTheEndAndRecycle",
     Run<RaceToTheEndAndRecycle>,
     Random(300'000),
     {Label::kP4, Label::kC2}},
    {"LaterClaimsGetGreaterIds",
     Run<LaterClaimsGetGreaterIds>,
     Random(300'000),
     {Label::kP4, Label::kC2}},
    {"NoSegmentIsSkipped", Run<NoSegmentIsSkipped>, Random(300'000), {Label::kP6, Label::kTail}},
    {"MoveMeetsRecycledSlot",
     Run<MoveMeetsRecycledSlot>,
     Random(300'000),
     {Label::kP4, Label::kC2, Label::kU2AsTwo, Label::kU2AsStore, Label::kU2Blind,
      Label::kU2NoLimit}},
    {"DrainMeetsMoves",
     Run<DrainMeetsMoves>,
     Random(300'000),
     {Label::kD2AsTwo, Label::kU2AsTwo, Label::kU2AsStore, Label::kU2Blind}},
    {"NextDaemonMeetsMove",
     Run<NextDaemonMeetsMove>,
     kFull,
     {Label::kD2AsTwo, Label::kU2AsTwo, Label::kU2AsStore, Label::kU2NoLimit}},
    {"WithdrawnSegmentIsNotReopened",
     Run<WithdrawnSegmentIsNotReopened>,
     Random(300'000),
     {Label::kC1, Label::kU2AsTwo}},
    {"MovedClaimsKeepTheirOrder",
     Run<MovedClaimsKeepTheirOrder>,
     Random(300'000),
     {Label::kP4, Label::kC2, Label::kU2AsTwo, Label::kU2Blind, Label::kU2NoLimit}},
};

bool Needs(const Case& test, Label label) {
  return label != Label::kNone &&
         std::find(test.needs.begin(), test.needs.end(), label) != test.needs.end();
}

// Prints one line of the table; false if the verdict is not the expected one.
bool RunAndPrint(const Case& test, Label label, std::string_view name, bool history) {
  const auto started = std::chrono::steady_clock::now();
  const Result result = test.run(test.search, label, history);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  const auto expected =
      Needs(test, label) ? rl::test_result_user_assert_failed : rl::test_result_success;
  const bool good = result.verdict == expected;
  const bool all = test.search.iterations == 0 && result.verdict == rl::test_result_success;
  std::cout << std::left << std::setw(32) << test.name << std::setw(18) << name << std::setw(10)
            << (result.verdict == rl::test_result_success ? "accepted" : "rejected") << std::right
            << std::setw(9) << result.runs << (all ? " all" : "    ") << std::fixed
            << std::setprecision(1) << std::setw(7) << taken.count() << " s"
            << (good ? "" : "  WRONG") << std::endl;
  return good;
}

// Without arguments: every scenario as it is, and without each order that it needs. With a
// scenario: that one without each order in turn, needed or not.
int Main(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "";
  const std::string_view only_label = argc > 2 ? argv[2] : "";
  int runs = 0;
  int wrong = 0;
  for (const Case& test : kCases) {
    if (!only.empty() && only != test.name) continue;
    for (const auto& [label, name] : kLabels) {
      const bool wanted = only_label.empty()
                              ? !only.empty() || label == Label::kNone || Needs(test, label)
                              : name == only_label;
      if (!wanted) continue;
      ++runs;
      if (!RunAndPrint(test, label, name, !only_label.empty())) ++wrong;
    }
  }
  std::cout << runs << " searches, " << wrong << " with a wrong verdict\n";
  return wrong == 0 && runs != 0 ? 0 : 1;
}

}  // namespace
}  // namespace idd::shm

int main(int argc, char** argv) { return idd::shm::Main(argc, argv); }
