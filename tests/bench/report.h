// SPDX-License-Identifier: Apache-2.0
//
// Shared by the benchmarks that print JSON.
#ifndef IDD_TESTS_BENCH_REPORT_H_
#define IDD_TESTS_BENCH_REPORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace idd::bench {

[[nodiscard]] inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Runs a Benchmark made from `arguments` and prints its report; returns the program's exit status.
template <typename Benchmark, typename... Arguments>
[[nodiscard]] int PrintReport(const char* program, Arguments... arguments) {
  try {
    Benchmark benchmark(arguments...);
    std::puts(benchmark.Run().dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
  return 0;
}

}  // namespace idd::bench

#endif  // IDD_TESTS_BENCH_REPORT_H_
