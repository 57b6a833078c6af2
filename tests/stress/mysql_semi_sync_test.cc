// SPDX-License-Identifier: Apache-2.0
//
// A pair with semi-synchronous replication: a commit is answered when the replica has it. The
// primary is killed, or the operator moves the pair by hand; the replica is promoted; a new replica
// is made. An operator who waits until the replica has applied what it received loses no lease.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mysql_hosts.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

class MysqlSemiSync : public MysqlHosts {
 protected:
  // A server on that port, without data.
  std::unique_ptr<DbServer> AddServer(std::uint16_t port) {
    const int number = made_++;
    std::vector<std::string> arguments = {"--server-id=" + std::to_string(number + 1),
                                          "--log-bin=binlog"};
    if (IsMysql()) {
      arguments.insert(arguments.end(), {"--plugin-load-add=semisync_source.so",
                                         "--plugin-load-add=semisync_replica.so"});
    } else {
      arguments.insert(arguments.end(), {"--log-slave-updates=ON", "--sync-binlog=1"});
    }
    auto server = std::make_unique<DbServer>(
        dir_, "server-" + std::to_string(number),
        DbServer::Options{.port = port, .arguments = std::move(arguments)});
    server->Start();
    return server;
  }
  static std::string Name(const std::string& role, const std::string& rest) {
    const bool is_primary = role == "primary";
    if (IsMysql())
      return std::string("rpl_semi_sync_") + (is_primary ? "source" : "replica") + rest;
    return std::string("rpl_semi_sync_") + (is_primary ? "master" : "slave") + rest;
  }

  // Makes a new replica of the primary, and makes the primary wait for it at each commit.
  void AddReplica(std::uint16_t port) {
    replica_ = AddServer(port);
    replica_->Session().Execute("SET GLOBAL " + Name("replica", "_enabled") + " = 1");
    replica_->Replicate(*primary_);
    replica_->Session().Execute("SET GLOBAL read_only = 1");
    DbSession session = primary_->Session();
    session.Execute("SET GLOBAL " + Name("primary", "_wait_point") + " = 'AFTER_SYNC'");
    session.Execute("SET GLOBAL " + Name("primary", "_timeout") + " = 1000000");  // ms: no limit
    session.Execute("SET GLOBAL " + Name("primary", "_enabled") + " = 1");
    ASSERT_TRUE(WaitUntil(Patience(60s), [&] {
      const std::map<std::string, double> counters = session.Counters();
      return counters.at(Name("primary", "_clients")) == 1 && HasApplied() && IsSemiSync(session);
    }));
  }
  [[nodiscard]] static bool IsSemiSync(DbSession& session) {
    return session.Query("SELECT variable_value FROM " +
                         std::string(IsMysql() ? "performance_schema" : "information_schema") +
                         ".global_status WHERE variable_name = '" + Name("primary", "_status") +
                         "'") == "ON";
  }
  // The replica has applied all that it has received.
  [[nodiscard]] bool HasApplied() const {
    return replica_->Session("").Query(
               "SELECT COUNT(*) FROM information_schema.processlist"
               " WHERE state LIKE '%has read all relay log%'") == "1";
  }
  void Promote() {
    DbSession session = replica_->Session();
    session.Execute(IsMysql() ? "STOP REPLICA IO_THREAD" : "STOP SLAVE IO_THREAD");
    ASSERT_TRUE(WaitUntil(Patience(60s), [&] { return HasApplied(); }));
    replica_->StopReplicating();
    session.Execute("SET GLOBAL read_only = 0");
  }
  void StartPair() {
    const std::vector<std::uint16_t> ports = FreePorts(2);
    primary_ = AddServer(ports[0]);
    ASSERT_NO_FATAL_FAILURE(AddReplica(ports[1]));
    ports_ = ports;
    StartHeavyLoad(primary_->TcpUrl({replica_.get()}));
  }
  [[nodiscard]] int LeasesAt(const DbServer& server) const {
    return std::stoi(server.Session().Query("SELECT COUNT(*) FROM idd_lease"));
  }

  // Prints how long it took until each host had leased again.
  void Switch(bool by_kill) {
    ExpectFreshLeases();
    const std::uint64_t began = MonotonicNs();
    if (by_kill) {
      primary_->Kill();
    } else {
      primary_->Session().Execute("SET GLOBAL read_only = 1");
      ASSERT_TRUE(WaitUntil(Patience(60s), [&] {
        return LeasesAt(*replica_) == LeasesAt(*primary_) && HasApplied();
      }));
    }
    ASSERT_NO_FATAL_FAILURE(Promote());
    ExpectFreshLeases();
    std::printf("%s: every host has leased again after %.1f s\n", by_kill ? "killed" : "by hand",
                static_cast<double>(MonotonicNs() - began) / 1e9);
    if (!by_kill) primary_->Kill();
    primary_ = std::move(replica_);
    std::swap(ports_[0], ports_[1]);
    ASSERT_NO_FATAL_FAILURE(AddReplica(ports_[1]));
  }
  void SwitchInARow(bool by_kill) {
    ASSERT_NO_FATAL_FAILURE(StartPair());
    const int switches = static_cast<int>(std::max<std::uint64_t>(2, ScaledLoad(10)));
    for (int i = 0; i < switches; ++i) ASSERT_NO_FATAL_FAILURE(Switch(by_kill));
    StopHeavyLoad();
    for (const auto& host : hosts_) {
      EXPECT_THAT(host->daemon.LogSince(0), HasSubstr("store.replaced"));
      EXPECT_THAT(host->daemon.LogSince(0), Not(HasSubstr("store.went_backwards")))
          << "a lease was lost";
    }
  }

  std::unique_ptr<DbServer> primary_;
  std::unique_ptr<DbServer> replica_;
  std::vector<std::uint16_t> ports_;
  int made_ = 0;
};

TEST_F(MysqlSemiSync, PrimariesKilledInARowLoseNoLease) { SwitchInARow(true); }

TEST_F(MysqlSemiSync, SwitchesByHandInARowLoseNoLease) { SwitchInARow(false); }

}  // namespace
}  // namespace idd::harness
