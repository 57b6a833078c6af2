// SPDX-License-Identifier: Apache-2.0
//
// refill_benchmark measures three things. First, the time of a claim at the highest rate of one
// claimer, on a tag whose segment never ends and on one whose policy sizes its segments up to a
// ceiling of 200,000 ids, so that the segment changes in every turn of 100,000 claims. Second, how
// soon 500 threads that wait on a dry ring have their ids once the first has. Third, how long a
// claimer is stopped by a restart of idd with a service manager that returns the rings.
//
// Prints JSON: {"steady": percentiles, "changing": percentiles, "segments": n, "dry_claims": n,
// "waiters_ms": [...], "restarts": [{"restart_ms": n, "slowest_claim_ms": n}, ...]}, percentiles in
// ns.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "report.h"
#include "samples.h"
#include "support/host.h"
#include "support/service_manager_stand_in.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr int kTurns = 101;
constexpr int kClaimsOfTurn = 100'000;
constexpr std::size_t kWaiters = 500;
constexpr int kWaits = 7;
constexpr int kRestarts = 10;

class Benchmark {
 public:
  Benchmark() : host_(dir_) {
    host_.daemon.Start();
    host_.idctl.CreateTag("steady", 1'000'000'000'000);
    host_.idctl.Do({"tag", "create", "changing", "--step", "10000", "--max-prefetch", "200000"});
    options_.socket_path = host_.daemon.socket();
    options_.timeout = 10s;
  }

  [[nodiscard]] nlohmann::json Run() {
    const TickClock clock;
    idclient::Client client(options_);
    idclient::Tag steady = client.tag("steady");
    idclient::Tag changing = client.tag("changing");
    static_cast<void>(steady.claim());
    // In the first second the policy learns the rate of claims.
    const auto taught = std::chrono::steady_clock::now() + 1s;
    while (std::chrono::steady_clock::now() < taught) static_cast<void>(changing.claim());
    const std::uint64_t leases = Of("changing", "leases");
    const std::uint64_t dry = Of("changing", "fallbacks");
    Turns steady_turns;
    Turns changing_turns;
    for (int turn = 0; turn < kTurns; ++turn) {
      steady_turns.push_back(TimeClaims(steady));
      changing_turns.push_back(TimeClaims(changing));
    }
    const double ns = clock.NsPerTick();
    nlohmann::json report = {{"steady", Medians(steady_turns, ns)},
                             {"changing", Medians(changing_turns, ns)},
                             {"segments", Of("changing", "leases") - leases},
                             {"dry_claims", Of("changing", "fallbacks") - dry}};
    for (int i = 0; i < kWaits; ++i) report["waiters_ms"].push_back(TimeWaiters(client, i));
    report["restarts"] = TimeRestarts();
    return report;
  }

 private:
  using Turns = std::vector<tools::LatencyHistogram>;

  static tools::LatencyHistogram TimeClaims(idclient::Tag& tag) {
    tools::LatencyHistogram ticks;
    for (int i = 0; i < kClaimsOfTurn; ++i) {
      const std::uint64_t before = TickClock::Now();
      static_cast<void>(tag.claim());
      ticks.Add(TickClock::Now() - before);
    }
    return ticks;
  }

  // The median of each percentile over the turns: brief disturbances by the machine spoil some
  // turns, but a changing segment is in all.
  [[nodiscard]] static nlohmann::json Medians(const Turns& turns, double ns_per_tick) {
    nlohmann::json medians;
    std::vector<nlohmann::json> all;
    for (const tools::LatencyHistogram& turn : turns) {
      all.push_back(PercentilesNs(turn, ns_per_tick));
    }
    for (const auto& [name, value] : all.front().items()) {
      std::vector<double> values;
      for (const nlohmann::json& turn : all) values.push_back(turn.at(name).get<double>());
      std::nth_element(values.begin(), values.begin() + kTurns / 2, values.end());
      medians[name] = values[kTurns / 2];
    }
    return medians;
  }

  [[nodiscard]] std::uint64_t Of(const std::string& tag, const char* field) const {
    const nlohmann::json status = host_.idctl.Json({"status", tag});
    return status.at("tags").at(0).at(field).get<std::uint64_t>();
  }

  // From the first served thread to the last, on a tag whose lease waits for a lock.
  [[nodiscard]] double TimeWaiters(idclient::Client& client, int number) {
    const std::string name = "waiters-" + std::to_string(number);
    host_.idctl.CreateTag(name, 10'000);
    SqliteFile database = host_.Database();
    database.Execute("BEGIN IMMEDIATE");
    idclient::Tag tag = client.tag(name);
    std::vector<std::uint64_t> served_ns(kWaiters);
    std::vector<std::thread> threads;
    // Ending a thread takes longer than serving one, so all threads stay until all are served.
    std::shared_mutex stay;
    std::unique_lock hold(stay);
    for (std::uint64_t& served : served_ns) {
      threads.emplace_back([tag, &served, &stay]() mutable {
        static_cast<void>(tag.claim());
        served = MonotonicNs();
        const std::shared_lock until_released(stay);
      });
    }
    Require(WaitUntil(1500ms, [&] { return Of(name, "fallbacks") == kWaiters; }),
            "the threads do not all wait");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    database.Execute("ROLLBACK");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    hold.unlock();
    for (std::thread& thread : threads) thread.join();
    const auto [first, last] = std::minmax_element(served_ns.begin(), served_ns.end());
    return static_cast<double>(*last - *first) / 1e6;
  }

  // idd is killed and stopped in turn, beside a thread that claims all the time.
  [[nodiscard]] static nlohmann::json TimeRestarts() {
    const TempDir dir;
    ServiceManagerStandIn manager(dir);
    Host host(dir);
    host.daemon.options().manager = &manager;
    host.daemon.Start();
    host.idctl.CreateTag("restarted", 1'000'000);
    idclient::Options options;
    options.socket_path = host.daemon.socket();
    options.timeout = 10s;
    idclient::Client client(options);
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> slowest_ns{0};
    std::thread claimer([&stop, &slowest_ns, tag = client.tag("restarted")]() mutable {
      std::uint64_t before = MonotonicNs();
      while (!stop) {
        static_cast<void>(tag.try_claim());
        const std::uint64_t after = MonotonicNs();
        if (after - before > slowest_ns) slowest_ns = after - before;
        before = after;
      }
    });
    nlohmann::json restarts = nlohmann::json::array();
    for (int i = 0; i < kRestarts; ++i) {
      std::this_thread::sleep_for(100ms);
      slowest_ns = 0;
      const std::uint64_t from_ns = MonotonicNs();
      i % 2 == 0 ? host.daemon.Kill() : host.daemon.Stop();
      host.daemon.Start();
      const std::uint64_t restart_ns = MonotonicNs() - from_ns;
      std::this_thread::sleep_for(200ms);
      restarts.push_back({{"restart_ms", static_cast<double>(restart_ns) / 1e6},
                          {"slowest_claim_ms", static_cast<double>(slowest_ns) / 1e6}});
    }
    stop = true;
    claimer.join();
    return restarts;
  }

  TempDir dir_;
  Host host_;
  idclient::Options options_;
};

}  // namespace
}  // namespace idd::harness

int main() { return idd::bench::PrintReport<idd::harness::Benchmark>("refill_benchmark"); }
