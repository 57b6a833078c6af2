// SPDX-License-Identifier: Apache-2.0
//
// idctl on two hosts that share a MariaDB: the origin of an id, reports over all hosts, and rows
// that other programs write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "idclient/idclient.h"
#include "support/db_server.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MysqlAdmin : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.Start();
    for (Host* host : {&a_, &b_}) {
      host->daemon.options().database = server_.Url();
      host->daemon.Start();
    }
  }
  [[nodiscard]] static nlohmann::json WhoIs(const Host& host, std::uint64_t id,
                                            const std::string& tag = "orders") {
    return host.idctl.Json({"whois", tag, std::to_string(id)});
  }
  // "host lease-state id-state" for every lease that contains the id, the newest first.
  [[nodiscard]] static std::vector<std::string> Origins(const Host& host, std::uint64_t id) {
    std::vector<std::string> origins;
    const nlohmann::json answer = WhoIs(host, id);
    for (const auto& lease : answer.at("leases")) {
      origins.push_back(lease.at("host").get<std::string>() + " " +
                        lease.at("state").get<std::string>() + " " +
                        lease.at("id_state").get<std::string>());
    }
    return origins;
  }
  // False: the first host lifted the store after its start, as it does if the server does not
  // answer for seconds. Its tail is given up then.
  [[nodiscard]] bool FollowAnId(const std::string& tag) {
    a_.idctl.CreateTag(tag, 100);
    const std::uint64_t claimed = a_.idctl.Claim(tag, 10).back();
    const std::uint64_t unclaimed = claimed + 40;
    const std::uint64_t of_b = b_.idctl.Claim(tag).front();
    EXPECT_THAT(Origins(a_, claimed), ElementsAre("host-a active claimed"));
    EXPECT_THAT(Origins(a_, unclaimed), ElementsAre("host-a active available"));
    EXPECT_THAT(Origins(a_, of_b), ElementsAre("host-b active active"));
    EXPECT_THAT(Origins(b_, of_b), ElementsAre("host-b active claimed"));
    EXPECT_THAT(Origins(b_, unclaimed), ElementsAre("host-a active active"));
    const nlohmann::json answer = WhoIs(a_, claimed);
    EXPECT_EQ(answer.at("tag"), tag);
    EXPECT_EQ(answer.at("id"), claimed);
    EXPECT_EQ(answer.at("leases").at(0).at("claimed"), 10);
    EXPECT_EQ(answer.at("leases").at(0).at("token").get<std::string>().size(), 32U);
    const std::string text = a_.idctl.Run({"whois", tag, std::to_string(unclaimed)}).out;
    EXPECT_THAT(text, HasSubstr("id " + std::to_string(unclaimed) + " of tag '" + tag + "'"));
    EXPECT_THAT(text, HasSubstr("available  host-a  active"));

    // b has leased since, so the tail is listed, and a can take it again.
    a_.daemon.Stop();
    EXPECT_THAT(Origins(b_, claimed), ElementsAre("host-a returned claimed"));
    EXPECT_THAT(Origins(b_, unclaimed), ElementsAre("host-a returned returned"));

    const std::size_t mark = a_.daemon.LogMark();
    a_.daemon.Start();
    const std::uint64_t next = a_.idctl.Claim(tag).front();
    const std::string log = a_.daemon.LogSince(mark);
    if (log.find("fence.lifted") != std::string::npos) return false;
    EXPECT_EQ(next, claimed + 1) << log;
    EXPECT_THAT(Origins(a_, claimed + 1),
                ElementsAre("host-a active claimed", "host-a returned returned"));
    EXPECT_THAT(Origins(a_, unclaimed),
                ElementsAre("host-a active available", "host-a returned returned"));

    a_.daemon.Kill();
    a_.daemon.Start();
    EXPECT_THAT(Origins(a_, unclaimed),
                ElementsAre("host-a abandoned abandoned", "host-a returned returned"));
    return true;
  }
  [[nodiscard]] static AuditRow AuditAll(const Host& host) {
    return ParseAudit(host.idctl.Json({"audit", "orders", "--all-hosts"}), "orders");
  }

  const TempDir dir_;
  DbServer server_{dir_};
  Host a_{dir_, "host-a"};
  Host b_{dir_, "host-b"};
};

TEST_F(MysqlAdmin, WhoisFollowsAnIdThroughItsLeases) {
  EXPECT_TRUE(FollowAnId("orders") || FollowAnId("parcels") || FollowAnId("bills"))
      << a_.daemon.Log();
}

TEST_F(MysqlAdmin, WhoisOfAnIdOfNoLeaseSaysWhyAndExits1) {
  a_.idctl.Do({"tag", "create", "orders", "--start", "5000"});
  const std::uint64_t id = a_.idctl.Claim("orders").front();
  ASSERT_EQ(id, 5000U);
  IdctlResult result = a_.idctl.Run({"whois", "orders", "4999"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("no lease of idd has it"));
  result = a_.idctl.Run({"--json", "whois", "orders", "9223372036854775806"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("it is not leased yet: the next lease begins at "));
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_TRUE(document.at("leases").empty());
  EXPECT_THAT(document.at("reason").get<std::string>(), HasSubstr("not leased yet"));
  EXPECT_EQ(a_.idctl.Run({"whois", "nobody", "1"}).exit_status, 3);
  // The journal still knows a deleted tag.
  a_.idctl.Do({"tag", "delete", "orders", "--force"});
  EXPECT_EQ(WhoIs(a_, id).at("leases").size(), 1U);
}

TEST_F(MysqlAdmin, AuditOfAllHostsCountsEveryLeaseOfTheJournal) {
  a_.idctl.CreateTag("orders", 50);
  EXPECT_FALSE(a_.idctl.Claim("orders", 120).empty());
  EXPECT_FALSE(b_.idctl.Claim("orders", 30).empty());
  b_.daemon.Stop();
  b_.daemon.Start();
  EXPECT_FALSE(b_.idctl.Claim("orders", 10).empty());
  const auto of_host = [&](const std::string& host) {
    AuditRow row;
    for (const JournalLease& lease : a_.idctl.Leases("orders")) {
      if (lease.host != host) continue;
      row.leased += lease.limit - lease.base;
      row.claimed += lease.claimed;
      row.returned += lease.returned;
      row.abandoned += lease.abandoned;
      if (lease.state == "active") row.available += lease.limit - lease.base;
    }
    return row;
  };
  AuditRow all;
  AuditRow own;
  AuditRow other;
  // A lease that the last claims made due may come in between.
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] {
    all = AuditAll(a_);
    own = a_.idctl.Audit("orders");
    other = of_host("host-b");
    return AuditAll(a_).leased == all.leased;
  }));
  EXPECT_TRUE(all.ok);
  ASSERT_GT(other.available, 0U);
  ASSERT_GT(other.returned, 0U);
  EXPECT_EQ(own.leased, of_host("host-a").leased);
  EXPECT_EQ(own.claimed, 120U);
  EXPECT_EQ(all.leased, own.leased + other.leased);
  EXPECT_EQ(all.claimed, own.claimed + other.claimed);
  EXPECT_EQ(all.available, own.available + other.available);
  EXPECT_EQ(all.returned, own.returned + other.returned);
  EXPECT_EQ(all.abandoned, own.abandoned + other.abandoned);
}

TEST_F(MysqlAdmin, AuditFindsIdsThatTwoHostsKept) {
  a_.idctl.CreateTag("orders", 50);
  const std::uint64_t id = a_.idctl.Claim("orders").front();
  EXPECT_EQ(a_.idctl.Run({"audit", "--all-hosts"}).exit_status, 0);
  server_.Session().Execute(
      "INSERT INTO idd_lease(token, biz_tag, host, base, `limit`) VALUES(REPEAT('0', 32), 'orders',"
      " 'ghost', " +
      std::to_string(id) + ", " + std::to_string(id + 1) + ")");
  const IdctlResult result = a_.idctl.Run({"audit", "--all-hosts"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.out, HasSubstr("shares ids with"));
  EXPECT_THAT(result.out, HasSubstr("ghost"));
}

TEST_F(MysqlAdmin, EveryHostSeesTheOthersAndTheirLeases) {
  a_.idctl.CreateTag("orders", 50);
  EXPECT_FALSE(b_.idctl.Claim("orders").empty());
  const nlohmann::json hosts = a_.idctl.Json({"host", "list"}).at("hosts");
  ASSERT_EQ(hosts.size(), 2U);
  std::string boot_id = ReadFile("/proc/sys/kernel/random/boot_id");
  boot_id.pop_back();
  for (const auto& host : hosts) EXPECT_EQ(host.at("boot_id"), boot_id);
  EXPECT_EQ(hosts.at(1).at("host"), "host-b");
  EXPECT_THAT(a_.idctl.Run({"host", "list"}).out, HasSubstr(boot_id));
  const nlohmann::json leases = a_.idctl.Json({"lease", "list", "--host", "host-b"}).at("leases");
  ASSERT_FALSE(leases.empty());
  for (const auto& lease : leases) EXPECT_EQ(lease.at("host"), "host-b");
  EXPECT_TRUE(a_.idctl.Json({"lease", "list", "--host", "host-a"}).at("leases").empty());
}

// Regression: beside other hosts the first claim of each new tag failed, as did the first after the
// tag's limit was raised: no host may lease above a ceiling that another one has not noted yet.
TEST_F(MysqlAdmin, CommandThatMakesATagReturnsWhenItCanBeClaimed) {
  const auto active = [this](const std::string& tag) {
    return server_.Session().Query("SELECT active FROM idd_ceiling WHERE biz_tag = '" + tag + "'");
  };
  const auto run = [this](const std::vector<std::string>& command) {
    std::vector<std::string> words = {"--timeout", "2m"};
    words.insert(words.end(), command.begin(), command.end());
    words.insert(words.end(), {"--wait", "1m"});
    return a_.idctl.Json(words);
  };
  for (const std::string tag : {"one", "two", "three"}) {
    EXPECT_TRUE(run({"tag", "create", tag, "--max-id", "10"}).at("claimable").get<bool>());
    EXPECT_EQ(active(tag), "11");
  }
  EXPECT_TRUE(run({"tag", "set", "one", "--max-id", "100000"}).at("claimable").get<bool>());
  EXPECT_NE(active("one"), "11");
  EXPECT_TRUE(run({"tag", "create", "drawn", "--mode", "ticket"}).at("claimable").get<bool>());
  EXPECT_NE(active("drawn"), "");
  EXPECT_TRUE(run({"tag", "create", "timed", "--mode", "snowflake"}).at("claimable").get<bool>());
  EXPECT_NE(active("timed#0"), "0") << "of the worker id that the first host takes";
  EXPECT_NE(active("timed#1"), "0") << "of the second";
  const std::string file = dir_.File("tags.toml");
  WriteFile(file, "[[tag]]\nname = \"four\"\n[[tag]]\nname = \"five\"\n");
  const IdctlResult applied = a_.idctl.Run({"apply", "-f", file, "--wait", "25s"});
  EXPECT_EQ(applied.exit_status, 0) << applied.err;
  EXPECT_EQ(applied.err, "");
  EXPECT_NE(active("four"), "0");
  EXPECT_NE(active("five"), "0");
}

TEST_F(MysqlAdmin, CommandThatMakesATagNamesTheHostThatItWaitsFor) {
  a_.idctl.CreateTag("orders", 100);
  ASSERT_TRUE(WaitUntil(Patience(30s), [this] {  // a's raises wait for members only
    return server_.Session().Query("SELECT state FROM idd_fence WHERE host = 'host-b'") == "live";
  }));
  b_.daemon.Kill();
  const IdctlResult created = a_.idctl.Run({"tag", "create", "new", "--wait", "1s"});
  EXPECT_EQ(created.exit_status, 0) << created.err;
  EXPECT_THAT(created.out, HasSubstr("created tag 'new'"));
  EXPECT_THAT(created.err, HasSubstr("done, but ids cannot be claimed yet"));
  EXPECT_THAT(created.err, HasSubstr("host-b"));
  const nlohmann::json set = a_.idctl.Json({"tag", "set", "new", "--step", "50", "--wait", "0"});
  EXPECT_FALSE(set.at("claimable").get<bool>());
  EXPECT_EQ(set.at("waits_for").at(0).at("host"), "host-b");
  const IdctlResult known = a_.idctl.Run({"tag", "set", "orders", "--step", "50", "--wait", "0"});
  EXPECT_EQ(known.err, "") << "it has room";
}

// A row that another program inserts into Leaf's table is a tag, even for a client that has been
// refused that tag before.
TEST_F(MysqlAdmin, NewRowIsATagWithinAMinute) {
  idclient_options options = {};
  options.struct_size = sizeof options;
  options.socket_path = a_.daemon.socket().c_str();
  idclient_client* client = nullptr;
  ASSERT_EQ(idclient_open(&options, &client), IDCLIENT_OK);
  idclient_tag* tag = nullptr;
  ASSERT_EQ(idclient_tag_open(client, "late", &tag), IDCLIENT_NO_SUCH_TAG);
  EXPECT_EQ(a_.idctl.Run({"claim", "late"}).exit_status, 3);
  server_.Session().Execute("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('late', 700, 5)");
  EXPECT_TRUE(WaitUntil(60s, [&] {
    return idclient_tag_open(client, "late", &tag) == IDCLIENT_OK;
  })) << idclient_last_error();
  std::uint64_t id = 0;
  EXPECT_TRUE(WaitUntil(60s, [&] { return idclient_claim(tag, &id) == IDCLIENT_OK; }));
  EXPECT_EQ(id, 700U);
  idclient_close(client);
  EXPECT_EQ(b_.idctl.Json({"tag", "show", "late"}).at("tag").at("step"), 5);
  EXPECT_THAT(b_.idctl.Run({"tag", "list"}).out, HasSubstr("late"));
  EXPECT_THAT(b_.idctl.Run({"status"}).out, HasSubstr("late"));
}

}  // namespace
}  // namespace idd::harness
