// SPDX-License-Identifier: Apache-2.0
//
// Three servers of MySQL's Group Replication on loopback, one of them primary. The primary is
// killed, hangs, leaves the group and is moved; the servers are restarted in turn; all of them are
// lost except one that lacks the newest leases; a MySQL Router stands in front.
//
// Method: three hosts with all servers in the URL, two programs each. After each change the test
// waits until every host has leased again and prints how long that took. The oracle looks for ids
// that came twice and adds up the accounts. As long as the group lives on, the term does, too: no
// host begins another one, which would cost a gap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mysql_hosts.h"
#include "support/certificates.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kServers = 3;
// The time from a kill to the end of the votes on it is the group's affair, not idd's.
constexpr auto kVotes = 60s;

class MysqlGroup : public MysqlHosts {
 protected:
  MysqlGroup() : ports_(FreePorts(kServers * 2 + 1)) {}

  void SetUp() override {
    if (!IsMysql()) GTEST_SKIP() << "MariaDB has no Group Replication";
    const Certificates certificates(dir_);
    certificates.MakeAuthority("ca");
    certificates.Make("server", "subjectAltName=IP:127.0.0.1");
    for (int i = 0; i < kServers; ++i) {
      servers_.push_back(std::make_unique<DbServer>(
          dir_, "member-" + std::to_string(i),
          DbServer::Options{.port = Port(i), .arguments = Arguments(i)}));
    }
  }
  void TearDown() override {
    if (!HasFailure()) return;
    for (const auto& host : hosts_) std::printf("%s\n", host->daemon.Log().c_str());
    for (const auto& server : servers_) std::printf("%s\n", server->Log().c_str());
  }

  [[nodiscard]] std::uint16_t Port(int server) const {
    return ports_[static_cast<std::size_t>(server)];
  }
  [[nodiscard]] std::uint16_t RouterPort() const { return ports_.back(); }
  [[nodiscard]] std::string GroupAddress(int server) const {
    return "127.0.0.1:" + std::to_string(ports_[static_cast<std::size_t>(kServers + server)]);
  }
  [[nodiscard]] DbServer& At(int server) const {
    return *servers_[static_cast<std::size_t>(server)];
  }
  [[nodiscard]] std::vector<std::string> Arguments(int server) const {
    std::string seeds;
    for (int i = 0; i < kServers; ++i) seeds += (i == 0 ? "" : ",") + GroupAddress(i);
    return {"--server-id=" + std::to_string(server + 1), "--log-bin=binlog", "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON", "--plugin-load-add=group_replication.so",
            "--group-replication-group-name=8a2f9b5e-5a0e-4d3f-9f1a-000000000001",
            "--group-replication-communication-stack=XCOM",
            "--group-replication-local-address=" + GroupAddress(server),
            "--group-replication-group-seeds=" + seeds, "--group-replication-start-on-boot=OFF",
            "--group-replication-recovery-get-public-key=ON",
            // By default the group waits 5 s longer before it votes on a silent member.
            "--group-replication-member-expel-timeout=0",
            // The server with the smallest number is elected.
            "--group-replication-member-weight=" + std::to_string(90 - 10 * server),
            "--report-host=127.0.0.1", "--ssl-ca=" + dir_.File("ca.pem"),
            "--ssl-cert=" + dir_.File("server.pem"), "--ssl-key=" + dir_.File("server.key")};
  }
  [[nodiscard]] std::string GroupUrl() const { return At(0).TcpUrl({&At(1), &At(2)}); }

  void StartServer(int server) {
    At(server).Start();
    DbSession session = At(server).Session("");
    // Each server has its own users, so that no transaction but the group's is in a binary log.
    session.Execute("SET sql_log_bin = 0");
    session.Execute("GRANT REPLICATION SLAVE ON *.* TO idd@'127.0.0.1'");
    for (const std::string table :
         {"replication_group_members", "replication_group_member_stats"}) {
      session.Execute("GRANT SELECT ON performance_schema." + table + " TO idd@'127.0.0.1'");
    }
  }
  void Join(int server) {
    At(server).Session("").Execute("START GROUP_REPLICATION USER='idd', PASSWORD='secret'");
    ASSERT_TRUE(WaitUntil(Patience(kVotes), [&] { return StateOf(server) == "ONLINE"; }))
        << StateOf(server) << At(server).Log();
  }
  void Restart(int server) {
    StartServer(server);
    Join(server);
  }
  // Bootstraps the group from this server.
  void Bootstrap(int server) {
    DbSession session = At(server).Session("");
    session.Execute("SET GLOBAL group_replication_bootstrap_group = ON");
    Join(server);
    session.Execute("SET GLOBAL group_replication_bootstrap_group = OFF");
  }
  void StartGroup() {
    for (int i = 0; i < kServers; ++i) StartServer(i);
    ASSERT_NO_FATAL_FAILURE(Bootstrap(0));
    for (int i = 1; i < kServers; ++i) ASSERT_NO_FATAL_FAILURE(Join(i));
  }

  // How this server sees itself.
  [[nodiscard]] std::string StateOf(int server) const {
    return Ask(server,
               "SELECT member_state FROM performance_schema.replication_group_members"
               " WHERE member_id = @@server_uuid");
  }
  [[nodiscard]] std::string Ask(int server, const std::string& sql) const {
    try {
      return At(server).Session("").Query(sql);
    } catch (const HarnessError&) {  // it is down, or hangs
      return "";
    }
  }
  // The primary as the servers that run see it, once they agree and it can be written.
  [[nodiscard]] int Primary() const {
    for (int i = 0; i < kServers; ++i) {
      if (At(i).Running() && !stopped_[static_cast<std::size_t>(i)] && StateOf(i) == "ONLINE" &&
          Ask(i, "SELECT @@super_read_only") == "0") {
        return i;
      }
    }
    return -1;
  }
  void Pause(int server) {
    At(server).Signal(SIGSTOP);
    stopped_[static_cast<std::size_t>(server)] = true;
  }
  void Continue(int server) {
    At(server).Signal(SIGCONT);
    stopped_[static_cast<std::size_t>(server)] = false;
  }

  // Measures from now until every host has leased again.
  void ExpectLeasesAfter(const std::string& change) {
    const std::uint64_t began = MonotonicNs();
    ExpectFreshLeases(kVotes);
    std::printf("%s: every host has leased again after %.1f s\n", change.c_str(),
                static_cast<double>(MonotonicNs() - began) / 1e9);
  }
  [[nodiscard]] std::string Term() const {
    nlohmann::json list;
    EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
      const IdctlResult result = hosts_[0]->idctl.Run({"--json", "witness", "list"});
      list = nlohmann::json::parse(result.out, nullptr, false);
      return result.exit_status == 0 && list.is_object();
    }));
    return list.at("term").dump() + " " + list.at("begun_by").dump();
  }
  void ExpectSameTerm(const std::string& term, const std::vector<std::size_t>& marks) const {
    EXPECT_EQ(Term(), term);
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::string log = hosts_[i]->daemon.LogSince(marks[i]);
      EXPECT_THAT(log, Not(HasSubstr("term.begun"))) << i;
      EXPECT_THAT(log, Not(HasSubstr("store.replaced"))) << i;
    }
  }
  void ExpectLogged(const std::string& text, const std::vector<std::size_t>& marks) const {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      EXPECT_THAT(hosts_[i]->daemon.LogSince(marks[i]), HasSubstr(text)) << i;
    }
  }
  [[nodiscard]] int LeasesAt(int server) const {
    return std::stoi("0" + Ask(server, "SELECT COUNT(*) FROM idd.idd_lease"));
  }

  const std::vector<std::uint16_t> ports_;
  std::vector<std::unique_ptr<DbServer>> servers_;
  std::vector<bool> stopped_ = std::vector<bool>(kServers);
};

TEST_F(MysqlGroup, PrimariesKilledInARowRepeatNoId) {
  ASSERT_NO_FATAL_FAILURE(StartGroup());
  StartHeavyLoad(GroupUrl());
  const std::string term = Term();
  const int kills = static_cast<int>(std::max<std::uint64_t>(2, ScaledLoad(10)));
  for (int kill = 0; kill < kills; ++kill) {
    const std::vector<std::size_t> marks = LogMarks();
    const int primary = Primary();
    ASSERT_GE(primary, 0);
    At(primary).Kill();
    ExpectLeasesAfter("primary " + std::to_string(primary) + " killed");
    ExpectSameTerm(term, marks);
    ASSERT_NO_FATAL_FAILURE(Restart(primary));
  }
  StopHeavyLoad();
}

// Whoever can reach it may still be connected to it when the others have elected another primary.
TEST_F(MysqlGroup, PrimaryThatHangsOrLosesTheMajorityRepeatsNoId) {
  ASSERT_NO_FATAL_FAILURE(StartGroup());
  StartHeavyLoad(GroupUrl());
  const std::string term = Term();
  const std::vector<std::size_t> marks = LogMarks();
  Pause(0);
  ExpectLeasesAfter("the primary hangs");
  Continue(0);
  ExpectLeasesAfter("the old primary goes on");
  ASSERT_TRUE(WaitUntil(Patience(kVotes), [&] {  // it joins the group again by itself
    return StateOf(0) == "ONLINE" && Ask(0, "SELECT @@super_read_only") == "1";
  })) << StateOf(0);
  const int primary = Primary();
  ASSERT_GE(primary, 0);
  for (int i = 0; i < kServers; ++i) {
    if (i != primary) Pause(i);
  }
  std::this_thread::sleep_for(2s);  // for commits that a majority has already
  const int without_majority = LeasesAt(primary);
  std::this_thread::sleep_for(2s);
  EXPECT_EQ(LeasesAt(primary), without_majority) << "a lease that no majority has";
  for (int i = 0; i < kServers; ++i) {
    if (i != primary) Continue(i);
  }
  ExpectLeasesAfter("the primary has its majority again");
  ExpectSameTerm(term, marks);
  StopHeavyLoad();
}

TEST_F(MysqlGroup, PrimaryMovedByHandByLeavingAndByARollingRestartRepeatsNoId) {
  ASSERT_NO_FATAL_FAILURE(StartGroup());
  StartHeavyLoad(GroupUrl());
  const std::string term = Term();
  const std::vector<std::size_t> marks = LogMarks();
  At(0).Session("").Execute("DO group_replication_set_as_primary('" +
                            Ask(1, "SELECT @@server_uuid") + "')");
  ExpectLeasesAfter("group_replication_set_as_primary()");
  EXPECT_EQ(Primary(), 1);
  At(1).Session("").Execute("STOP GROUP_REPLICATION");
  ExpectLeasesAfter("STOP GROUP_REPLICATION at the primary");
  ASSERT_NO_FATAL_FAILURE(Join(1));
  for (int i = kServers - 1; i >= 0; --i) {
    At(i).Stop();
    ExpectLeasesAfter("server " + std::to_string(i) + " stopped");
    ASSERT_NO_FATAL_FAILURE(Restart(i));
  }
  ExpectSameTerm(term, marks);
  StopHeavyLoad();
}

// A server that was restarted and has not joined its group can be written: a lease from it would be
// lost to the group.
TEST_F(MysqlGroup, ServerOutsideItsGroupGrantsNothing) {
  ASSERT_NO_FATAL_FAILURE(StartGroup());
  StartHeavyLoad(GroupUrl());
  const int primary = Primary();
  ASSERT_GE(primary, 0);
  for (int i = 0; i < kServers; ++i) At(i).Kill();
  const std::vector<std::size_t> marks = LogMarks();
  StartServer(primary);
  const int before = LeasesAt(primary);
  ASSERT_TRUE(WaitUntil(Patience(20s), [&] {
    return hosts_[0]->daemon.LogSince(marks[0]).find("is not in its group (OFFLINE)") !=
           std::string::npos;
  })) << hosts_[0]->daemon.LogSince(marks[0]);
  EXPECT_EQ(LeasesAt(primary), before);
  ASSERT_NO_FATAL_FAILURE(Bootstrap(primary));
  ExpectLeasesAfter("the group bootstrapped from its last primary");
  ExpectLogged("store.replaced", marks);
  StopHeavyLoad();
}

TEST_F(MysqlGroup, MemberThatLacksTheNewestLeasesBootstrapsTheGroup) {
  ASSERT_NO_FATAL_FAILURE(StartGroup());
  StartHeavyLoad(GroupUrl());
  At(2).Kill();
  ExpectFreshLeases(kVotes);
  ExpectFreshLeases(kVotes);
  const int before = LeasesAt(0);
  At(0).Kill();
  At(1).Kill();
  const std::vector<std::size_t> marks = LogMarks();
  StartServer(2);
  EXPECT_LT(LeasesAt(2), before) << "the server does not lag";
  ASSERT_NO_FATAL_FAILURE(Bootstrap(2));
  ExpectLeasesAfter("the group bootstrapped from a server that lacks leases");
  ExpectLogged("store.replaced", marks);
  ExpectLogged("store.went_backwards", marks);
  for (const auto& worker : workers_) worker->Stop();
  EXPECT_EQ(harness::Join(CheckUnique(Finish(Patience(60s)))), "");
}

TEST_F(MysqlGroup, SeveralPrimariesAreRefused) {
  ASSERT_NO_FATAL_FAILURE(StartGroup());
  StartHosts(1, {}, GroupUrl());
  At(0).Session("").Execute("DO group_replication_switch_to_multi_primary_mode()");
  Host late(dir_, "late");
  late.daemon.options().database = GroupUrl();
  late.daemon.Start();
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
    return late.daemon.Log().find("several primaries") != std::string::npos;
  })) << late.daemon.Log();
  EXPECT_NE(late.idctl.Run({"claim", "orders", "--timeout", "1s"}).exit_status, 0);
}

// The router sends each new connection to the first server of its list that answers.
TEST_F(MysqlGroup, RouterInFrontFollowsTheGroupAndRepeatsNoId) {
  ASSERT_NO_FATAL_FAILURE(StartGroup());
  std::string destinations;
  for (int i = 0; i < kServers; ++i) {
    destinations += (i == 0 ? "" : ",") + ("127.0.0.1:" + std::to_string(Port(i)));
  }
  const std::string config = dir_.File("router.conf");
  WriteFile(config, "[DEFAULT]\nlogging_folder=\nruntime_folder=" + dir_.path() +
                        "\ndata_folder=" + dir_.path() +
                        "\n[logger]\nlevel=warning\n[routing:idd]\n"
                        "bind_address=127.0.0.1\nbind_port=" +
                        std::to_string(RouterPort()) + "\nrouting_strategy=first-available\n" +
                        "protocol=classic\nclient_ssl_mode=PASSTHROUGH\n"
                        "server_ssl_mode=AS_CLIENT\ndestinations=" +
                        destinations + "\n");
  ChildOptions options;
  options.argv = DbServer::RouterCommand(config);
  options.stderr_path = dir_.File("router.log");
  ChildProcess router(options);
  // Only an encrypted login passes through it: a client that knows the server's key sends its
  // password before the router expects it.
  const std::string url = "mysql://idd:secret@127.0.0.1:" + std::to_string(RouterPort()) +
                          "/idd?ssl_ca=" + dir_.File("ca.pem");
  StartHeavyLoad(url);
  At(0).Kill();
  ExpectLeasesAfter("the primary behind the router killed");
  StopHeavyLoad();
}

}  // namespace
}  // namespace idd::harness
