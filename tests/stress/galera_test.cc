// SPDX-License-Identifier: Apache-2.0
//
// Three nodes of a Galera cluster on loopback. In one case a node is killed under load every few
// seconds, while hosts write through different nodes. In another all nodes are lost except one that
// lacks the newest leases, from which the cluster starts again.
//
// Method: each host lists the nodes as endpoints in a different order. Workers claim with a long
// timeout and must see no error: the rings outlast every change of node. The oracle looks for ids
// that came twice and ids outside a lease.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

constexpr const char* kProvider = "/usr/lib/galera/libgalera_smm.so";
constexpr int kNodes = 3;

class Galera : public ::testing::Test {
 protected:
  Galera() : ports_(FreePorts(kNodes * 4)) {
    for (int i = 0; i < kNodes; ++i) {
      nodes_.push_back(std::make_unique<DbServer>(
          dir_, "node-" + std::to_string(i),
          DbServer::Options{.port = Port(i, 0), .arguments = Arguments(i)}));
    }
  }

  [[nodiscard]] std::uint16_t Port(int node, int use) const {
    return ports_[static_cast<std::size_t>(node * 4 + use)];
  }
  [[nodiscard]] std::string Address(int node, int use) const {
    return "127.0.0.1:" + std::to_string(Port(node, use));
  }
  [[nodiscard]] std::vector<std::string> Arguments(int node) const {
    std::string cluster = "gcomm://";
    for (int i = 0; i < kNodes; ++i) cluster += (i == 0 ? "" : ",") + Address(i, 1);
    return {"--wsrep-on=ON",
            std::string("--wsrep-provider=") + kProvider,
            "--wsrep-cluster-name=idd-test",
            "--wsrep-cluster-address=" + cluster,
            "--wsrep-node-name=node-" + std::to_string(node),
            "--wsrep-node-address=127.0.0.1",
            "--wsrep-sst-method=rsync",
            "--wsrep-sst-receive-address=" + Address(node, 3),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--innodb-flush-log-at-trx-commit=1",
            "--wsrep-provider-options=gmcast.listen_addr=tcp://" + Address(node, 1) +
                ";ist.recv_addr=" + Address(node, 2) +
                ";gcache.size=32M;evs.suspect_timeout=PT1S;evs.inactive_timeout=PT3S;"
                "evs.keepalive_period=PT0.3S;evs.inactive_check_period=PT0.3S"};
  }

  // The node's last position, so that the others send it only what it lacks.
  [[nodiscard]] std::string Recovered(int node) {
    const std::string log = dir_.File("recover.log");
    WriteFile(log, "");
    nodes_[static_cast<std::size_t>(node)]->Recover(log);
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t at = line.find("Recovered position: ");
      if (at != std::string::npos) return line.substr(at + 20);
    }
    return "";
  }
  void Rejoin(int node) {
    const std::string position = Recovered(node);
    ASSERT_NE(position, "");
    nodes_[static_cast<std::size_t>(node)]->Start({"--wsrep-start-position=" + position});
  }
  [[nodiscard]] bool WaitSynced(int node) {
    return WaitUntil(Patience(60s), [&] {
      try {
        return nodes_[static_cast<std::size_t>(node)]->Session("").Query(
                   "SELECT variable_value FROM information_schema.global_status"
                   " WHERE variable_name = 'wsrep_local_state_comment'") == "Synced";
      } catch (const HarnessError&) {
        return false;
      }
    });
  }

  // Starts the cluster and the hosts.
  void StartAll(const std::vector<std::string>& tag_options) {
    nodes_[0]->Start({"--wsrep-new-cluster"});
    for (int i = 1; i < kNodes; ++i) ASSERT_NO_FATAL_FAILURE(Join(i));
    ASSERT_NO_FATAL_FAILURE(StartHosts(tag_options));
  }
  // A node that has never run.
  void Join(int node) {
    nodes_[static_cast<std::size_t>(node)]->Start();
    ASSERT_TRUE(WaitSynced(node));
  }
  // Starts a host for each node, and the tag `orders`, from which each host gets an id. All hosts
  // are witnesses.
  void StartHosts(const std::vector<std::string>& tag_options) {
    nodes_[0]->Session("").Execute(
        "GRANT SELECT ON mysql.wsrep_cluster_members TO idd@'127.0.0.1'");
    for (int i = 0; i < kNodes; ++i) {
      std::string url = "mysql://idd:secret@";
      for (int n = 0; n < kNodes; ++n) url += (n == 0 ? "" : ",") + Address((i + n) % kNodes, 0);
      auto host = std::make_unique<Host>(dir_, "host-" + std::to_string(i));
      host->daemon.options().database = url + "/idd";
      host->daemon.Start();
      hosts_.push_back(std::move(host));
    }
    std::vector<std::string> create = {"tag", "create", "orders", "--if-absent"};
    create.insert(create.end(), tag_options.begin(), tag_options.end());
    ASSERT_TRUE(
        WaitUntil(Patience(20s), [&] { return hosts_[0]->idctl.Run(create).exit_status == 0; }));
    // The first host to connect begins a term, and the others wait until they see it alive.
    for (const auto& host : hosts_) {
      ASSERT_TRUE(WaitUntil(Patience(60s), [&] {
        return host->idctl.Run({"claim", "orders"}).exit_status == 0;
      }));
    }
    ASSERT_TRUE(WaitUntil(Patience(60s), [&] {
      return hosts_[0]->idctl.Run({"witness", "set", "host-0", "host-1", "host-2"}).exit_status ==
             0;
    })) << hosts_[0]->daemon.Log();
  }
  void StartWorkers(std::chrono::microseconds pace) {
    WorkerPlan plan;
    plan.batch = 8;
    plan.pace_us = static_cast<std::uint64_t>(pace.count());
    plan.log_capacity = 1 << 21;
    plan.timeout_ms = static_cast<std::uint64_t>(Patience(10s).count());
    plan.tag = "orders";
    for (const auto& host : hosts_) {
      plan.socket = host->daemon.socket();
      plan.name = "worker-" + std::to_string(workers_.size());
      workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    }
    for (const auto& worker : workers_) worker->WaitReady(Patience(20s));
    for (const auto& worker : workers_) worker->Go();
  }
  // Does what an operator who has lost the other nodes would do.
  void Bootstrap(int node) {
    const std::string position = Recovered(node);
    ASSERT_NE(position, "");
    DbServer& server = *nodes_[static_cast<std::size_t>(node)];
    const std::string state = server.data_dir() + "/grastate.dat";
    std::string text = ReadFile(state);
    const std::size_t at = text.find("safe_to_bootstrap: 0");
    ASSERT_NE(at, std::string::npos) << text;
    WriteFile(state, text.replace(at, 20, "safe_to_bootstrap: 1"));
    server.Start({"--wsrep-new-cluster", "--wsrep-start-position=" + position});
  }
  [[nodiscard]] int LeasesAt(int node, const std::string& host = "%") const {
    return std::stoi(nodes_[static_cast<std::size_t>(node)]->Session().Query(
        "SELECT COUNT(*) FROM idd_lease WHERE host LIKE '" + host + "'"));
  }
  [[nodiscard]] bool WaitForLeases(int node, const std::string& host, int count) const {
    return WaitUntil(Patience(60s), [&] {
      try {
        return LeasesAt(node, host) >= count;
      } catch (const HarnessError&) {  // not a primary component yet
        return false;
      }
    });
  }
  // Each host has noticed, since its mark in the log, that the store was replaced, and leases
  // there.
  void ExpectAllLeaseAgain(int node, const std::vector<std::size_t>& marks) const {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const DaemonProcess& daemon = hosts_[i]->daemon;
      const std::string& name = daemon.options().host_id;
      EXPECT_TRUE(WaitForLeases(node, name, LeasesAt(node, name) + 5)) << daemon.Log();
      const std::string log = daemon.LogSince(marks[i]);
      EXPECT_NE(log.find("store.replaced"), std::string::npos) << log;
    }
  }
  [[nodiscard]] std::vector<Claimer> StopWorkers() {
    for (const auto& worker : workers_) worker->Stop();
    std::vector<Claimer> claimers;
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->Finish(Patience(20s)), 0) << worker->Failure();
      worker->AddClaimers(claimers);
    }
    EXPECT_EQ(harness::Join(CheckUnique(claimers)), "");
    return claimers;
  }
  void StopWorkersAndCheck(int kills) {
    const std::vector<Claimer> claimers = StopWorkers();
    const std::vector<JournalLease> leases = hosts_[0]->idctl.Leases("orders");
    EXPECT_EQ(harness::Join(CheckLeased(claimers, leases)), "");
    std::printf("%llu ids, %zu leases, %d nodes killed\n",
                static_cast<unsigned long long>(CountIds(claimers)), leases.size(), kills);
    if (HasFailure()) {
      for (const auto& host : hosts_) std::printf("%s\n", host->daemon.Log().c_str());
    }
  }

  const TempDir dir_;
  const std::vector<std::uint16_t> ports_;
  std::vector<std::unique_ptr<DbServer>> nodes_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
};

// Each lease is of one id, so hosts write the same row through different nodes all the time, and
// nearly every commit conflicts with another.
TEST_F(Galera, HostsThatLeaseAtOnceThroughDifferentNodesShareNoId) {
  if (!Exists(kProvider)) GTEST_SKIP() << "galera-4 is not installed";
  ASSERT_NO_FATAL_FAILURE(StartAll({"--step", "1", "--max-step", "1", "--refill", "leaf"}));
  StartWorkers(0us);
  std::this_thread::sleep_for(std::chrono::seconds(ScaledLoad(10)));
  StopWorkersAndCheck(0);
}

TEST_F(Galera, NodesKilledUnderLoadRepeatNoIdAndLeaveNoHostDry) {
  if (!Exists(kProvider)) GTEST_SKIP() << "galera-4 is not installed";
  // A node comes back within seconds, but on a busy machine the cluster may take minutes to agree.
  ASSERT_NO_FATAL_FAILURE(StartAll({"--outage-tolerance", "600"}));
  StartWorkers(500us);
  // Waits until the load has lasted as long as an outage of the cluster may, so that the rings
  // cover it.
  for (const auto& host : hosts_) {
    ASSERT_TRUE(WaitUntil(Patience(240s), [&host] {
      const nlohmann::json tag = host->idctl.Json({"status"}).at("tags").at(0);
      const nlohmann::json promise = tag.at("promise");
      return tag.at("rate_per_s") > 100 && promise.at("kept") == true &&
             promise.at("length_s") >= 120;
    }));
  }
  std::this_thread::sleep_for(3s);
  std::vector<std::uint64_t> dry_before;
  const auto fallbacks = [](const Host& host) {
    return host.idctl.Json({"status"}).at("tags").at(0).at("fallbacks").get<std::uint64_t>();
  };
  for (const auto& host : hosts_) dry_before.push_back(fallbacks(*host));
  const int kills = static_cast<int>(std::max<std::uint64_t>(2, ScaledLoad(4)));
  for (int kill = 0; kill < kills; ++kill) {
    const int node = kill % kNodes;
    nodes_[static_cast<std::size_t>(node)]->Kill();
    std::this_thread::sleep_for(3s);
    Rejoin(node);
    ASSERT_TRUE(WaitSynced(node)) << nodes_[static_cast<std::size_t>(node)]->Log();
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    EXPECT_EQ(fallbacks(*hosts_[i]), dry_before[i]) << "host " << i << " was dry";
    EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
      return hosts_[i]->idctl.Json({"status"}).at("database").at("state") == "up";
    }));
  }
  StopWorkersAndCheck(kills);
}

// The node lacks the leases since it was lost, some of them taken by a host that hangs meanwhile.
TEST_F(Galera, NodeThatLacksTheNewestLeasesBootstrapsTheCluster) {
  if (!Exists(kProvider)) GTEST_SKIP() << "galera-4 is not installed";
  ASSERT_NO_FATAL_FAILURE(StartAll({"--step", "1000", "--max-step", "1000"}));
  StartWorkers(500us);
  nodes_[2]->Kill();
  for (const auto& host : hosts_) {
    const std::string& name = host->daemon.options().host_id;
    ASSERT_TRUE(WaitForLeases(0, name, LeasesAt(0, name) + 5));
  }
  hosts_[2]->daemon.Signal(SIGSTOP);
  const int before = LeasesAt(0);
  nodes_[0]->Kill();
  nodes_[1]->Kill();
  std::vector<std::size_t> marks;
  for (const auto& host : hosts_) marks.push_back(host->daemon.LogMark());
  ASSERT_NO_FATAL_FAILURE(Bootstrap(2));
  ASSERT_TRUE(WaitSynced(2)) << nodes_[2]->Log();
  EXPECT_LT(LeasesAt(2), before) << "the node does not lag";
  const std::uint64_t synced_ns = MonotonicNs();
  std::this_thread::sleep_for(3s);
  hosts_[2]->daemon.Signal(SIGCONT);
  ExpectAllLeaseAgain(2, marks);
  std::printf("every host leases again %.1f s after the node is there, 3 s of it stopped\n",
              static_cast<double>(MonotonicNs() - synced_ns) / 1e9);
  static_cast<void>(StopWorkers());
}

// The number of a cluster's view starts again at 1 with a bootstrap. The hosts were connected in
// view 1 and come back in view 2 of the cluster that lacks their newest leases, so the numbers look
// as if the cluster had gone on.
TEST_F(Galera, HostsOfAnEarlyViewComeBackInALaterViewOfAClusterThatHasLess) {
  if (!Exists(kProvider)) GTEST_SKIP() << "galera-4 is not installed";
  nodes_[0]->Start({"--wsrep-new-cluster"});
  ASSERT_NO_FATAL_FAILURE(StartHosts({"--step", "1000", "--max-step", "1000"}));
  ASSERT_NO_FATAL_FAILURE(Join(2));
  StartWorkers(500us);
  nodes_[2]->Stop();  // killed, it would leave half of a cluster behind, which is not primary
  for (const auto& host : hosts_) {
    const std::string& name = host->daemon.options().host_id;
    ASSERT_TRUE(WaitForLeases(0, name, LeasesAt(0, name) + 5));
  }
  std::vector<std::size_t> marks;
  for (const auto& host : hosts_) {
    marks.push_back(host->daemon.LogMark());
    host->daemon.Signal(SIGSTOP);
  }
  const int before = LeasesAt(0);
  nodes_[0]->Kill();
  ASSERT_NO_FATAL_FAILURE(Bootstrap(2));
  ASSERT_TRUE(WaitSynced(2)) << nodes_[2]->Log();
  EXPECT_LT(LeasesAt(2), before) << "the node does not lag";
  ASSERT_NO_FATAL_FAILURE(Join(1));
  for (const auto& host : hosts_) host->daemon.Signal(SIGCONT);
  ExpectAllLeaseAgain(2, marks);
  static_cast<void>(StopWorkers());
}

}  // namespace
}  // namespace idd::harness
