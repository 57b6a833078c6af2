// SPDX-License-Identifier: Apache-2.0
//
// Compares one claim with one raw fetch_add on the same kind of mapping, in one run: inlined, by a
// call into a shared library, in batches, from blocks and from lanes. A real idd leases the ids, in
// segments so long that none ends.
//
// The alignment of the code alone moves such figures by a fifth. So the build makes several
// programs of this file with different alignment, and scripts/bench takes the median over all.
#include <benchmark/benchmark.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "raw_call.h"
#include "raw_word.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

// The state that the benchmarks share; made once, before any of them runs.
struct World {
  World() : host(dir) {
    host.daemon.Start();
    // The longest segments there are: the run reaches neither their ends nor their refill marks.
    host.idctl.CreateTag("bench", 1'000'000'000'000);
    host.idctl.Do({"tag", "create", "lanes", "--order", "cpu", "--step", "1000000000000"});
    // So many ids a millisecond that no claim waits for the clock.
    for (const char* clock : {"client", "daemon"}) {
      host.idctl.Do(
          {"tag", "create", clock, "--mode", "snowflake", "--layout", "40/1/22", "--clock", clock});
    }
    idclient::Options options;
    options.socket_path = host.daemon.socket();
    client = std::make_unique<idclient::Client>(options);
    for (const char* tag : {"bench", "lanes", "client", "daemon"}) {
      static_cast<void>(client->tag(tag).claim());
    }
  }
  TempDir dir;
  Host host;
  RawWord raw;
  std::unique_ptr<idclient::Client> client;
};
World* world = nullptr;

void RawInlined(benchmark::State& state) {
  std::atomic<std::uint64_t>& word = world->raw.word();
  for (auto _ : state) benchmark::DoNotOptimize(word.fetch_add(1, std::memory_order_relaxed));
}

void ClaimInlined(benchmark::State& state) {
  idclient::Tag tag = world->client->tag("bench");
  for (auto _ : state) benchmark::DoNotOptimize(tag.claim());
}

void LaneInlined(benchmark::State& state) {
  idclient::Tag tag = world->client->tag("lanes");
  for (auto _ : state) benchmark::DoNotOptimize(tag.claim());
}

void BlockInlined(benchmark::State& state) {
  idclient::Tag tag =
      world->client->tag("bench", {.block_size = static_cast<std::uint32_t>(state.range(0))});
  for (auto _ : state) benchmark::DoNotOptimize(tag.claim());
}

void RawCall(benchmark::State& state) {
  raw_handle handle = world->raw.handle();
  std::uint64_t id = 0;
  for (auto _ : state) {
    if (raw_claim(&handle, &id) != 0) state.SkipWithError("raw_claim");
    benchmark::DoNotOptimize(id);
  }
}

void ClaimCall(benchmark::State& state, const char* name) {
  idclient_tag* const tag = world->client->tag(name).get();
  std::uint64_t id = 0;
  for (auto _ : state) {
    if (idclient_claim(tag, &id) != IDCLIENT_OK) state.SkipWithError(idclient_last_error());
    benchmark::DoNotOptimize(id);
  }
}

// What a claim of a snowflake id needs at least, if claimers read the clock.
void RawClock(benchmark::State& state) {
  std::atomic<std::uint64_t>& word = world->raw.word();
  timespec time{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(::clock_gettime(CLOCK_REALTIME, &time));
    benchmark::DoNotOptimize(time);
    benchmark::DoNotOptimize(word.fetch_add(1, std::memory_order_relaxed));
  }
}

void ClaimSnowflake(benchmark::State& state, const char* name) {
  idclient_tag* const tag = world->client->tag(name).get();
  std::uint64_t id = 0;
  for (auto _ : state) {
    if (idclient_claim(tag, &id) != IDCLIENT_OK) state.SkipWithError(idclient_last_error());
    benchmark::DoNotOptimize(id);
  }
}

// One item is one id, so the time for an item is the time for an id.
void ClaimBatch(benchmark::State& state) {
  idclient_tag* const tag = world->client->tag("bench").get();
  std::vector<std::uint64_t> ids(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    std::size_t claimed = 0;
    if (idclient_claim_many(tag, ids.data(), ids.size(), &claimed) != IDCLIENT_OK) {
      state.SkipWithError(idclient_last_error());
    }
    benchmark::DoNotOptimize(ids.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void ClaimBlock(benchmark::State& state) {
  idclient_tag* const tag =
      world->client->tag("bench", {.block_size = static_cast<std::uint32_t>(state.range(0))}).get();
  std::uint64_t id = 0;
  for (auto _ : state) {
    if (idclient_claim(tag, &id) != IDCLIENT_OK) state.SkipWithError(idclient_last_error());
    benchmark::DoNotOptimize(id);
  }
}

BENCHMARK(RawInlined)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(ClaimInlined)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(LaneInlined)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(BlockInlined)->Arg(64)->Arg(1024)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(RawCall)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK_CAPTURE(ClaimCall, ring, "bench")->ThreadRange(1, 2)->UseRealTime();
BENCHMARK_CAPTURE(ClaimCall, lane, "lanes")->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(RawClock)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK_CAPTURE(ClaimSnowflake, client, "client")->ThreadRange(1, 2)->UseRealTime();
BENCHMARK_CAPTURE(ClaimSnowflake, daemon, "daemon")->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(ClaimBatch)->Arg(8)->Arg(64)->Arg(1000)->UseRealTime();
BENCHMARK(ClaimBlock)->Arg(64)->Arg(1024)->ThreadRange(1, 2)->UseRealTime();

}  // namespace
}  // namespace idd::harness

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    idd::harness::World made;
    idd::harness::world = &made;
    benchmark::RunSpecifiedBenchmarks();
    made.client.reset();
    made.host.daemon.Stop();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "claim_benchmark: %s\n", error.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}
