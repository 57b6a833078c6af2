// SPDX-License-Identifier: Apache-2.0
#include "trace.h"

#include <cmath>
#include <functional>
#include <numbers>
#include <ostream>

namespace idd::simulator {
namespace {

Trace Sampled(double end_s, double piece_s, const std::function<double(double)>& ids_per_s) {
  Trace trace{.pieces = {}, .end_s = end_s};
  for (double at = 0; at < end_s; at += piece_s) trace.pieces.push_back({at, ids_per_s(at)});
  return trace;
}

// A rate of `low`; every `period_s` it is `high` for `length_s`, reached within 10 ms in ten steps.
Trace Bursts(double end_s, double low, double high, double period_s, double length_s) {
  constexpr double kRampS = 0.01;
  constexpr int kSteps = 10;
  Trace trace{.pieces = {{0, low}}, .end_s = end_s};
  for (double at = period_s; at + kRampS + length_s < end_s; at += period_s) {
    for (int step = 0; step < kSteps; ++step) {
      trace.pieces.push_back(
          {at + kRampS * step / kSteps, low * std::pow(high / low, (step + 1.0) / kSteps)});
    }
    trace.pieces.push_back({at + kRampS + length_s, low});
  }
  return trace;
}

Trace OnOff(double end_s, double ids_per_s, double period_s) {
  Trace trace{.pieces = {}, .end_s = end_s};
  bool is_on = true;
  for (double at = 0; at < end_s; at += period_s, is_on = !is_on) {
    trace.pieces.push_back({at, is_on ? ids_per_s : 0});
  }
  return trace;
}

std::vector<Trace> Zipf(double end_s, int tags, double ids_per_s) {
  std::vector<Trace> traces;
  for (int rank = 1; rank <= tags; ++rank) {
    traces.push_back({.pieces = {{0, ids_per_s / std::pow(rank, 1.1)}}, .end_s = end_s});
  }
  return traces;
}

}  // namespace

std::vector<Scenario> AllScenarios() {
  constexpr double kHour = 3600;
  constexpr double kDay = 24 * kHour;
  return {
      {.name = "steady",
       .what = "20,000 ids/s for two hours",
       .tags = {{.pieces = {{0, 20'000}}, .end_s = 2 * kHour}},
       .shown_s = 600},
      {.name = "diurnal",
       .what = "500 to 9,500 ids/s over a day",
       .tags = {Sampled(
           kDay, 10,
           [](double at) { return 5'000 - 4'500 * std::cos(2 * std::numbers::pi * at / kDay); })},
       .shown_s = 600},
      {.name = "burst",
       .what = "1,000 ids/s; every 10 minutes x1000 within 10 ms, for 2 s",
       .tags = {Bursts(2 * kHour, 1'000, 1'000'000, 600, 2)},
       .shown_s = 610},
      {.name = "on-off",
       .what = "20,000 ids/s for a minute, nothing for a minute",
       .tags = {OnOff(2 * kHour, 20'000, 60)},
       .shown_s = 600},
      {.name = "decay",
       .what = "100,000 ids/s, falling by half every 5 minutes",
       .tags = {Sampled(2 * kHour, 5, [](double at) { return 1e5 * std::exp2(-at / 300); })},
       .shown_s = 600},
      {.name = "zipf",
       .what = "1,000 tags, the n-th with 50,000 / n^1.1 ids/s, for half an hour",
       .tags = Zipf(kHour / 2, 1'000, 50'000),
       .shown_s = 600},
  };
}

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.what; }

}  // namespace idd::simulator
