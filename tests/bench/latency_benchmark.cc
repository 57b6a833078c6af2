// SPDX-License-Identifier: Apache-2.0
//
// latency_benchmark [--same-processor]: the time of one claim while segments of 10,000 ids come and
// go, beside a raw fetch_add, each timed individually. Claims that are the first of a segment are
// also counted separately. Raw adds and claims take turns, four to a segment; the turns of raw adds
// are long enough for a lease, so the ring stays ahead. With --same-processor the daemon runs on
// the claimer's processor.
//
// Prints JSON: {"raw": percentiles, "claim": ..., "crossing": ..., "dry_claims": n}, in ns.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include "idclient/idclient.hpp"
#include "processors.h"
#include "raw_word.h"
#include "report.h"
#include "samples.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr std::uint64_t kStep = 10'000;
constexpr int kTurns = 1'200;
constexpr int kClaimsOfTurn = 2'500;
constexpr int kRawAddsOfTurn = 50'000;

class Benchmark {
 public:
  explicit Benchmark(bool on_one_processor) : host_(dir_) {
    host_.daemon.Start();
    host_.idctl.CreateTag("bench", kStep);
    if (on_one_processor) {
      PinThread(0, 0);
      PinProcess(host_.daemon.pid(), 0);
    }
    idclient::Options options;
    options.socket_path = host_.daemon.socket();
    client_.emplace(options);
  }

  [[nodiscard]] nlohmann::json Run() {
    const TickClock clock;
    idclient::Tag tag = client_->tag("bench");
    std::uint64_t segment = SegmentOf(tag.claim());
    const std::uint64_t dry_before = DryClaims();
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int i = 0; i < kRawAddsOfTurn; ++i) {
        const std::uint64_t before = TickClock::Now();
        static_cast<void>(raw_.word().fetch_add(1, std::memory_order_relaxed));
        raw_ticks_.Add(TickClock::Now() - before);
      }
      for (int i = 0; i < kClaimsOfTurn; ++i) {
        const std::uint64_t before = TickClock::Now();
        const std::uint64_t id = tag.claim();
        const std::uint64_t ticks = TickClock::Now() - before;
        claim_ticks_.Add(ticks);
        if (SegmentOf(id) != segment) {
          segment = SegmentOf(id);
          crossing_ticks_.Add(ticks);
        }
      }
    }
    const double ns = clock.NsPerTick();
    return {{"raw", PercentilesNs(raw_ticks_, ns)},
            {"claim", PercentilesNs(claim_ticks_, ns)},
            {"crossing", PercentilesNs(crossing_ticks_, ns)},
            {"dry_claims", DryClaims() - dry_before}};
  }

 private:
  // The database has only this host, so the leases are [1 + k step, 1 + (k + 1) step).
  [[nodiscard]] static std::uint64_t SegmentOf(std::uint64_t id) { return (id - 1) / kStep; }

  // Claims that found the ring dry and that the daemon answered.
  [[nodiscard]] std::uint64_t DryClaims() const {
    const nlohmann::json status = host_.idctl.Json({"status"});
    return status.at("tags").at(0).at("fallbacks").get<std::uint64_t>();
  }

  TempDir dir_;
  Host host_;
  std::optional<idclient::Client> client_;
  RawWord raw_;
  tools::LatencyHistogram raw_ticks_;
  tools::LatencyHistogram claim_ticks_;
  tools::LatencyHistogram crossing_ticks_;
};

}  // namespace
}  // namespace idd::harness

int main(int argc, char** argv) {
  const bool on_one_processor = argc == 2 && std::strcmp(argv[1], "--same-processor") == 0;
  if (argc > 1 && !on_one_processor) {
    std::fputs("usage: latency_benchmark [--same-processor]\n", stderr);
    return 2;
  }
  return idd::bench::PrintReport<idd::harness::Benchmark>("latency_benchmark", on_one_processor);
}
