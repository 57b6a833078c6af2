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
//
// host_lease_benchmark hosts [OPTION...]: the same for a growing number of hosts, on a server with
// these options, to find out how many leases a second it carries (docs/capacity.md). Prints an
// array of {"hosts", "idle_statements", "idle_rows", "bare_commits", "leases_of_1_tag",
// "commits_of_1_tag", "leases_of_16_tags", "commits_of_16_tags"}, per second. Idle hosts have
// claimed before; bare commits come over as many connections as there are hosts, each to a row of
// its own.
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
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/host.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr int kRounds = 7;
constexpr int kScalingRounds = 3;
constexpr int kHosts = 8;
constexpr int kMostHosts = 32;
constexpr int kTags = 16;
constexpr auto kTurn = 1500ms;

class Cluster {
 public:
  explicit Cluster(const std::vector<std::string>& server_options)
      : server_(dir_, "db", {.port = port_, .arguments = server_options}) {
    server_.Start();
    server_.Session().Execute("CREATE TABLE bare(id INT PRIMARY KEY, n BIGINT NOT NULL)");
    server_.Session().Execute("INSERT INTO bare SELECT seq, 1 FROM seq_1_to_" +
                              std::to_string(kMostHosts));
  }

 protected:
  void AddHosts(int count) {
    while (static_cast<int>(hosts_.size()) < count) {
      auto host = std::make_unique<Host>(dir_, "host-" + std::to_string(hosts_.size()));
      host->daemon.options().database = server_.TcpUrl();
      host->daemon.options().log_level = "warning";
      host->daemon.options().more_arguments = {"--lease-limit", "1000000"};
      host->daemon.Start();
      hosts_.push_back(std::move(host));
    }
  }
  void CreateTags() {
    for (int i = 0; i < kTags; ++i) {
      hosts_[0]->idctl.Do({"tag", "create", TagName(i), "--step", "1000", "--max-step", "1000"});
    }
  }
  // Every tag of every host has a ring; a new host waits for a sign of life of a witness.
  void ClaimAll() {
    for (const auto& host : hosts_) {
      for (int i = 0; i < kTags; ++i) {
        Require(WaitUntil(Patience(60s),
                          [&] {
                            return host->idctl.Run({"claim", TagName(i)}).exit_status == 0;
                          }),
                "a host gets no ids");
      }
    }
  }

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

  // `are_apart`: each connection updates a row of its own.
  [[nodiscard]] double Commits(int connections, bool are_apart) {
    std::vector<std::unique_ptr<DbSession>> sessions;
    for (int i = 0; i < connections; ++i) {
      sessions.push_back(std::make_unique<DbSession>(port_));
    }
    return Rate(
        connections,
        [&sessions, are_apart](int number, const std::atomic<bool>& stop) {
          while (!stop) {
            sessions[static_cast<std::size_t>(number)]->Execute(
                "UPDATE bare SET n = n + 1 WHERE id = " +
                std::to_string(are_apart ? number + 1 : 1));
          }
        },
        [this] { return Number("SELECT SUM(n) FROM bare"); });
  }

  [[nodiscard]] std::uint64_t Number(const std::string& sql) const {
    return std::stoull(server_.Session().Query(sql));
  }
  // The sum of the server's counters whose names are LIKE `pattern`.
  [[nodiscard]] std::uint64_t Counter(const std::string& pattern) const {
    return Number(
        "SELECT CAST(SUM(VARIABLE_VALUE) AS UNSIGNED) FROM information_schema.GLOBAL_STATUS"
        " WHERE VARIABLE_NAME LIKE '" +
        pattern + "'");
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
        [this] { return Number("SELECT MAX(seq) FROM idd_lease"); });
  }

  const std::uint16_t port_ = FreePorts(1).front();
  TempDir dir_;
  DbServer server_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

class Benchmark : private Cluster {
 public:
  Benchmark() : Cluster({}) {
    AddHosts(kHosts);
    CreateTags();
    ClaimAll();
  }

  [[nodiscard]] nlohmann::json Run() {
    std::vector<double> commits_1;
    std::vector<double> leases_1;
    std::vector<double> leases_1_of_16;
    std::vector<double> commits_8;
    std::vector<double> leases_8;
    std::vector<double> leases_8_of_16;
    for (int round = 0; round < kRounds; ++round) {
      commits_1.push_back(Commits(1, false));
      leases_1.push_back(Leases(1, 1));
      leases_1_of_16.push_back(Leases(1, kTags));
      commits_8.push_back(Commits(kHosts, false));
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
};

class Scaling : private Cluster {
 public:
  explicit Scaling(const std::vector<std::string>& server_options) : Cluster(server_options) {}

  [[nodiscard]] nlohmann::json Run() {
    nlohmann::json all = nlohmann::json::array();
    for (int hosts = 1; hosts <= kMostHosts; hosts *= 2) {
      AddHosts(hosts);
      if (hosts == 1) CreateTags();
      ClaimAll();
      all.push_back(With(hosts));
      std::fprintf(stderr, "%s\n", all.back().dump().c_str());
    }
    return all;
  }

 private:
  [[nodiscard]] nlohmann::json With(int hosts) {
    const auto nothing = [](int, const std::atomic<bool>&) {};
    nlohmann::json rates = {{"hosts", hosts}};
    rates["idle_statements"] = Rate(0, nothing, [this] { return Counter("Questions"); });
    rates["idle_rows"] = Rate(0, nothing, [this] { return Counter("Handler_read_%"); });
    std::vector<double> bare;
    for (int round = 0; round < kScalingRounds; ++round) bare.push_back(Commits(hosts, true));
    rates["bare_commits"] = bench::Median(bare);
    for (const int tags : {1, kTags}) {
      std::vector<double> leases;
      std::vector<double> commits;
      for (int round = 0; round < kScalingRounds; ++round) {
        const auto began = std::chrono::steady_clock::now();
        const std::uint64_t before = Counter("Com_commit");
        leases.push_back(Leases(hosts, tags));
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
        commits.push_back(static_cast<double>(Counter("Com_commit") - before) / passed.count());
      }
      const std::string of = "_of_" + std::to_string(tags) + (tags == 1 ? "_tag" : "_tags");
      rates["leases" + of] = bench::Median(leases);
      rates["commits" + of] = bench::Median(commits);
    }
    return rates;
  }
};

}  // namespace
}  // namespace idd::harness

int main(int argc, char** argv) {
  using namespace idd::harness;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return idd::bench::PrintReport<Benchmark>("host_lease_benchmark");
  if (arguments.front() != "hosts") {
    std::fputs("usage: host_lease_benchmark [hosts [OPTION-OF-MARIADBD...]]\n", stderr);
    return 2;
  }
  return idd::bench::PrintReport<Scaling>(
      "host_lease_benchmark", std::vector<std::string>(arguments.begin() + 1, arguments.end()));
}
