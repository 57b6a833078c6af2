// SPDX-License-Identifier: Apache-2.0
//
// host_lease_benchmark: leases a second from end to end, with tags whose segments hold 1,000 ids
// and end at once: a client claims, finds the ring dry, idd leases, writes its mark and publishes.
// Measured with one tag, which requests its next lease when the last one has come, and with
// sixteen, whose leases share transactions; with one host and with eight; in turn with bare commits
// (one UPDATE of one row) over one connection and over eight to the same durable MariaDB over TCP.
//
// Prints JSON, medians: {"commits_1": per second, "leases_1", "leases_1_of_16", "commits_8",
// "leases_8", "leases_8_of_16"}.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "nlohmann/json.hpp"
#include "report.h"
#include "support/free_ports.h"
#include "support/host.h"
#include "support/mariadb_server.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr int kRounds = 7;
constexpr int kHosts = 8;
constexpr int kTags = 16;
constexpr auto kTurn = 1500ms;

class Benchmark {
 public:
  Benchmark() {
    server_.Start();
    server_.Session().Execute("CREATE TABLE bare(id INT PRIMARY KEY, n BIGINT NOT NULL)");
    server_.Session().Execute("INSERT INTO bare VALUES(1, 1)");
    for (int i = 0; i < kHosts; ++i) {
      auto host = std::make_unique<Host>(dir_, "host-" + std::to_string(i));
      host->daemon.options().database = server_.TcpUrl();
      host->daemon.options().log_level = "warning";
      host->daemon.options().more_arguments = {"--lease-limit", "1000000"};
      host->daemon.Start();
      hosts_.push_back(std::move(host));
    }
    for (int i = 0; i < kTags; ++i) {
      hosts_[0]->idctl.Do({"tag", "create", TagName(i), "--step", "1000", "--max-step", "1000"});
      for (const auto& host : hosts_) static_cast<void>(host->idctl.Claim(TagName(i), 1));
    }
  }

  [[nodiscard]] nlohmann::json Run() {
    std::vector<double> commits_1;
    std::vector<double> leases_1;
    std::vector<double> leases_1_of_16;
    std::vector<double> commits_8;
    std::vector<double> leases_8;
    std::vector<double> leases_8_of_16;
    for (int round = 0; round < kRounds; ++round) {
      commits_1.push_back(Commits(1));
      leases_1.push_back(Leases(1, 1));
      leases_1_of_16.push_back(Leases(1, kTags));
      commits_8.push_back(Commits(kHosts));
      leases_8.push_back(Leases(kHosts, 1));
      leases_8_of_16.push_back(Leases(kHosts, kTags));
    }
    return {{"commits_1", bench::Median(commits_1)},
            {"leases_1", bench::Median(leases_1)},
            {"leases_1_of_16", bench::Median(leases_1_of_16)},
            {"commits_8", bench::Median(commits_8)},
            {"leases_8", bench::Median(leases_8)},
            {"leases_8_of_16", bench::Median(leases_8_of_16)}};
  }

 private:
  [[nodiscard]] static std::string TagName(int number) { return "tag" + std::to_string(number); }

  using Turn = std::function<void(int number, const std::atomic<bool>& stop)>;

  // The growth of `count` in each second while `threads` threads run `turn`.
  [[nodiscard]] static double Rate(int threads, const Turn& turn,
                                   const std::function<std::uint64_t()>& count) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) running.emplace_back([&turn, &stop, i] { turn(i, stop); });
    std::this_thread::sleep_for(100ms);
    const std::uint64_t before = count();
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(kTurn);
    const std::uint64_t after = count();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
    stop = true;
    for (std::thread& thread : running) thread.join();
    return static_cast<double>(after - before) / passed.count();
  }

  [[nodiscard]] double Commits(int connections) {
    std::vector<std::unique_ptr<MariadbSession>> sessions;
    for (int i = 0; i < connections; ++i) {
      sessions.push_back(std::make_unique<MariadbSession>(port_));
    }
    return Rate(
        connections,
        [&sessions](int number, const std::atomic<bool>& stop) {
          while (!stop) {
            sessions[static_cast<std::size_t>(number)]->Execute("UPDATE bare SET n = n + 1");
          }
        },
        [this] { return std::stoull(server_.Session().Query("SELECT n FROM bare")); });
  }

  // A thread for each tag of each host.
  [[nodiscard]] double Leases(int hosts, int tags) {
    return Rate(
        hosts * tags,
        [this, tags](int number, const std::atomic<bool>& stop) {
          idclient::Options options;
          options.socket_path = hosts_[static_cast<std::size_t>(number / tags)]->daemon.socket();
          options.timeout = 60s;
          idclient::Client client(options);
          idclient::Tag tag = client.tag(TagName(number % tags));
          while (!stop) static_cast<void>(tag.claim());
        },
        [this] { return std::stoull(server_.Session().Query("SELECT MAX(seq) FROM idd_lease")); });
  }

  const std::uint16_t port_ = FreePorts(1).front();
  TempDir dir_;
  MariadbServer server_{dir_, "db", {.port = port_, .arguments = {}}};
  std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace
}  // namespace idd::harness

int main() { return idd::bench::PrintReport<idd::harness::Benchmark>("host_lease_benchmark"); }
