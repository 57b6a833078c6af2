// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_BENCH_BENCH_RUN_H_
#define IDD_TOOLS_BENCH_BENCH_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "bench/latency_histogram.h"
#include "idd/base/status.h"

namespace idd::tools {

struct BenchPlan {
  std::string socket_path;
  std::string tag;
  std::uint32_t timeout_ms = 500;
  std::uint32_t processes = 1;
  std::uint32_t threads = 1;  // of each process
  std::uint32_t batch = 1;    // ids of each claim
  std::uint32_t block = 0;    // idclient_tag_options::block_size
  // Fails unless claims come from lanes, or unless they do not; nothing: either is measured.
  std::optional<bool> needs_lanes;
  double seconds = 3;
};

// The result for one of the two measured operations.
struct BenchSide {
  double ids_per_s = 0;      // all claimers together; the median of the rounds
  double ns_per_id = 0;      // of one claimer, time over ids; the median of the rounds
  LatencyHistogram latency;  // of single claims, including the clock reading
};

struct BenchReport {
  std::uint32_t rounds = 0;
  std::uint64_t ids = 0;   // claimed from the tag
  bool has_lanes = false;  // the tag has order cpu, and this host restartable sequences
  // A fetch_add of 1, which is one id, on a word in a memfd that all claimers map.
  BenchSide raw;
  BenchSide claim;
  double ratio = 0;  // claim.ns_per_id / raw.ns_per_id, the median over the rounds' own ratios
};

// Claims from a real tag in new processes and threads, and alternates raw adds with claims in the
// same processes. The claimed ids are lost. Always ends all its processes. Calls `on_progress`
// several times a second with the completed fraction, 0 to 1.
[[nodiscard]] Result<BenchReport> RunBench(const BenchPlan& plan,
                                           const std::function<void(double part)>& on_progress);

}  // namespace idd::tools

#endif  // IDD_TOOLS_BENCH_BENCH_RUN_H_
