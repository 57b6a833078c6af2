// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_STRESS_WITNESS_HOSTS_H_
#define IDD_TESTS_STRESS_WITNESS_HOSTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mysql_hosts.h"
#include "support/child_process.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/test_environment.h"

namespace idd::harness {

// A primary and its replica, both reached over TCP; the replica is writable all the time.
class ServerPair {
 public:
  explicit ServerPair(const TempDir& dir)
      : ports_(FreePorts(2)),
        primary(dir, "primary", {.port = ports_[0], .arguments = ArgumentsOf(1)}),
        replica(dir, "replica", {.port = ports_[1], .arguments = ArgumentsOf(2)}) {
    primary.Start();
    replica.Start();
    replica.Replicate(primary);
  }

  [[nodiscard]] std::string Url() const { return primary.TcpUrl({&replica}); }
  // From now on the replica misses new leases.
  void StopReplication() {
    EXPECT_TRUE(WaitUntil(Patience(std::chrono::seconds(10)), [this] {
      return std::stoi(replica.Session().Query("SELECT COUNT(*) FROM idd_lease")) > 0;
    }));
    replica.StopReplicating();
  }

 private:
  static std::vector<std::string> ArgumentsOf(int id) {
    return {"--server-id=" + std::to_string(id), "--log-bin=binlog"};
  }
  const std::vector<std::uint16_t> ports_;

 public:
  DbServer primary;
  DbServer replica;
};

// How long a host at full speed may be without ids after a change of the data set. It usually takes
// one to five seconds. Nothing waits for a host that is not there.
inline std::chrono::nanoseconds LongestWithoutIds() {
  return std::chrono::seconds(30) * SlowdownFactor();
}

class WitnessHosts : public MysqlHosts {
 protected:
  Host& AddHost(const std::string& name, const std::string& url) {
    auto host = std::make_unique<Host>(dir_, name);
    host->daemon.options().database = url;
    hosts_.push_back(std::move(host));
    return *hosts_.back();
  }
  [[nodiscard]] static bool Claims(const Host& host) {
    return WaitUntil(Patience(std::chrono::seconds(60)), [&] {
      return host.idctl.Run({"claim", "orders"}).exit_status == 0;
    });
  }
  // Starts that many hosts, each of which gets an id of the new tag "orders". The first three are
  // the witnesses.
  void StartLeasing(int count, const std::string& url) {
    for (int i = 0; i < count; ++i) AddHost("host-" + std::to_string(i), url).daemon.Start();
    ASSERT_TRUE(WaitUntil(Patience(std::chrono::seconds(10)), [&] {
      return hosts_[0]
                 ->idctl
                 .Run({"tag", "create", "orders", "--if-absent", "--step", "1000", "--max-step",
                       "1000", "--max-prefetch", "2000"})
                 .exit_status == 0;
    }));
    for (const auto& host : hosts_) ASSERT_TRUE(Claims(*host)) << host->daemon.Log();
    SetWitnesses({"host-0", "host-1", "host-2"});
  }
  [[nodiscard]] static WorkerPlan FullSpeed() {
    WorkerPlan plan;
    plan.batch = 16;
    plan.pace_us = 200;
    plan.retry = true;
    plan.awaits_tag = true;  // during a restore the tables have no rows for a moment
    plan.log_capacity = 1 << 22;
    return plan;
  }
  // With ids in its ring for many seconds.
  [[nodiscard]] static WorkerPlan Slowly() {
    WorkerPlan plan = FullSpeed();
    plan.batch = 1;
    plan.pace_us = 50'000;
    return plan;
  }
  ClaimWorkerProcess& Load(const Host& host, const WorkerPlan& plan) {
    ClaimWorkerProcess& worker = AddWorker(host, plan);
    owners_[worker.name()] = host.daemon.options().host_id;
    worker.WaitReady(Patience(std::chrono::seconds(60)));
    worker.Go();
    return worker;
  }
  // Four hosts, three of them at full speed.
  void StartLoad(const std::string& url) {
    ASSERT_NO_FATAL_FAILURE(StartLeasing(4, url));
    LoadFully();
  }
  void LoadFully() {
    for (std::size_t i = 0; i < 3; ++i) {
      for (int n = 0; n < 2; ++n) Load(*hosts_[i], FullSpeed());
    }
    ExpectLeasing(3);
  }
  // Makes every host take leases that the other server, or the dump, does not have. The last ones,
  // above all other hosts' marks, belong to the last host: it hands out a few thousand ids, then
  // has enough for a while and asks the server for nothing. The other hosts' clients are stopped
  // until GoOn().
  void LeaseWhatGetsLost() {
    ExpectLeasing(3);
    Signal(SIGSTOP);
    WorkerPlan some = FullSpeed();
    some.ids = 2500;
    ClaimWorkerProcess& worker = Load(*hosts_[3], some);
    EXPECT_TRUE(
        WaitUntil(Patience(std::chrono::seconds(30)), [&] { return worker.ids() >= some.ids; }));
    Load(*hosts_[3], Slowly());
  }
  void GoOn() { Signal(SIGCONT); }
  void Signal(int signal) {
    for (const auto& worker : workers_) {
      if (owners_[worker->name()] != "host-3") worker->process().Signal(signal);
    }
  }
  [[nodiscard]] static bool Runs(Host& host) {
    return host.daemon.pid() > 0 && host.daemon.process().Running();
  }
  [[nodiscard]] static std::uint64_t Number(const Host& host, const char* what) {
    const nlohmann::json status = host.idctl.Json({"status"});
    for (const nlohmann::json& tag : status.at("tags")) {
      if (tag.at("tag") == "orders") return tag.at(what).get<std::uint64_t>();
    }
    throw HarnessError("the host does not serve the tag 'orders'");
  }
  // Each of the first `count` hosts takes two more leases: at least the second was requested after
  // the call.
  void ExpectLeasing(std::size_t count) {
    std::vector<std::size_t> hosts;
    for (std::size_t i = 0; i < count; ++i) hosts.push_back(i);
    ExpectLeasingOf(hosts);
  }
  void ExpectLeasingOf(const std::vector<std::size_t>& hosts) {
    std::map<std::size_t, std::uint64_t> before;
    for (const std::size_t i : hosts) before[i] = Number(*hosts_[i], "leases");
    for (const std::size_t i : hosts) {
      EXPECT_TRUE(WaitUntil(Patience(std::chrono::seconds(60)), [&] {
        return Number(*hosts_[i], "leases") >= before[i] + 2;
      })) << hosts_[i]->daemon.Log();
    }
  }
  // Starts the measurement.
  void Change() {
    changed_ns_ = MonotonicNs();
    for (const auto& host : hosts_) {
      if (!Runs(*host)) continue;
      dry_[host->daemon.options().host_id] = Number(*host, "fallbacks");
    }
  }
  // Ends all claimers and expects that no two of them got the same id.
  [[nodiscard]] std::vector<Claimer> FinishUnique() {
    for (const auto& worker : workers_) worker->Stop();
    std::vector<Claimer> claimers = Finish(Patience(std::chrono::seconds(60)));
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    return claimers;
  }
  void PrintLogsIfFailed() const {
    if (!::testing::Test::HasFailure()) return;
    for (const auto& host : hosts_) std::printf("%s\n", host->daemon.Log().c_str());
  }
  void ExpectUnique(const char* what) {
    std::string dry;
    for (const auto& host : hosts_) {
      const std::string& name = host->daemon.options().host_id;
      if (!Runs(*host)) continue;
      const std::uint64_t now = Number(*host, "fallbacks");
      const std::uint64_t before = dry_[name];
      dry += " " + std::to_string(now - (now < before ? 0 : before));  // else: restarted
    }
    const std::vector<Claimer> claimers = FinishUnique();
    std::printf("%s: %llu ids; longest pause%s; dry claims%s\n", what,
                static_cast<unsigned long long>(CountIds(claimers)), Pauses(claimers).c_str(),
                dry.c_str());
    PrintLogsIfFailed();
  }
  // For each host, the sorted times of answered claims.
  using AnswerTimes = std::map<std::string, std::vector<std::uint64_t>>;
  [[nodiscard]] AnswerTimes AnswersOf(const std::vector<Claimer>& claimers) const {
    AnswerTimes answered;
    for (const Claimer& claimer : claimers) {
      const std::string worker = claimer.name.substr(0, claimer.name.find_first_of("./ "));
      const auto owner = owners_.find(worker);
      std::vector<std::uint64_t>& times =
          answered[owner == owners_.end() ? claimer.name : owner->second];
      for (const ClaimRecord& record : claimer.records) {
        if (record.count > 0) times.push_back(record.after_ns);
      }
    }
    for (auto& [host, times] : answered) std::sort(times.begin(), times.end());
    return answered;
  }
  // The longest time without an answer, from `begin_ns` to the last answer before `end_ns`.
  [[nodiscard]] static std::uint64_t LongestPause(const std::vector<std::uint64_t>& times,
                                                  std::uint64_t begin_ns, std::uint64_t end_ns) {
    std::uint64_t last = begin_ns;
    std::uint64_t longest = 0;
    for (auto it = std::upper_bound(times.begin(), times.end(), begin_ns);
         it != times.end() && *it < end_ns; last = *it++) {
      longest = std::max(longest, *it - last);
    }
    return longest;
  }
  // For each host, the longest time since Change() without an answered claim.
  [[nodiscard]] std::string Pauses(const std::vector<Claimer>& claimers) const {
    std::string text;
    for (const auto& [host, times] : AnswersOf(claimers)) {
      const std::uint64_t pause = LongestPause(times, changed_ns_, UINT64_MAX);
      if (at_full_speed_.contains(host)) {
        EXPECT_LT(std::chrono::nanoseconds(pause), LongestWithoutIds()) << host;
      }
      text += " " + host + " " + std::to_string(pause / 1'000'000) + " ms";
    }
    return text;
  }

  // Dumps as an operator would; `when` names the file.
  [[nodiscard]] std::string Dump(const std::string& when) { return Dump(server_, when); }
  [[nodiscard]] std::string Dump(const DbServer& server, const std::string& when) const {
    const std::string path = dir_.File(when + ".sql");
    Shell(server.DumpCommand() + " > " + path);
    return path;
  }
  void Restore(const std::string& path) const { Restore(server_, path); }
  // Retries, as docs/mysql.md advises, if a host makes a table or its own row before the dump does.
  static void Restore(const DbServer& server, const std::string& path) {
    const std::string command = server.ClientCommand() + " < " + path;
    std::string error;
    for (int attempt = 0; attempt < 10; ++attempt) {
      if (Run(command, error) == 0) return;
      const bool is_by_a_host = error.find("Duplicate entry") != std::string::npos ||
                                error.find("already exists") != std::string::npos;
      if (!is_by_a_host) break;
    }
    ADD_FAILURE() << command << "\n" << error;
  }
  static void Shell(const std::string& command) {
    std::string error;
    EXPECT_EQ(Run(command, error), 0) << command << "\n" << error;
  }
  // Returns the exit status of a shell command, -1 if it does not end; `error`: its stderr.
  static int Run(const std::string& command, std::string& error) {
    ChildOptions child;
    child.argv = {"/bin/sh", "-c", command};
    ChildProcess process(child);
    const int status = process.WaitFor(Patience(std::chrono::seconds(60))).value_or(-1);
    error = process.stderr_text();
    return status;
  }
  // Over the socket, with a password.
  [[nodiscard]] std::string Url() const {
    return "mysql://idd:secret@localhost/idd?unix_socket=" + server_.socket();
  }

  std::uint64_t changed_ns_ = 0;
  std::map<std::string, std::string> owners_;  // worker to host
  std::map<std::string, std::uint64_t> dry_;   // host to its dry claims before the change
  std::set<std::string> at_full_speed_ = {"host-0", "host-1", "host-2"};  // all the time
};

}  // namespace idd::harness

#endif  // IDD_TESTS_STRESS_WITNESS_HOSTS_H_
