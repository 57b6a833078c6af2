// SPDX-License-Identifier: Apache-2.0
//
// capacity_simulator FILE [group...]: the load that clusters of 10,000 hosts with 100 tags each put
// on their store: at rates from 10^5 to 10^10 ids/s ("rates"), and of 500 hosts at a start and in
// outages ("transients"), with leases of one size ("fixed_step"), and for clusters of other sizes
// ("sizes"). The latter two simulate a sample of the hosts. Further, what store_load_benchmark
// played ("slices"), and how many hosts one server carries ("one_server"). FILE is what that
// program printed, with the model of the store. Prints JSON, from which scripts/capacity-report
// writes docs/capacity.md.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "capacity_simulation.h"
#include "capacity_slice.h"

namespace idd::capacity {
namespace {

using nlohmann::json;

// Tags that begin between two leases need some looks to settle.
constexpr double kSettleS = 60;

double Percentile(std::vector<double> values, std::size_t percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) * percent / 100];
}

// Runs the cluster and returns its requests a second, scaled as if it had `scale` times as many
// hosts.
json Play(const std::string& name, const Cluster& cluster, double scale = 1) {
  const auto began = std::chrono::steady_clock::now();
  const Outcome outcome = Simulate(cluster);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - began;
  std::fprintf(stderr, "%s: %.1f s\n", name.c_str(), wall.count());
  const Load& load = outcome.load;
  const double per_s = scale / (cluster.duration_s - cluster.settle_s);
  const auto rate = [per_s](auto count) { return static_cast<double>(count) * per_s; };
  const std::chrono::duration<double> tolerance = cluster.refill.outage_tolerance;
  return {{"name", name},
          {"hosts", cluster.hosts * scale},
          {"tags_per_host", cluster.tags_per_host},
          {"simulated_hosts", cluster.hosts},
          {"ids_per_s", cluster.ids_per_s * scale},
          {"step", cluster.refill.step},
          {"tolerance_s", tolerance.count()},
          {"simulated_s", cluster.duration_s},
          {"wall_s", wall.count()},
          {"claims_per_s", rate(load.claims)},
          {"dry_claims", load.dry_claims},
          {"formula_leases_per_s", outcome.formula_leases_per_s * scale},
          {"leases", load.leases},
          {"leases_per_s", rate(load.leases)},
          {"lease_transactions_per_s", rate(load.lease_transactions)},
          {"closed_per_s", rate(load.closed)},
          {"close_transactions_per_s", rate(load.close_transactions)},
          {"beats_per_s", rate(load.beats)},
          {"commits", load.Commits()},
          {"commits_per_s", rate(load.Commits())},
          {"reads_per_s", rate(load.reads)},
          {"refused_connects_per_s", rate(load.refused_connects)},
          {"store_busy", rate(load.store_busy_s)},
          {"largest_batch", load.largest_batch},
          {"longest_answer_s", load.longest_answer_s},
          {"ready_s", outcome.ready_s},
          {"leases_before_ready", outcome.leases_before_ready},
          {"covered_s", outcome.covered_s},
          {"wait_p50_ms", Percentile(outcome.waits_s, 50) * 1e3},
          {"wait_p99_ms", Percentile(outcome.waits_s, 99) * 1e3},
          {"by_second", {{"leases", outcome.leases}, {"commits", outcome.commits}}}};
}

// The peak memory of this program, in MiB.
double PeakMemory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

StoreModel ParseStore(const json& model) {
  return {.transaction_s = model.at("transaction_s"),
          .more_s = model.at("more_s"),
          .read_s = model.at("read_s"),
          .look_s = model.at("look_s"),
          .sync_s = model.at("sync_s"),
          .answer_s = model.at("answer_s"),
          .processors = model.at("processors")};
}

json PlaySlices(const json& measured) {
  json runs = json::array();
  for (const json& slice : measured.at("slices")) {
    Cluster cluster = SliceOf(slice.at("asked"));
    cluster.store = ParseStore(measured.at("model_with_generator"));
    runs.push_back(Play("slice", cluster));
  }
  return runs;
}

// More and more hosts at one server, with the hosts' looks.
json PlayOneServer(const json& measured) {
  json runs = json::array();
  for (const int tolerance_s : {600, 3600}) {
    for (const std::uint32_t tags : {10U, 100U, 1'000U}) {
      for (const std::uint32_t hosts : {100U, 200U, 400U, 800U, 1'600U, 3'200U}) {
        constexpr std::uint32_t kMostTags = 1'000'000;
        if (hosts * tags > kMostTags) continue;
        Cluster cluster{.hosts = hosts,
                        .tags_per_host = tags,
                        .ids_per_s = 100.0 * hosts * tags,
                        .duration_s = 120,
                        .settle_s = 60,
                        .hosts_look = true,
                        .store = ParseStore(measured.at("model")),
                        .keeps_requests = true};
        cluster.refill.outage_tolerance = std::chrono::seconds(tolerance_s);
        runs.push_back(Play("one server", cluster));
      }
    }
  }
  return runs;
}

json PlayRates(const json& measured) {
  json runs = json::array();
  for (const double ids_per_s : {1e5, 1e6, 1e7, 1e8, 1e9, 1e10}) {
    runs.push_back(Play(
        "rate",
        {.ids_per_s = ids_per_s, .settle_s = kSettleS, .store = ParseStore(measured.at("model"))}));
  }
  return runs;
}

// Leases of one size, whatever the load: the case that the policy is there to avoid.
json PlayFixedStep(const json& measured) {
  constexpr std::uint32_t kHosts = 20;
  constexpr double kScale = 10'000.0 / kHosts;
  json runs = json::array();
  for (const double ids_per_s : {1e5, 1e6, 1e7, 1e8}) {
    const Cluster cluster{.hosts = kHosts,
                          .ids_per_s = ids_per_s / kScale,
                          .refill = {.rule = daemon::RefillRule::kLeaf, .max_step = 1000},
                          .duration_s = ids_per_s < 1e7 ? 3600.0 : 180.0,
                          .settle_s = kSettleS,
                          .store = ParseStore(measured.at("model")),
                          .looks = Looks::kEverySecond};
    runs.push_back(Play("fixed step", cluster, kScale));
  }
  return runs;
}

json PlayTransients(const json& measured) {
  const Cluster base{.hosts = 500,
                     .ids_per_s = 5e6,
                     .duration_s = 1800,
                     .hosts_look = true,
                     .store = ParseStore(measured.at("model"))};
  json runs = json::array();
  Cluster idle = base;
  idle.ids_per_s = 0;
  runs.push_back(Play("idle", idle));
  Cluster start = base;
  start.start = Start::kFresh;
  runs.push_back(Play("start", start));
  start.starts_over_s = 300;
  runs.push_back(Play("start, over 5 min", start));
  Cluster outage = base;
  outage.outage = {.begin_s = 300, .end_s = 900};
  runs.push_back(Play("outage", outage));
  outage.outage.grace_s = 9;
  runs.push_back(Play("outage, server restarted", outage));
  outage.outage.grace_s = 0;
  outage.leases_per_s = 10;
  runs.push_back(Play("outage, --lease-limit 10", outage));
  return runs;
}

json PlaySizes(const json& measured) {
  constexpr std::uint32_t kTags = 10'000;  // tags simulated in each run
  json runs = json::array();
  for (const std::uint32_t hosts : {100U, 1'000U, 10'000U}) {
    for (const std::uint32_t tags : {10U, 100U, 1'000U}) {
      for (const int tolerance_s : {600, 3600, 24 * 3600}) {
        const std::uint32_t simulated = std::min(hosts, kTags / tags * 10);
        const double ids_per_s = 100.0 * simulated * tags;
        Cluster cluster{.hosts = simulated,
                        .tags_per_host = tags,
                        .ids_per_s = ids_per_s,
                        .settle_s = kSettleS,
                        .store = ParseStore(measured.at("model"))};
        cluster.refill.outage_tolerance = std::chrono::seconds(tolerance_s);
        runs.push_back(Play("size", cluster, static_cast<double>(hosts) / simulated));
      }
    }
  }
  return runs;
}

}  // namespace
}  // namespace idd::capacity

int main(int argc, char** argv) {
  using namespace idd::capacity;
  using nlohmann::json;
  if (argc < 2) {
    std::fputs("usage: capacity_simulator FILE [GROUP...]\n", stderr);
    return 2;
  }
  std::ifstream file(argv[1]);
  const json measured = json::parse(file);
  const std::vector<std::string> asked(argv + 2, argv + argc);
  const std::map<std::string, json (*)(const json&)> groups = {
      {"rates", PlayRates},           {"fixed_step", PlayFixedStep}, {"sizes", PlaySizes},
      {"transients", PlayTransients}, {"slices", PlaySlices},        {"one_server", PlayOneServer}};
  json all;
  for (const auto& [name, play] : groups) {
    if (asked.empty() || std::ranges::find(asked, name) != asked.end()) all[name] = play(measured);
  }
  all["peak_memory_mib"] = PeakMemory();
  std::puts(all.dump().c_str());
  return 0;
}
