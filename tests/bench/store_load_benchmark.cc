// SPDX-License-Identifier: Apache-2.0
//
// store_load_benchmark [RATE...]: what a real MariaDB with durable settings carries. First it
// measures single statements of the daemon: how long each takes, and how much processor time the
// server needs for it, which gives the model of capacity_simulator (StoreModel). Then it plays a
// slice of a simulated cluster's load (capacity_slice.h) in real time, for each rate in leases a
// second: every simulated host has a thread and a connection, and sends the daemon's own statements
// for the leases, the ends of leases and the looks at the term that the simulation tells it to. No
// host is a witness.
//
// Prints JSON: {"model": {...}, "model_with_generator": {...}, "slices": [{"asked", "leases_per_s",
// "wait_p50_ms", "wait_p99_ms", "failed", "server_s", "generator_s"}]}. The second model counts the
// generator's processor time as the server's, because here both share the processors.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capacity_slice.h"
#include "lease_requests.h"
#include "nlohmann/json.hpp"
#include "platform/random.h"
#include "report.h"
#include "store/mysql/mysql_store.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/leasable.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using nlohmann::json;
using std::chrono_literals::operator""ms;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kAtOnce = 64;       // LeaseScheduler
constexpr std::size_t kEndsAtOnce = 100;  // LeaseCloser
constexpr double kLookS = 2;

std::string TagName(std::uint32_t number) { return "tag-" + std::to_string(number); }

// A host without a daemon: its connection, and the leases that it holds.
class SimulatedHost {
 public:
  SimulatedHost(const std::string& url, std::uint32_t number)
      : store_(MysqlStoreOptions{ParseMysqlUrl(url).value(),
                                 {"host-" + std::to_string(number), "boot", RandomToken()}}) {
    harness::Require(store_.Open().ok(), "the store does not open");
  }

  [[nodiscard]] Status Read(const std::string& tag) { return store_.FindTags({tag}).status(); }
  [[nodiscard]] Status Look() { return store_.ReadTerm(std::nullopt).status(); }
  [[nodiscard]] Status Lease(const std::vector<std::string>& tags) {
    if (const Status read = store_.FindTagsCached(tags).status(); !read.ok()) return read;
    const auto leases = store_.TakeLeases(bench::RequestsFor(tags));
    if (!leases.ok()) return leases.status();
    for (const auto& lease : leases.value()) {
      if (!lease.ok()) return lease.status();
      open_.emplace(lease.value().tag, bench::EndOf(lease.value()));
    }
    return Status::Ok();
  }
  // The ends of the oldest leases of these tags; of a tag without a lease, nothing.
  [[nodiscard]] Status End(const std::vector<std::string>& tags) {
    std::vector<LeaseClosure> ends;
    for (const std::string& tag : tags) {
      const auto oldest = open_.lower_bound(tag);
      if (oldest == open_.end() || oldest->first != tag) continue;
      ends.push_back(oldest->second);
      open_.erase(oldest);
    }
    return ends.empty() ? Status::Ok() : store_.CloseLeases(ends);
  }
  [[nodiscard]] Status Reopen() {
    const Status opened = store_.Open();
    return opened.ok() ? Look() : opened;
  }

 private:
  MysqlStore store_;
  std::multimap<std::string, LeaseClosure> open_;  // by tag, oldest first
};

class Benchmark {
 public:
  explicit Benchmark(std::vector<double> rates) : rates_(std::move(rates)) {
    server_.Start({"--innodb-buffer-pool-size=512M"});
    const capacity::Cluster cluster = capacity::SliceOf(1);
    for (std::uint32_t i = 0; i < cluster.hosts; ++i) {
      hosts_.push_back(std::make_unique<SimulatedHost>(server_.TcpUrl(), i));
    }
    MysqlStore store(
        MysqlStoreOptions{ParseMysqlUrl(server_.TcpUrl()).value(), {"operator", "boot", "run"}});
    harness::Require(store.Open().ok(), "the store does not open");
    MakeLeasable(store, server_);
    // A lease is guarded by the term that its host has read.
    for (const auto& host : hosts_) harness::Require(host->Look().ok(), "a look fails");
    for (std::uint32_t i = 0; i < cluster.tags_per_host; ++i) {
      NewTag tag;
      tag.tag = TagName(i);
      harness::Require(store.CreateTag(tag).ok(), "no tag can be created");
    }
  }

  [[nodiscard]] json Run() {
    json result = Calibrate();
    for (const double rate : rates_) {
      result["slices"].push_back(Play(rate));
      std::fprintf(stderr, "%s\n", result["slices"].back().dump().c_str());
    }
    return result;
  }

 private:
  // What one request costs, in seconds.
  struct Cost {
    double wall = 0;  // median
    double server = 0;
    double generator = 0;
  };

  // The processor time that the server, and this program, have used so far.
  [[nodiscard]] double ServerTime() const {
    std::ifstream file("/proc/" + std::to_string(server_.pid()) + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  [[nodiscard]] static double OwnTime() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  // Over one connection, one request after the other.
  [[nodiscard]] Cost Measure(const std::function<Status()>& request) const {
    constexpr Seconds kFor(4);
    std::vector<double> walls;
    const double server = ServerTime();
    const double own = OwnTime();
    const auto until = Clock::now() + kFor;
    for (auto now = Clock::now(); now < until;) {
      const Status status = request();
      harness::Require(status.ok(), "a request fails: " + status.message());
      const auto done = Clock::now();
      walls.push_back(Seconds(done - now).count());
      now = done;
    }
    const auto count = static_cast<double>(walls.size());
    return {.wall = bench::Median(walls),
            .server = (ServerTime() - server) / count,
            .generator = (OwnTime() - own) / count};
  }

  [[nodiscard]] json Calibrate() {
    SimulatedHost& host = *hosts_.front();
    std::vector<std::string> many;
    for (std::uint32_t i = 0; i < kAtOnce; ++i) many.push_back(TagName(i));
    const std::vector<std::string> one{many.front()};
    const Cost read = Measure([&] { return host.Read(one.front()); });
    const Cost lease = Measure([&] { return host.Lease(one); });
    const Cost leases = Measure([&] { return host.Lease(many); });
    const Cost look = Measure([&] { return host.Look(); });
    std::fprintf(stderr, "one of 64: %.0f us\n", leases.wall / kAtOnce * 1e6);

    const auto model = [&](bool with_generator) {
      const auto time = [with_generator](const Cost& cost) {
        return cost.server + (with_generator ? cost.generator : 0);
      };
      const double answer = std::max(0.0, read.wall - time(read));
      return json{{"transaction_s", time(lease)},
                  {"more_s", (time(leases) - time(lease)) / (kAtOnce - 1)},
                  {"read_s", time(read)},
                  {"look_s", time(look)},
                  {"sync_s", std::max(0.0, lease.wall - time(lease) - 2 * answer)},
                  {"answer_s", answer},
                  {"processors", std::max(1U, std::thread::hardware_concurrency())}};
    };
    return {
        {"model", model(false)}, {"model_with_generator", model(true)}, {"slices", json::array()}};
  }

  struct Played {
    std::mutex mutex;
    std::vector<double> waits;
    std::uint64_t failed = 0;
  };

  // One host's requests, each at its time or as soon after it as the host can.
  static void PlayHost(SimulatedHost& host, std::vector<capacity::Request> requests,
                       Clock::time_point begin, double look_at, Played& played) {
    std::vector<double> waits;
    std::uint64_t failed = 0;
    const auto elapsed = [begin] { return Seconds(Clock::now() - begin).count(); };
    const auto check = [&](const Status& status) {
      if (status.ok()) return;
      ++failed;
      static_cast<void>(host.Reopen());
    };
    std::size_t next = 0;
    std::vector<capacity::Request> leases;
    std::vector<capacity::Request> ends;
    const auto take = [](std::vector<capacity::Request>& from, std::size_t most) {
      std::vector<std::string> tags;
      std::vector<capacity::Request> later;
      for (const capacity::Request& request : from) {
        const std::string tag = TagName(request.tag);
        const bool is_second = std::find(tags.begin(), tags.end(), tag) != tags.end();
        if (tags.size() == most || is_second) {
          later.push_back(request);
        } else {
          tags.push_back(tag);
        }
      }
      from.swap(later);
      return tags;
    };
    while (elapsed() < capacity::kSliceS) {
      for (; next < requests.size() && requests[next].at <= elapsed(); ++next) {
        (requests[next].is_end ? ends : leases).push_back(requests[next]);
      }
      if (!leases.empty()) {
        const std::vector<capacity::Request> due = leases;
        const std::vector<std::string> tags = take(leases, kAtOnce);
        check(host.Lease(tags));
        const double now = elapsed();
        for (const capacity::Request& request : due) {
          if (std::none_of(leases.begin(), leases.end(), [&request](const auto& later) {
                return later.at == request.at && later.tag == request.tag;
              })) {
            waits.push_back(now - request.at);
          }
        }
      }
      if (!ends.empty()) check(host.End(take(ends, kEndsAtOnce)));
      if (elapsed() >= look_at) {
        look_at += kLookS;
        check(host.Look());
      }
      if (leases.empty() && ends.empty()) {
        const double wake = next < requests.size() ? std::min(look_at, requests[next].at) : look_at;
        std::this_thread::sleep_until(begin +
                                      std::chrono::duration_cast<Clock::duration>(Seconds(wake)));
      }
    }
    const std::lock_guard lock(played.mutex);
    played.waits.insert(played.waits.end(), waits.begin(), waits.end());
    played.failed += failed;
  }

  [[nodiscard]] json Play(double rate) {
    const capacity::Cluster cluster = capacity::SliceOf(rate);
    const capacity::Outcome outcome = Simulate(cluster);
    std::vector<std::vector<capacity::Request>> requests(hosts_.size());
    for (capacity::Request request : outcome.requests) {
      request.at -= cluster.settle_s;
      requests[request.host].push_back(request);
    }
    Played played;
    const double server = ServerTime();
    const double own = OwnTime();
    const auto begin = Clock::now() + 100ms;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const double look_at = kLookS * static_cast<double>(i) / static_cast<double>(hosts_.size());
      threads.emplace_back(
          [&, i, look_at] { PlayHost(*hosts_[i], requests[i], begin, look_at, played); });
    }
    for (std::thread& thread : threads) thread.join();
    std::sort(played.waits.begin(), played.waits.end());
    const auto at = [&played](std::size_t percent) {
      return played.waits.empty() ? 0.0
                                  : played.waits[(played.waits.size() - 1) * percent / 100] * 1e3;
    };
    const Seconds lasted = Clock::now() - begin;
    return {{"asked", rate},
            {"leases_per_s", static_cast<double>(played.waits.size()) / lasted.count()},
            {"wait_p50_ms", at(50)},
            {"wait_p99_ms", at(99)},
            {"failed", played.failed},
            {"server_s", (ServerTime() - server) / lasted.count()},
            {"generator_s", (OwnTime() - own) / lasted.count()}};
  }

  const std::vector<double> rates_;
  const std::uint16_t port_ = harness::FreePorts(1).front();
  const harness::TempDir dir_;
  harness::DbServer server_{dir_, "db", {.port = port_, .arguments = {}}};
  std::vector<std::unique_ptr<SimulatedHost>> hosts_;
};

}  // namespace
}  // namespace idd::daemon

int main(int argc, char** argv) {
  std::vector<double> rates;
  for (int i = 1; i < argc; ++i) rates.push_back(std::stod(argv[i]));
  if (rates.empty()) rates = {100, 200, 400, 800, 1600, 3200, 6400};
  return idd::bench::PrintReport<idd::daemon::Benchmark>("store_load_benchmark", rates);
}
