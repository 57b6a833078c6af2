// SPDX-License-Identifier: Apache-2.0
//
// Failovers that once gave ids twice: a primary that is demoted or hangs while its connections stay
// up, hosts that start during the failover, restored dumps, sessions that a proxy moves to another
// server, tables of an engine that cannot roll back, a host that never comes back.
//
// Method: each host has two client processes that claim at full speed, with segments of a fixed
// size, so that it leases all the time. The oracle looks for ids that came twice anywhere. Each
// case prints the longest time for which a host got no id, and how many claims found no id ready.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fence_hosts.h"
#include "support/db_server.h"
#include "support/mysql_proxy.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;
using ::testing::HasSubstr;

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

// --- hosts that start during a failover

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
  // Takes a dump, then more leases, ends all hosts, restores the dump, and starts the hosts one
  // after the other.
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

TEST_F(FenceDumps, RestoredWhileStoppedHostsAreDown) {
  ASSERT_NO_FATAL_FAILURE(RestoreWhileStopped(false, 2s, 12s));
  ExpectUnique("dump, stopped");
}

TEST_F(FenceDumps, RestoredWhileKilledHostsAreDown) {
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

// The fence's own tables are restored first, leaf_alloc seconds later, and a new host starts in
// between.
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

// The same, but only the new host needs a lease.
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
  DbSession session = server_.Session();
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
  // A login without a password is the same for every server, so the proxy can repeat it.
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

// Some sessions move to the other server seconds later than others, while both are written to.
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
    DbSession session = server_.Session();
    const auto alter = [&](const std::string& engine) {
      // idd's transactions block it for a moment.
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
  ExpectKnownToAll(4);  // or the hosts wait for an operator
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
  // On a busy machine, a host that does not look for half of that time would wait for the stopped
  // one.
  constexpr int kFenceAfter = 20;
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url(), kFenceAfter));
  ExpectKnownToAll(4);
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  hosts_[3]->daemon.Signal(SIGSTOP);
  const std::uint64_t stopped_ns = MonotonicNs();
  const auto switch_over = [](DbServer& from, DbServer& to) {
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
