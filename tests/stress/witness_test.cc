// SPDX-License-Identifier: Apache-2.0
//
// Changes of the data set under real hosts and servers: a primary that is demoted or hangs while
// its connections stay up, hosts that start during the failover, restored dumps, sessions that a
// proxy moves to another server, two primaries in use at once, tables of an engine that cannot roll
// back, a power cut; and witnesses that are killed, cut off or never come back.
//
// What idd promises: no id comes twice; a majority of the witnesses suffices, so that nothing waits
// for another host; a new tag can be claimed from as soon as it is created.
//
// Method: each host has two client processes that claim at full speed, with segments of a fixed
// size, so that it leases all the time. The oracle looks for ids that came twice anywhere. Each
// case prints the longest time for which a host got no id, which is limited (LongestWithoutIds()),
// and how many claims found no id ready.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "support/db_server.h"
#include "support/mysql_proxy.h"
#include "support/test_environment.h"
#include "witness_hosts.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

// --- a primary that does not die

TEST_F(WitnessHosts, PrimaryDemotedBesideAReplicaThatLags) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  pair.primary.Session().Execute("SET GLOBAL read_only = 1");
  GoOn();
  ExpectLeasing(3);
  std::this_thread::sleep_for(2s);
  ExpectUnique("demoted");
}

TEST_F(WitnessHosts, PrimaryThatHangsBesideAReplicaThatLags) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  pair.StopReplication();
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

TEST_F(WitnessHosts, HostsThatStartDuringAFailover) {
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

class WitnessDumps : public WitnessHosts {
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

TEST_F(WitnessDumps, RestoredWhileStoppedHostsAreDown) {
  ASSERT_NO_FATAL_FAILURE(RestoreWhileStopped(false, 2s, 12s));
  ExpectUnique("dump, stopped");
}

TEST_F(WitnessDumps, RestoredWhileKilledHostsAreDown) {
  ASSERT_NO_FATAL_FAILURE(RestoreWhileStopped(true, 1s, 4s));
  ExpectUnique("dump, killed");
}

TEST_F(WitnessDumps, RestoredUnderLoad) {
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

// The tables of the term are restored first, leaf_alloc seconds later, and a new host starts in
// between.
TEST_F(WitnessDumps, RestoredTableByTableUnderLoad) {
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
TEST_F(WitnessDumps, RestoredTableByTableWhileOneHostLeases) {
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
  EXPECT_TRUE(WaitUntil(Patience(30s), [&late] {
    const nlohmann::json status = late.idctl.Json({"status"});
    const nlohmann::json& agreement = status.at("database").at("agreement");
    return agreement.is_object() && agreement.at("state") == "leasing";
  })) << late.daemon.Log();
  Restore(dir_.File("second.sql"));
  ClaimWorkerProcess& worker = Load(late, some);
  EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return worker.ids() >= some.ids; }));
  for (std::size_t i = 0; i < 3; ++i) Load(*hosts_[i], FullSpeed());
  ExpectLeasing(3);
  ExpectUnique("dump, one host leases");
}

// --- a proxy that keeps sessions

TEST_F(WitnessHosts, ProxyThatLeadsSessionsToAnotherServer) {
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
  EXPECT_TRUE(WaitUntil(Patience(10s), [&proxy] { return proxy.repointed() >= 4; }));
  for (const auto& host : hosts_) {
    EXPECT_TRUE(host->daemon.WaitForLogLine("store.replaced", 0, Patience(10s)))
        << host->daemon.Log();
  }
  ExpectUnique("proxy");
}

// Some sessions move to the other server seconds later than others, while both are written to.
TEST_F(WitnessHosts, ProxiesThatLeadSessionsToAnotherServerAtDifferentTimes) {
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

TEST_F(WitnessHosts, TableOfAnEngineThatCannotRollBack) {
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

// --- a host that never comes back, or is cut off

// The host with the highest leases, which only it and the witnesses know of.
TEST_F(WitnessHosts, LeasesOfAHostThatNeverComesBackAreNotRepeated) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  hosts_[3]->daemon.Kill();
  pair.primary.Kill();
  GoOn();
  ExpectLeasing(3);
  ExpectUnique("host that never comes back");
}

TEST_F(WitnessHosts, LeasesOfAWitnessThatNeverComesBackAreNotRepeated) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  SetWitnesses({"host-0", "host-1", "host-3"});
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  hosts_[3]->daemon.Kill();
  pair.primary.Kill();
  GoOn();
  ExpectLeasing(3);
  ExpectUnique("witness that never comes back");
}

// The host with the highest leases is a witness and is cut off before the failover. Its program
// claims what it has, and it comes back later.
TEST_F(WitnessHosts, FailoverWhileAWitnessIsCutOff) {
  ServerPair pair(dir_);
  MysqlProxy way(dir_.File("way"), pair.primary.socket());
  const std::string url = "mysql://root@localhost/idd?unix_socket=" + dir_.File("way");
  for (int i = 0; i < 4; ++i) {
    AddHost("host-" + std::to_string(i), i == 3 ? url : pair.Url()).daemon.Start();
  }
  ASSERT_NO_FATAL_FAILURE(StartLeasing(0, ""));
  SetWitnesses({"host-0", "host-1", "host-3"});
  LoadFully();
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  way.Hang(true);
  pair.primary.Kill();
  GoOn();
  ExpectLeasing(3);
  way.Repoint(pair.replica.socket());
  way.Hang(false);
  Load(*hosts_[3], FullSpeed());
  ExpectLeasing(4);
  ExpectUnique("witness that is cut off");
}

// --- switchovers in a row

TEST_F(WitnessHosts, SwitchoversInARowWhileAHostIsStopped) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartLoad(pair.Url()));
  SetWitnesses({"host-0", "host-1", "host-3"});
  pair.StopReplication();
  LeaseWhatGetsLost();
  Change();
  hosts_[3]->daemon.Signal(SIGSTOP);
  const auto switch_over = [](DbServer& from, DbServer& to) {
    from.Session().Execute("SET GLOBAL read_only = 1");
    to.Session().Execute("SET GLOBAL read_only = 0");
  };
  switch_over(pair.primary, pair.replica);
  GoOn();
  ExpectLeasing(3);
  switch_over(pair.replica, pair.primary);
  ExpectLeasing(3);
  hosts_[3]->daemon.Signal(SIGCONT);
  switch_over(pair.primary, pair.replica);
  ExpectLeasing(3);
  std::this_thread::sleep_for(2s);
  ExpectUnique("switchovers");
}

// --- all lose power

TEST_F(WitnessHosts, AllLosePowerAndOneWitnessDoesNotComeBack) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartLoad(Url()));
  Load(*hosts_[3], FullSpeed());
  for (const auto& host : hosts_) host->daemon.Kill();
  server_.Kill();
  at_full_speed_ = {"host-0", "host-1", "host-3"};
  for (const std::size_t i : {0U, 1U, 3U}) hosts_[i]->daemon.Launch();  // before the server
  server_.Start();
  changed_ns_ = MonotonicNs();
  for (const std::size_t i : {0U, 1U, 3U}) {
    EXPECT_TRUE(Claims(*hosts_[i])) << hosts_[i]->daemon.Log();
  }
  ExpectLeasingOf({0, 1, 3});
  hosts_[2]->daemon.Start();
  ExpectLeasing(4);
  ExpectUnique("power cut");
  ExpectAccounted();
}

// --- two primaries in use at once

class WitnessSides : public WitnessHosts {
 protected:
  // IDD_TEST_APART_S sets for how many seconds both primaries are in use; docs/mysql.md has ten
  // minutes.
  static std::chrono::seconds Apart() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
    const char* const set = std::getenv("IDD_TEST_APART_S");
    return set != nullptr ? std::chrono::seconds(std::atoi(set)) : 30s;
  }

  // Five hosts lease at full speed, two of them over one proxy, three over the other.
  void StartOnBothSides(const std::vector<std::string>& witnesses) {
    const std::string url = "mysql://root@localhost/idd?unix_socket=";
    for (int i = 0; i < 5; ++i) {
      AddHost("host-" + std::to_string(i), url + dir_.File(i < 2 ? "stays" : "moves"))
          .daemon.Start();
    }
    ASSERT_NO_FATAL_FAILURE(StartLeasing(0, ""));
    SetWitnesses(witnesses);
    for (const auto& host : hosts_) Load(*host, FullSpeed());
    ExpectLeasing(hosts_.size());
  }
  // From now on both servers are written, and each lacks what the other has.
  void Split() {
    pair_.StopReplication();
    ExpectLeasing(hosts_.size());
    Change();
    moves_.Repoint(pair_.replica.socket());
  }
  [[nodiscard]] static int LeasesAt(const DbServer& server) {
    return std::stoi(server.Session().Query("SELECT COUNT(*) FROM idd_lease"));
  }
  [[nodiscard]] static std::string TermAt(const DbServer& server) {
    return server.Session().Query("SELECT CONCAT(number, ' ', witness) FROM idd_term");
  }

  ServerPair pair_{dir_};
  MysqlProxy stays_{dir_.File("stays"), pair_.primary.socket()};
  MysqlProxy moves_{dir_.File("moves"), pair_.primary.socket()};
};

// The hosts that move begin a term. Those that stay lease on below the ceilings that are active
// there, and none of them rises any more.
TEST_F(WitnessSides, TwoPrimariesWithTheMajorityOfTheWitnessesAtTheNewOneRepeatNoId) {
  at_full_speed_ = {"host-2", "host-3", "host-4"};
  ASSERT_NO_FATAL_FAILURE(StartOnBothSides({"host-0", "host-2", "host-3"}));
  Split();
  const std::string term = TermAt(pair_.primary);
  const int left = LeasesAt(pair_.primary);
  ExpectLeasingOf({2, 3, 4});
  EXPECT_NE(TermAt(pair_.replica), term);
  EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return LeasesAt(pair_.primary) > left; }))
      << hosts_[0]->daemon.Log();
  std::this_thread::sleep_for(Apart());
  EXPECT_EQ(TermAt(pair_.primary), term);
  std::printf("%d leases on the old primary after the split\n", LeasesAt(pair_.primary) - left);
  ExpectLeasingOf({2, 3, 4});
  stays_.Repoint(pair_.replica.socket());
  ExpectLeasing(hosts_.size());
  ExpectUnique("two primaries, majority at the new one");
}

// The hosts that move lease nothing there, and the others notice nothing.
TEST_F(WitnessSides, TwoPrimariesWithTheMajorityOfTheWitnessesAtTheOldOneRepeatNoId) {
  at_full_speed_ = {"host-0", "host-1"};
  ASSERT_NO_FATAL_FAILURE(StartOnBothSides({"host-0", "host-1", "host-2"}));
  Split();
  const std::string term = TermAt(pair_.primary);
  std::this_thread::sleep_for(3s);  // until the hosts that move have journalled what they hold
  const int leases = LeasesAt(pair_.replica);
  std::this_thread::sleep_for(Apart());
  EXPECT_EQ(LeasesAt(pair_.replica), leases) << "leases without a majority";
  EXPECT_EQ(TermAt(pair_.primary), term);
  ExpectLeasingOf({0, 1});
  hosts_[0]->idctl.Do({"tag", "create", "new"});
  EXPECT_EQ(hosts_[1]->idctl.Run({"claim", "new"}).exit_status, 0);
  moves_.Repoint(pair_.primary.socket());
  ExpectLeasing(hosts_.size());
  ExpectUnique("two primaries, majority at the old one");
}

// --- new tags

class WitnessTags : public WitnessHosts {
 protected:
  static constexpr auto kAtOnce = 100ms;
  static constexpr auto kNoticeable = 2s;

  // Twenty tags are created, each by another one of these hosts, and all of them claim from it as
  // soon as it is there. Nine of ten claims take at most kAtOnce, to leave room for a busy machine.
  void ExpectFirstClaimsAtOnce(const std::vector<std::size_t>& hosts) {
    std::map<std::size_t, std::unique_ptr<idclient::Client>> clients;
    for (const std::size_t i : hosts) {
      idclient::Options options;
      options.socket_path = hosts_[i]->daemon.socket();
      options.timeout = Patience(30s);
      clients[i] = std::make_unique<idclient::Client>(options);
      static_cast<void>(clients[i]->tag("orders").claim());
    }
    std::vector<std::chrono::nanoseconds> creations;
    std::map<std::size_t, std::vector<std::chrono::nanoseconds>> waits;
    for (const std::size_t i : hosts) waits[i].resize(kTags);
    for (std::size_t n = 0; n < kTags; ++n) {
      const std::string tag = "new-" + std::to_string(n);
      const std::uint64_t begun_ns = MonotonicNs();
      hosts_[hosts[n % hosts.size()]]->idctl.Do({"tag", "create", tag});
      const std::uint64_t created_ns = MonotonicNs();
      creations.emplace_back(created_ns - begun_ns);
      std::map<std::size_t, std::uint64_t> ids;
      for (const std::size_t i : hosts) ids[i] = 0;
      std::vector<std::thread> threads;
      for (const std::size_t i : hosts) {
        threads.emplace_back([&, i] {
          ids.at(i) = clients.at(i)->tag(tag).claim();
          waits.at(i)[n] = std::chrono::nanoseconds(MonotonicNs() - created_ns);
        });
      }
      for (std::thread& thread : threads) thread.join();
      std::set<std::uint64_t> all;
      for (const auto& [host, id] : ids) EXPECT_TRUE(all.insert(id).second) << tag << " " << id;
    }
    Report("tag create", creations);
    for (auto& [host, times] : waits) {
      Report("first claims of host-" + std::to_string(host), times);
      EXPECT_LT(times[kTags * 9 / 10 - 1], kAtOnce * SlowdownFactor()) << "host-" << host;
      EXPECT_LT(times.back(), kNoticeable * SlowdownFactor()) << "host-" << host;
    }
  }

 private:
  static constexpr std::size_t kTags = 20;

  // Sorts them, too.
  static void Report(const std::string& what, std::vector<std::chrono::nanoseconds>& times) {
    std::sort(times.begin(), times.end());
    const auto ms = [](std::chrono::nanoseconds time) {
      return static_cast<double>(time.count()) / 1e6;
    };
    std::printf("%s: median %.1f ms, 9 of 10 within %.1f ms, longest %.1f ms\n", what.c_str(),
                ms(times[times.size() / 2]), ms(times[times.size() * 9 / 10 - 1]),
                ms(times.back()));
  }
};

// The one that has begun the term.
TEST_F(WitnessTags, FirstClaimsDoNotWaitForAWitnessThatWasKilled) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartLeasing(4, Url()));
  hosts_[0]->daemon.Kill();
  ExpectFirstClaimsAtOnce({1, 2, 3});
  const IdctlResult audit = hosts_[1]->idctl.Run({"audit", "--all-hosts"});
  EXPECT_EQ(audit.exit_status, 0) << audit.out << audit.err;
  PrintLogsIfFailed();
}

// A witness and another host. Programs with a steady load at the others notice nothing.
TEST_F(WitnessTags, ClaimsDoNotWaitForHostsThatAreCutOff) {
  server_.Start();
  MysqlProxy way(dir_.File("way"), server_.socket());
  const std::string url = "mysql://root@localhost/idd?unix_socket=" + dir_.File("way");
  for (int i = 0; i < 5; ++i) {
    AddHost("host-" + std::to_string(i), i == 2 || i == 4 ? url : Url()).daemon.Start();
  }
  ASSERT_NO_FATAL_FAILURE(StartLeasing(0, ""));
  for (const std::size_t i : {0U, 1U, 3U}) Load(*hosts_[i], Slowly());
  Change();
  way.Hang(true);
  ExpectFirstClaimsAtOnce({0, 1, 3});
  way.Hang(false);
  for (const auto& host : hosts_) {
    EXPECT_TRUE(WaitUntil(Patience(30s), [&host] {
      return host->idctl.Json({"status"}).at("database").at("state") == "up";
    })) << host->daemon.Log();
  }
  const std::vector<Claimer> claimers = FinishUnique();
  for (const auto& [host, times] : AnswersOf(claimers)) {
    EXPECT_LT(std::chrono::nanoseconds(LongestPause(times, changed_ns_, UINT64_MAX)),
              kNoticeable * SlowdownFactor())
        << host;
  }
  std::printf("programs with a steady load waited at most%s\n", Pauses(claimers).c_str());
  ExpectAccounted();
  PrintLogsIfFailed();
}

}  // namespace
}  // namespace idd::harness
