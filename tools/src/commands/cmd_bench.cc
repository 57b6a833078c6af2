// SPDX-License-Identifier: Apache-2.0
//
// idctl bench: the cost of a claim on this host, beside a bare atomic add.
#include <array>
#include <cstdio>
#include <utility>

#include "bench/bench_run.h"
#include "commands/commands.h"
#include "idd/wire/channel.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

constexpr std::uint64_t kMaxClaimers = 1024;
constexpr std::uint64_t kDefaultBenchTimeoutMs = 500;

struct Percentile {
  const char* name;
  double part;
};
constexpr std::array<Percentile, 5> kPercentiles = {
    {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99_9", 0.999}, {"p99_99", 0.9999}}};

std::string Fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

JsonDocument SideJson(const BenchSide& side) {
  JsonDocument latency;
  for (const Percentile& percentile : kPercentiles) {
    latency.Set(percentile.name, side.latency.Percentile(percentile.part));
  }
  latency.Set("max", side.latency.max()).Set("samples", side.latency.count());
  JsonDocument document;
  document.Set("ids_per_s", side.ids_per_s)
      .Set("ns_per_id", side.ns_per_id)
      .Set("latency_ns", latency);
  return document;
}

JsonDocument ReportJson(const BenchPlan& plan, const BenchReport& report) {
  JsonDocument document;
  document.Set("tag", plan.tag)
      .Set("processes", std::uint64_t{plan.processes})
      .Set("threads", std::uint64_t{plan.threads})
      .Set("batch", std::uint64_t{plan.batch})
      .Set("block", std::uint64_t{plan.block})
      .Set("lanes", report.has_lanes)
      .Set("rounds", std::uint64_t{report.rounds})
      .Set("ids", report.ids)
      .Set("raw", SideJson(report.raw))
      .Set("claim", SideJson(report.claim))
      .Set("ratio", report.ratio);
  return document;
}

// How the ids were claimed.
std::string WayInWords(const BenchPlan& plan, const BenchReport& report) {
  if (plan.batch > 1) return "batches of " + std::to_string(plan.batch);
  if (plan.block > 1) return "thread blocks of " + std::to_string(plan.block);
  return report.has_lanes ? "the CPUs' lanes" : "the ring, one at a time";
}

std::string ReportText(const BenchPlan& plan, const BenchReport& report, const Screen& screen) {
  Table table({{"OPERATION"},
               {"IDS/S", Align::kRight},
               {"NS/ID", Align::kRight},
               {"P50", Align::kRight},
               {"P90", Align::kRight, 1},
               {"P99", Align::kRight},
               {"P99.9", Align::kRight},
               {"P99.99", Align::kRight, 2},
               {"MAX", Align::kRight}});
  const auto add = [&table](const char* name, const BenchSide& side) {
    std::vector<std::string> cells = {name, FormatRate(side.ids_per_s), Fixed(side.ns_per_id, 2)};
    for (const Percentile& percentile : kPercentiles) {
      cells.push_back(std::to_string(side.latency.Percentile(percentile.part)));
    }
    cells.push_back(std::to_string(side.latency.max()));
    table.AddRow(std::move(cells));
  };
  add("raw add", report.raw);
  add("claim", report.claim);
  return table.Format(screen.columns) + "\nAn id from " + WayInWords(plan, report) + " costs " +
         Fixed(report.ratio, 2) + " times a raw fetch_add on shared memory (median of " +
         std::to_string(report.rounds) +
         " rounds).\nLatencies of claims in ns, each with two readings of the clock.\n" +
         std::to_string(report.ids) + " ids were taken from the tag.\n";
}

Outcome Bench(const GlobalOptions& global, const BenchArguments& arguments, Output& out) {
  BenchPlan plan;
  plan.tag = arguments.tag;
  plan.socket_path = global.socket_path.empty() ? wire::DefaultSocketPath() : global.socket_path;
  plan.timeout_ms = static_cast<std::uint32_t>(global.timeout_ms.value_or(kDefaultBenchTimeoutMs));
  plan.processes = static_cast<std::uint32_t>(arguments.processes.value_or(1));
  plan.threads = static_cast<std::uint32_t>(arguments.threads.value_or(1));
  plan.batch = static_cast<std::uint32_t>(arguments.batch.value_or(1));
  plan.block = static_cast<std::uint32_t>(arguments.block.value_or(0));
  if (arguments.order.has_value()) plan.needs_lanes = *arguments.order == "cpu";
  plan.seconds = static_cast<double>(arguments.seconds.value_or(3));
  if (std::uint64_t{plan.processes} * plan.threads > kMaxClaimers) {
    return Failure{ExitStatus::kUsage, "bench",
                   "more than " + std::to_string(kMaxClaimers) + " claimers in all", ""};
  }
  ProgressLine progress(global.progress_fd);
  const Result<BenchReport> report = RunBench(plan, [&](double part) {
    progress.Show("idctl bench " + plan.tag + ": " + Fixed(part * 100, 0) + " % of " +
                  FormatDuration(plan.seconds));
  });
  progress.Clear();
  if (!report.ok()) return FailureFrom(report.status(), "bench " + Quote(plan.tag));
  out.Write(global.as_json ? JsonText(global, ReportJson(plan, report.value()))
                           : ReportText(plan, report.value(), ProbeScreen(out.fd())));
  return std::nullopt;
}

}  // namespace

void RegisterBenchCommand(Command root, Invocation& invocation) {
  Command bench = root.AddCommand(
      "bench", "Measure claims beside raw atomic adds; uses up the ids that it claims",
      "idctl bench orders --processes 4 --seconds 5");
  bench.AddTagName("TAG", "The tag to claim from", &invocation.bench.tag).Required();
  BenchArguments& arguments = invocation.bench;
  bench.AddCount("--processes", "Processes that claim at once [1]", {1, 256}, &arguments.processes);
  bench.AddCount("--threads", "Threads of each process [1]", {1, 256}, &arguments.threads);
  bench.AddTime("--seconds", "Length of the whole measurement, in seconds without a unit [3]",
                {1, 3600, 1000, BareTime::kAllowed}, &arguments.seconds);
  bench.AddCount("--batch", "Ids per claim [1]", {1, 1'000'000}, &arguments.batch);
  bench.AddCount("--block", "Block size of the tag's handle, 0 for none [0]", {0, 65'536},
                 &arguments.block);
  bench.AddChoice("--order", "Fail unless ids are claimed in this order", {"host", "cpu"},
                  &arguments.order);
  SetAction(bench, invocation,
            [&invocation](Output& out) { return Bench(invocation.global, invocation.bench, out); });
}

}  // namespace idd::tools
