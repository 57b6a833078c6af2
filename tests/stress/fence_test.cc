// SPDX-License-Identifier: Apache-2.0
//
// Failovers that once gave ids twice: a primary that is demoted or hangs while its connections stay
// up, hosts that start in the middle of it, dumps that are restored, sessions that a proxy leads to
// another server, tables of an engine that cannot roll back, a host that never comes back.
//
// Method: hosts claim through two client processes each, at full speed and with segments of a fixed
// size, so that each leases all the time. The oracle looks for ids that came twice anywhere. Each
// case prints the longest time for which a host got no id, and how many claims found no id ready.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mysql_hosts.h"
#include "support/child_process.h"
#include "support/free_ports.h"
#include "support/mariadb_server.h"
#include "support/mysql_proxy.h"
#include "support/sqlite_file.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;
using ::testing::HasSubstr;

// A primary and its replica, both reached by TCP; the replica may be written to all the time.
class ServerPair {
 public:
  explicit ServerPair(const TempDir& dir)
      : ports_(FreePorts(2)),
        primary(dir, "primary", {.port = ports_[0], .arguments = ArgumentsOf(1)}),
        replica(dir, "replica", {.port = ports_[1], .arguments = ArgumentsOf(2)}) {
    primary.Start();
    replica.Start();
    primary.Session().Execute("GRANT REPLICATION SLAVE ON *.* TO idd@'127.0.0.1'");
    MariadbSession standby = replica.Session();
    standby.Execute("RESET MASTER");
    standby.Execute(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=" + std::to_string(ports_[0]) +
        ", MASTER_USER='idd', MASTER_PASSWORD='secret',"
        " MASTER_LOG_FILE='binlog.000001', MASTER_LOG_POS=4");
    standby.Execute("START SLAVE");
  }

  [[nodiscard]] std::string Url() const {
    return "mysql://idd:secret@127.0.0.1:" + std::to_string(ports_[0]) +
           ",127.0.0.1:" + std::to_string(ports_[1]) + "/idd";
  }
  // From now on the replica misses what is leased.
  void StopReplication() {
    EXPECT_TRUE(WaitUntil(Patience(10s), [this] {
      return std::stoi(replica.Session().Query("SELECT COUNT(*) FROM idd_lease")) > 0;
    }));
    replica.Session().Execute("STOP SLAVE");
  }

 private:
  static std::vector<std::string> ArgumentsOf(int id) {
    return {"--server-id=" + std::to_string(id), "--log-bin=binlog"};
  }
  const std::vector<std::uint16_t> ports_;

 public:
  MariadbServer primary;
  MariadbServer replica;
};

class FenceHosts : public MysqlHosts {
 protected:
  Host& AddHost(const std::string& name, const std::string& url, int fence_after = 600) {
    auto host = std::make_unique<Host>(dir_, name);
    host->daemon.options().database = url;
    host->daemon.options().environment = {"IDD_FENCE_AFTER=" + std::to_string(fence_after)};
    hosts_.push_back(std::move(host));
    return *hosts_.back();
  }
  [[nodiscard]] static bool Claims(const Host& host) {
    return WaitUntil(Patience(60s), [&] {
      return host.idctl.Run({"claim", "orders"}).exit_status == 0;
    });
  }
  // So many hosts that have had an id of the new tag "orders".
  void StartLeasing(int count, const std::string& url, int fence_after = 600) {
    for (int i = 0; i < count; ++i) {
      AddHost("host-" + std::to_string(i), url, fence_after).daemon.Start();
    }
    ASSERT_TRUE(WaitUntil(Patience(10s), [&] {
      return hosts_[0]
                 ->idctl
                 .Run({"tag", "create", "orders", "--if-absent", "--step", "1000", "--max-step",
                       "1000", "--max-prefetch", "2000"})
                 .exit_status == 0;
    }));
    for (const auto& host : hosts_) ASSERT_TRUE(Claims(*host)) << host->daemon.Log();
  }
  [[nodiscard]] static WorkerPlan FullSpeed() {
    WorkerPlan plan;
    plan.batch = 16;
    plan.pace_us = 200;
    plan.retry = true;
    plan.awaits_tag = true;  // a dump that is being restored has no rows for a moment
    plan.log_capacity = 1 << 21;
    return plan;
  }
  // With what is in its ring for many seconds.
  [[nodiscard]] static WorkerPlan Slowly() {
    WorkerPlan plan = FullSpeed();
    plan.batch = 1;
    plan.pace_us = 50'000;
    return plan;
  }
  ClaimWorkerProcess& Load(const Host& host, const WorkerPlan& plan) {
    ClaimWorkerProcess& worker = AddWorker(host, plan);
    owners_[worker.name()] = host.daemon.options().host_id;
    worker.WaitReady(Patience(60s));
    worker.Go();
    return worker;
  }
  // Four hosts, three of them at full speed.
  void StartLoad(const std::string& url, int fence_after = 600) {
    ASSERT_NO_FATAL_FAILURE(StartLeasing(4, url, fence_after));
    for (std::size_t i = 0; i < 3; ++i) {
      for (int n = 0; n < 2; ++n) Load(*hosts_[i], FullSpeed());
    }
    ExpectLeasing(3);
  }
  // Leases of every host that the other server, or the dump, does not have. The last ones, which no
  // other host's mark is above, are the last host's: it hands out a few thousand ids, has what it
  // needs for a while, and does not ask the server for anything by itself. Until GoOn() the other
  // hosts' clients are stopped.
  void LeaseWhatGetsLost() {
    ExpectLeasing(3);
    Signal(SIGSTOP);
    WorkerPlan some = FullSpeed();
    some.ids = 2500;
    ClaimWorkerProcess& worker = Load(*hosts_[3], some);
    EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return worker.ids() >= some.ids; }));
    Load(*hosts_[3], Slowly());
  }
  // The last host has just given the sign of life that it gives every twenty seconds.
  void WaitForSignOfLife(const MariadbServer& server) {
    MariadbSession session = server.Session();
    const auto beat = [&session] {
      return session.Query("SELECT beat FROM idd_host WHERE host = 'host-3'");
    };
    const std::string before = beat();
    EXPECT_TRUE(WaitUntil(Patience(40s), [&] { return beat() != before; }));
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
    return host.idctl.Json({"status"}).at("tags").at(0).at(what).get<std::uint64_t>();
  }
  // Each of the first `count` hosts has taken two leases since: the second was asked for since.
  void ExpectLeasing(std::size_t count) {
    std::vector<std::uint64_t> before;
    for (std::size_t i = 0; i < count; ++i) before.push_back(Number(*hosts_[i], "leases"));
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(WaitUntil(Patience(60s), [&] {
        return Number(*hosts_[i], "leases") >= before[i] + 2;
      })) << hosts_[i]->daemon.Log();
    }
  }
  // Each of the first `count` hosts has noted that all others know of it where it leases now: what
  // it has noted counts at the next server. It looks once a second, and may have leased before
  // that.
  void ExpectKnownToAll(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(WaitUntil(Patience(60s), [&] {
        SqliteFile marks(hosts_[i]->daemon.options().state_dir + "/high-water.db");
        return marks.QueryInteger("SELECT is_live FROM idd_membership") == 1;
      })) << hosts_[i]->daemon.Log();
    }
  }
  // What happens from now on is measured.
  void Change() {
    changed_ns_ = MonotonicNs();
    for (const auto& host : hosts_) {
      if (!Runs(*host)) continue;
      dry_[host->daemon.options().host_id] = Number(*host, "fallbacks");
    }
  }
  void ExpectUnique(const char* what) {
    std::string dry;
    for (const auto& host : hosts_) {
      const std::string& name = host->daemon.options().host_id;
      if (!Runs(*host)) continue;
      const std::uint64_t now = Number(*host, "fallbacks");
      const std::uint64_t before = dry_[name];
      dry += " " + std::to_string(now - (now < before ? 0 : before));  // else: it was restarted
    }
    for (const auto& worker : workers_) worker->Stop();
    const std::vector<Claimer> claimers = Finish(Patience(60s));
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    std::printf("%s: %llu ids; longest pause%s; dry claims%s\n", what,
                static_cast<unsigned long long>(CountIds(claimers)), Pauses(claimers).c_str(),
                dry.c_str());
    if (!HasFailure()) return;
    for (const auto& host : hosts_) std::printf("%s\n", host->daemon.Log().c_str());
  }
  // The longest time since Change() for which no claim of a host was answered.
  [[nodiscard]] std::string Pauses(const std::vector<Claimer>& claimers) const {
    std::map<std::string, std::vector<std::uint64_t>> answered;
    for (const Claimer& claimer : claimers) {
      const std::string worker = claimer.name.substr(0, claimer.name.find_first_of("./ "));
      const auto owner = owners_.find(worker);
      std::vector<std::uint64_t>& times =
          answered[owner == owners_.end() ? claimer.name : owner->second];
      for (const ClaimRecord& record : claimer.records) {
        if (record.count > 0 && record.after_ns > changed_ns_) times.push_back(record.after_ns);
      }
    }
    std::string text;
    for (auto& [host, times] : answered) {
      std::sort(times.begin(), times.end());
      std::uint64_t last = changed_ns_;
      std::uint64_t longest = 0;
      for (const std::uint64_t time : times) {
        longest = std::max(longest, time - last);
        last = time;
      }
      text += " " + host + " " + std::to_string(longest / 1'000'000) + " ms";
    }
    return text;
  }

  // As an operator does; `when` names the file.
  [[nodiscard]] std::string Dump(const std::string& when) {
    const std::string path = dir_.File(when + ".sql");
    Shell("/usr/bin/mariadb-dump --no-defaults -u root -S " + server_.socket() +
          " --single-transaction idd > " + path);
    return path;
  }
  void Restore(const std::string& path) {
    Shell("/usr/bin/mariadb --no-defaults -u root -S " + server_.socket() + " idd < " + path);
  }
  static void Shell(const std::string& command) {
    ChildOptions child;
    child.argv = {"/bin/sh", "-c", command};
    ChildProcess process(child);
    EXPECT_EQ(process.WaitFor(Patience(60s)).value_or(-1), 0) << command << "\n"
                                                              << process.stderr_text();
  }
  // Through the socket, with a password.
  [[nodiscard]] std::string Url() const {
    return "mysql://idd:secret@localhost/idd?unix_socket=" + server_.socket();
  }

  std::uint64_t changed_ns_ = 0;
  std::map<std::string, std::string> owners_;  // of workers
  std::map<std::string, std::uint64_t> dry_;   // hosts: claims without an id, before the change
};

// --- a primary that does not die

TEST_F(FenceHosts, PrimaryDemotedBesideAReplicaThatLags) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  pair.StopReplication();
  WaitForSignOfLife(pair.primary);
  LeaseWhatGetsLost();
  Change();
  pair.primary.Session().Execute("SET GLOBAL read_only = 1");
  GoOn();
  ExpectLeasing(3);
  std::this_thread::sleep_for(2s);
  ExpectUnique("demoted");
}

TEST_F(FenceHosts, PrimaryThatHangsBesideAReplicaThatLags) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  pair.StopReplication();
  WaitForSignOfLife(pair.primary);
  LeaseWhatGetsLost();
  Change();
  pair.primary.Signal(SIGSTOP);
  GoOn();
  ExpectLeasing(3);
  std::this_thread::sleep_for(2s);
  ExpectUnique("hangs");
  pair.primary.Kill();
}

// --- hosts that start in the middle

TEST_F(FenceHosts, HostsThatStartDuringAFailover) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  pair.StopReplication();
  LeaseWhatGetsLost();
  Host& late = AddHost("late", pair.Url());
  Change();
  pair.primary.Session().Execute("SET GLOBAL read_only = 1");
  late.daemon.Start();
  hosts_[2]->daemon.Kill();
  hosts_[2]->daemon.Start();
  Load(late, FullSpeed());
  GoOn();
  ExpectLeasing(3);
  EXPECT_TRUE(Claims(late)) << late.daemon.Log();
  std::this_thread::sleep_for(2s);
  ExpectUnique("hosts that start");
}

class FenceDumps : public FenceHosts {
 protected:
  // A dump, more leases, no host runs; the dump is restored, and hosts come one after the other.
  void RestoreWhileStopped(bool by_kill, std::chrono::seconds second, std::chrono::seconds third) {
    server_.Start();
    ASSERT_NO_FATAL_FAILURE(StartLoad(Url()));
    const std::string dump = Dump("dump");
    LeaseWhatGetsLost();
    for (const auto& worker : workers_) worker->Stop();
    GoOn();
    for (const auto& worker : workers_) ASSERT_EQ(worker->Finish(Patience(60s)), 0);
    for (const auto& host : hosts_) {
      if (by_kill) {
        host->daemon.Kill();
      } else {
        host->daemon.Stop();
      }
    }
    Restore(dump);
    Change();
    hosts_[0]->daemon.Start();
    std::this_thread::sleep_for(second);
    hosts_[1]->daemon.Start();
    std::this_thread::sleep_for(third - second);
    hosts_[2]->daemon.Start();
    hosts_[3]->daemon.Start();
    changed_ns_ = MonotonicNs();
    for (std::size_t i = 0; i < 4; ++i) Load(*hosts_[i], FullSpeed());
    ExpectLeasing(4);
  }
};

TEST_F(FenceDumps, RestoredWhileStoppedHostsAreAway) {
  ASSERT_NO_FATAL_FAILURE(RestoreWhileStopped(false, 2s, 12s));
  ExpectUnique("dump, stopped");
}

TEST_F(FenceDumps, RestoredWhileKilledHostsAreAway) {
  ASSERT_NO_FATAL_FAILURE(RestoreWhileStopped(true, 1s, 4s));
  ExpectUnique("dump, killed");
}

TEST_F(FenceDumps, RestoredUnderLoad) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartLoad(Url()));
  const std::string dump = Dump("dump");
  LeaseWhatGetsLost();
  Change();
  Restore(dump);
  GoOn();
  ExpectLeasing(3);
  std::this_thread::sleep_for(2s);
  ExpectUnique("dump, under load");
}

// The fence's own tables first, leaf_alloc seconds later, and a host that has never been there
// comes between.
TEST_F(FenceDumps, RestoredTableByTableUnderLoad) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartLoad(Url()));
  const std::string dump = ReadFile(Dump("dump"));
  const std::size_t header = dump.find("DROP TABLE");
  const std::size_t cut = dump.find("DROP TABLE IF EXISTS `leaf_alloc`");
  ASSERT_NE(cut, std::string::npos) << dump;
  WriteFile(dir_.File("first.sql"), dump.substr(0, cut));
  WriteFile(dir_.File("second.sql"), dump.substr(0, header) + dump.substr(cut));
  LeaseWhatGetsLost();
  Host& late = AddHost("late", Url());
  Change();
  Restore(dir_.File("first.sql"));
  GoOn();
  late.daemon.Start();
  std::this_thread::sleep_for(4s);
  Restore(dir_.File("second.sql"));
  Load(late, FullSpeed());
  ExpectLeasing(3);
  EXPECT_TRUE(Claims(late)) << late.daemon.Log();
  std::this_thread::sleep_for(2s);
  ExpectUnique("dump, table by table");
}

// The same while no host needs a lease but the one that has just come.
TEST_F(FenceDumps, RestoredTableByTableWhileOneHostLeases) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartLeasing(3, Url()));
  const std::string dump = ReadFile(Dump("dump"));
  const std::size_t header = dump.find("DROP TABLE");
  const std::size_t cut = dump.find("DROP TABLE IF EXISTS `leaf_alloc`");
  ASSERT_NE(cut, std::string::npos) << dump;
  WriteFile(dir_.File("first.sql"), dump.substr(0, cut));
  WriteFile(dir_.File("second.sql"), dump.substr(0, header) + dump.substr(cut));
  WorkerPlan some = FullSpeed();
  some.ids = 10'000;
  for (std::size_t i = 0; i < 3; ++i) Load(*hosts_[i], some);
  EXPECT_TRUE(WaitUntil(Patience(30s), [&] {
    return std::all_of(workers_.begin(), workers_.end(),
                       [&](const auto& worker) { return worker->ids() >= some.ids; });
  }));
  Host& late = AddHost("late", Url());
  Change();
  Restore(dir_.File("first.sql"));
  late.daemon.Start();
  MariadbSession session = server_.Session();
  EXPECT_TRUE(WaitUntil(Patience(30s), [&session] {
    return session.Query("SELECT COUNT(*) FROM idd_fence WHERE state = 'live' AND server <> ''") ==
           "4";
  }));
  Restore(dir_.File("second.sql"));
  ClaimWorkerProcess& worker = Load(late, some);
  EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return worker.ids() >= some.ids; }));
  for (std::size_t i = 0; i < 3; ++i) Load(*hosts_[i], FullSpeed());
  ExpectLeasing(3);
  ExpectUnique("dump, one host leases");
}

// --- a proxy that keeps sessions

TEST_F(FenceHosts, ProxyThatLeadsSessionsToAnotherServer) {
  ServerPair pair(dir_);
  const std::string path = dir_.File("proxy");
  MysqlProxy proxy(path, pair.primary.socket());
  // A login without a password is the same for every server, so that the proxy can repeat it.
  const std::string url = "mysql://root@localhost/idd?unix_socket=" + path;
  ASSERT_NO_FATAL_FAILURE(StartLoad(url));
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  proxy.Repoint(pair.replica.socket());
  GoOn();
  ExpectLeasing(3);
  std::this_thread::sleep_for(2s);
  EXPECT_GE(proxy.repointed(), 4);
  for (const auto& host : hosts_) {
    EXPECT_THAT(host->daemon.Log(), HasSubstr("store.replaced"));
  }
  ExpectUnique("proxy");
}

// Some sessions are led to the other server seconds later than others, while both are written to.
TEST_F(FenceHosts, ProxiesThatLeadSessionsToAnotherServerAtDifferentTimes) {
  ServerPair pair(dir_);
  std::vector<std::unique_ptr<MysqlProxy>> proxies;
  for (int i = 0; i < 2; ++i) {
    proxies.push_back(std::make_unique<MysqlProxy>(dir_.File("proxy" + std::to_string(i)),
                                                   pair.primary.socket()));
  }
  const std::string url = "mysql://root@localhost/idd?unix_socket=" + dir_.File("proxy");
  for (int i = 0; i < 4; ++i) {
    AddHost("host-" + std::to_string(i), url + std::to_string(i % 2)).daemon.Start();
  }
  ASSERT_NO_FATAL_FAILURE(StartLeasing(0, ""));
  for (std::size_t i = 0; i < 4; ++i) Load(*hosts_[i], FullSpeed());
  ExpectLeasing(4);
  pair.StopReplication();
  ExpectLeasing(4);
  Change();
  proxies[0]->Repoint(pair.replica.socket());
  std::this_thread::sleep_for(4s);
  proxies[1]->Repoint(pair.replica.socket());
  ExpectLeasing(4);
  std::this_thread::sleep_for(1s);
  ExpectUnique("proxies");
}

// --- tables that cannot roll back

TEST_F(FenceHosts, TableOfAnEngineThatCannotRollBack) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartLoad(Url()));
  for (const std::string table : {"leaf_alloc", "idd_lease"}) {
    Change();
    std::vector<std::size_t> marks;
    for (const auto& host : hosts_) marks.push_back(host->daemon.LogMark());
    MariadbSession session = server_.Session();
    const auto alter = [&](const std::string& engine) {
      // idd's transactions are in the way of it for a moment.
      EXPECT_TRUE(WaitUntil(Patience(30s), [&] {
        return session.Try("ALTER TABLE " + table + " ENGINE=" + engine) == 0;
      }));
    };
    alter("MyISAM");
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(
          hosts_[i]->daemon.WaitForLogLine(table + ".*engine MyISAM", marks[i], Patience(10s)))
          << table << " on host " << i << ":\n"
          << hosts_[i]->daemon.LogSince(marks[i]);
    }
    alter("InnoDB");
    ExpectLeasing(3);
  }
  ExpectUnique("MyISAM");
}

// --- a host that never comes back

TEST_F(FenceHosts, LeasesOfAHostThatNeverComesBackAreNotRepeated) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url(), 20));
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  hosts_[3]->daemon.Kill();
  pair.primary.Kill();
  GoOn();
  ExpectLeasing(3);
  EXPECT_TRUE(WaitUntil(Patience(60s), [&] {
    return (hosts_[0]->daemon.Log() + hosts_[1]->daemon.Log() + hosts_[2]->daemon.Log())
               .find("fence.host_out") != std::string::npos;
  }));
  ExpectLeasing(3);
  ExpectUnique("host that never comes back");
}

// --- switchovers in a row

TEST_F(FenceHosts, SwitchoversInARowWhileAHostIsStoppedForLonger) {
  ServerPair pair(dir_);
  // A host that does not come to look for half of that, on a busy machine, would wait for the
  // stopped one.
  constexpr int kFenceAfter = 20;
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url(), kFenceAfter));
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  hosts_[3]->daemon.Signal(SIGSTOP);
  const std::uint64_t stopped_ns = MonotonicNs();
  const auto switch_over = [](MariadbServer& from, MariadbServer& to) {
    from.Session().Execute("SET GLOBAL read_only = 1");
    to.Session().Execute("SET GLOBAL read_only = 0");
  };
  switch_over(pair.primary, pair.replica);
  GoOn();
  ExpectLeasing(3);
  ExpectKnownToAll(3);
  switch_over(pair.replica, pair.primary);
  ExpectLeasing(3);
  std::this_thread::sleep_for(
      std::max(0ns, std::chrono::seconds(kFenceAfter + 3) -
                        std::chrono::nanoseconds(MonotonicNs() - stopped_ns)));
  hosts_[3]->daemon.Signal(SIGCONT);
  switch_over(pair.primary, pair.replica);
  ExpectLeasing(3);
  std::this_thread::sleep_for(2s);
  ExpectUnique("switchovers");
}

}  // namespace
}  // namespace idd::harness
