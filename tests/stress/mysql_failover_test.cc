// SPDX-License-Identifier: Apache-2.0
//
// The database comes back different: an older copy, a server that forgot granted leases, a replica
// that lags. No id comes twice, every host logs the change with both numbers, and service resumes
// by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "mysql_hosts.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class MysqlFailover : public MysqlHosts {
 protected:
  // Over the socket, with a password.
  [[nodiscard]] std::string Url() const {
    return "mysql://idd:secret@localhost/idd?unix_socket=" + server_.socket();
  }
  // Three hosts with two client processes each.
  void StartLoad(const std::string& url = "") {
    StartHosts(3, {"--step", "1000", "--max-step", "1000"}, url.empty() ? Url() : url);
    StartWorkers(2, Plan());
  }
  [[nodiscard]] static WorkerPlan Plan() {
    WorkerPlan plan;
    plan.batch = 4;
    plan.pace_us = 200;
    plan.retry = true;
    plan.log_capacity = 1 << 21;
    return plan;
  }
  void ExpectUnique() {
    for (const auto& worker : workers_) worker->Stop();
    EXPECT_EQ(Join(CheckUnique(Finish(Patience(60s)))), "");
  }
  // Both numbers, on every host.
  void ExpectReported(const std::vector<std::size_t>& marks) const {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::string log = hosts_[i]->daemon.LogSince(marks[i]);
      EXPECT_THAT(log, HasSubstr("store.replaced")) << i;
      EXPECT_THAT(log, ContainsRegex("store.went_backwards.*store_max_id=.*high_water_mark=")) << i;
    }
  }
};

// An older copy of the data directory, made before most leases, replaces it.
TEST_F(MysqlFailover, ServerSetBackToAnOlderStateRepeatsNoId) {
  StartLoad();
  std::this_thread::sleep_for(500ms);
  server_.Stop();
  CopyTree(server_.data_dir(), dir_.File("older"));
  server_.Start();
  ExpectFreshLeases();
  ExpectFreshLeases();
  const std::vector<std::size_t> marks = LogMarks();
  server_.Kill();
  std::filesystem::remove_all(server_.data_dir());
  CopyTree(dir_.File("older"), server_.data_dir());
  server_.Start();
  // A new host at this very moment: no host has pushed its marks to the server yet.
  Host late(dir_, "late");
  late.daemon.options().database = Url();
  late.daemon.Start();
  ClaimWorkerProcess& worker = AddWorker(late, Plan());
  worker.WaitReady(Patience(20s));
  worker.Go();
  ExpectFreshLeases();
  EXPECT_TRUE(WaitUntil(Patience(40s), [&] {
    return !late.idctl.Json({"status"}).at("tags").at(0).at("segments").empty();
  }));
  ExpectUnique();
  ExpectReported(marks);
}

// A server that flushes its log only now and then, in this test never by itself, forgets granted
// leases when it is killed.
TEST_F(MysqlFailover, ServerThatForgetsGrantedLeasesRepeatsNoId) {
  StartLoad();  // the tables and the tag are on the disk
  server_.Session().Execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0");
  server_.Session().Execute("SET GLOBAL innodb_flush_log_at_timeout = 2700");
  const auto has_forgotten = [this] {
    return std::any_of(hosts_.begin(), hosts_.end(), [](const auto& host) {
      return host->daemon.LogSince(0).find("store.went_backwards") != std::string::npos;
    });
  };
  int kills = 0;
  for (; kills < 10 && !has_forgotten(); ++kills) {
    ExpectFreshLeases();
    server_.Kill();
    server_.Start({"--innodb-flush-log-at-trx-commit=0", "--innodb-flush-log-at-timeout=2700"});
    ExpectFreshLeases();
  }
  EXPECT_TRUE(has_forgotten()) << "no lease was lost: the test shows nothing";
  ExpectUnique();
  std::printf("leases forgotten by kill %d\n", kills);
}

// A replica with asynchronous replication, which lags when the primary dies, takes over.
TEST_F(MysqlFailover, ReplicaThatLagsIsPromotedAndRepeatsNoId) {
  const std::vector<std::uint16_t> ports = FreePorts(2);
  DbServer primary(dir_, "primary",
                   {.port = ports[0], .arguments = {"--server-id=1", "--log-bin=binlog"}});
  DbServer replica(dir_, "replica",
                   {.port = ports[1], .arguments = {"--server-id=2", "--log-bin=binlog"}});
  primary.Start();
  replica.Start();
  replica.Replicate(primary);
  DbSession standby = replica.Session();
  standby.Execute("SET GLOBAL read_only = 1");
  StartLoad(primary.TcpUrl({&replica}));
  ExpectFreshLeases();
  const auto leases_at = [](const DbServer& server) {
    return std::stoi(server.Session().Query("SELECT COUNT(*) FROM idd_lease"));
  };
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] { return leases_at(replica) > 0; }));
  replica.StopReplicating();
  ExpectFreshLeases();
  ExpectFreshLeases();
  const int lag = leases_at(primary) - leases_at(replica);
  const std::vector<std::size_t> marks = LogMarks();
  primary.Kill();
  // While it is read-only, no host leases from it.
  EXPECT_TRUE(WaitUntil(Patience(15s), [&] {
    return hosts_[0]->daemon.LogSince(marks[0]).find("is read-only") != std::string::npos;
  }));
  standby.Execute("SET GLOBAL read_only = 0");
  ExpectFreshLeases();
  ExpectUnique();
  ExpectReported(marks);
  std::printf("%d leases behind\n", lag);
  EXPECT_GT(lag, 0);
}

}  // namespace
}  // namespace idd::harness
