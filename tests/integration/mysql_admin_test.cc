// SPDX-License-Identifier: Apache-2.0
//
// idctl on two hosts that share a MariaDB: the origin of an id, reports over all hosts, and rows
// that other programs write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
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
  [[nodiscard]] static std::vector<std::string> Origins(const Host& host, std::uint64_t id,
                                                        const std::string& tag) {
    std::vector<std::string> origins;
    const nlohmann::json answer = WhoIs(host, id, tag);
    for (const auto& lease : answer.at("leases")) {
      origins.push_back(lease.at("host").get<std::string>() + " " +
                        lease.at("state").get<std::string>() + " " +
                        lease.at("id_state").get<std::string>());
    }
    return origins;
  }
  // False: a term was begun after the first host's start, as is done if the server does not answer
  // for seconds. The host's tail is given up then.
  [[nodiscard]] bool FollowAnId(const std::string& tag) {
    a_.idctl.CreateTag(tag, 100);
    const std::uint64_t claimed = a_.idctl.Claim(tag, 10).back();
    const std::uint64_t unclaimed = claimed + 40;
    const std::uint64_t of_b = b_.idctl.Claim(tag).front();
    EXPECT_THAT(Origins(a_, claimed, tag), ElementsAre("host-a active claimed"));
    EXPECT_THAT(Origins(a_, unclaimed, tag), ElementsAre("host-a active available"));
    EXPECT_THAT(Origins(a_, of_b, tag), ElementsAre("host-b active active"));
    EXPECT_THAT(Origins(b_, of_b, tag), ElementsAre("host-b active claimed"));
    EXPECT_THAT(Origins(b_, unclaimed, tag), ElementsAre("host-a active active"));
    const nlohmann::json answer = WhoIs(a_, claimed, tag);
    EXPECT_EQ(answer.at("tag"), tag);
    EXPECT_EQ(answer.at("id"), claimed);
    EXPECT_EQ(answer.at("leases").at(0).at("claimed"), 10);
    EXPECT_EQ(answer.at("leases").at(0).at("token").get<std::string>().size(), 32U);
    const std::string text = a_.idctl.Run({"whois", tag, std::to_string(unclaimed)}).out;
    EXPECT_THAT(text, HasSubstr("id " + std::to_string(unclaimed) + " of tag '" + tag + "'"));
    EXPECT_THAT(text, HasSubstr("available  host-a  active"));

    // b has leased since, so the tail is listed, and a can take it again.
    a_.daemon.Stop();
    EXPECT_TRUE(WaitUntil(Patience(20s), [this] { return IsTheWitness(b_); }));
    EXPECT_THAT(Origins(b_, claimed, tag), ElementsAre("host-a returned claimed"));
    EXPECT_THAT(Origins(b_, unclaimed, tag), ElementsAre("host-a returned returned"));

    const std::size_t mark = a_.daemon.LogMark();
    const std::size_t other_mark = b_.daemon.LogMark();
    a_.daemon.Start();
    const std::uint64_t next = a_.idctl.Claim(tag).front();
    const std::string log = a_.daemon.LogSince(mark) + b_.daemon.LogSince(other_mark);
    if (log.find("term.begun") != std::string::npos) return false;
    EXPECT_EQ(next, claimed + 1) << log;
    EXPECT_THAT(Origins(a_, claimed + 1, tag),
                ElementsAre("host-a active claimed", "host-a returned returned"));
    EXPECT_THAT(Origins(a_, unclaimed, tag),
                ElementsAre("host-a active available", "host-a returned returned"));

    a_.daemon.Kill();
    a_.daemon.Start();
    EXPECT_THAT(Origins(a_, unclaimed, tag),
                ElementsAre("host-a abandoned abandoned", "host-a returned returned"));
    return true;
  }
  [[nodiscard]] static bool IsTheWitness(const Host& host) {
    const nlohmann::json list = host.idctl.Json({"witness", "list"});
    return list.at("witnesses").size() == 1 &&
           list.at("witnesses").at(0).at("host") == host.daemon.options().host_id;
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

// Regression: beside other hosts the first claim of each new tag failed, as did the first after the
// tag's limit was raised: no host may lease above a ceiling that the witnesses have not noted yet.
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

TEST_F(MysqlAdmin, CommandThatMakesATagNamesTheWitnessThatItWaitsFor) {
  a_.idctl.CreateTag("orders", 100);
  EXPECT_FALSE(b_.idctl.Claim("orders").empty());
  a_.daemon.Kill();  // the first host is the only witness
  const IdctlResult created = b_.idctl.Run({"tag", "create", "new", "--wait", "5s"});
  EXPECT_EQ(created.exit_status, 0) << created.err;
  EXPECT_THAT(created.out, HasSubstr("created tag 'new'"));
  EXPECT_THAT(created.err, HasSubstr("done, but ids cannot be claimed yet"));
  EXPECT_THAT(created.err, HasSubstr("host-a"));
  const nlohmann::json set = b_.idctl.Json({"tag", "set", "new", "--step", "50", "--wait", "0"});
  EXPECT_FALSE(set.at("claimable").get<bool>());
  EXPECT_EQ(set.at("waits_for").at(0).at("host"), "host-a");
  const IdctlResult known = b_.idctl.Run({"tag", "set", "orders", "--step", "50", "--wait", "0"});
  EXPECT_EQ(known.err, "") << "it has room";
}

class MysqlWitnesses : public MysqlAdmin {
 protected:
  [[nodiscard]] static std::vector<std::string> Witnesses(const Host& host) {
    std::vector<std::string> there;
    const nlohmann::json list = host.idctl.Json({"witness", "list"});
    for (const auto& witness : list.at("witnesses")) {
      if (witness.at("is_there").get<bool>()) there.push_back(witness.at("host"));
    }
    return there;
  }
  // Expects that no id comes twice.
  void ClaimNew(const Host& host, std::uint64_t count) {
    for (const std::uint64_t id : host.idctl.Claim("orders", count)) {
      EXPECT_TRUE(claimed_.insert(id).second) << id << " came twice";
    }
  }
  std::set<std::uint64_t> claimed_;
};

TEST_F(MysqlWitnesses, AreTheHostsThatAnOperatorNames) {
  Host c(dir_, "host-c");
  c.daemon.options().database = server_.Url();
  c.daemon.Start();
  EXPECT_THAT(Witnesses(c), ElementsAre("host-a"));
  EXPECT_THAT(c.idctl.Run({"witness", "list"}).out, HasSubstr("the only witness is there"));
  const std::vector<std::vector<std::string>> wrong = {
      {"host-a", "host-b"}, {"host-a", "host-a", "host-b"}, {"nobody"}};
  for (std::vector<std::string> words : wrong) {
    words.insert(words.begin(), {"witness", "set"});
    EXPECT_EQ(c.idctl.Run(words).exit_status, 1);
  }
  const IdctlResult set = c.idctl.Run({"witness", "set", "host-a", "host-b", "host-c"});
  EXPECT_EQ(set.exit_status, 0) << set.err;
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] { return Witnesses(a_).size() == 3; }));
  EXPECT_THAT(a_.idctl.Run({"witness", "list"}).out,
              HasSubstr("3 of 3 witnesses are there, a majority"));
  a_.idctl.CreateTag("orders", 100);
  for (const Host* host : {&a_, &b_, &c}) ClaimNew(*host, 300);
  a_.daemon.Kill();
  EXPECT_TRUE(b_.idctl.Json({"tag", "create", "new"}).at("claimable").get<bool>())
      << "two of three suffice";
  for (const Host* host : {&b_, &c}) ClaimNew(*host, 3000);
  const IdctlResult next = c.idctl.Run({"witness", "set", "host-b"});
  EXPECT_EQ(next.exit_status, 0) << next.err;
  EXPECT_THAT(Witnesses(c), ElementsAre("host-b"));
  c.daemon.Stop();
  a_.daemon.Start();
  for (const Host* host : {&a_, &b_}) ClaimNew(*host, 3000);
  EXPECT_TRUE(AuditAll(b_).ok);
}

TEST_F(MysqlWitnesses, OneThatIsLostIsReplacedByForce) {
  a_.idctl.CreateTag("orders", 100);
  for (const Host* host : {&a_, &b_}) ClaimNew(*host, 300);
  a_.daemon.Kill();
  const IdctlResult asked = b_.idctl.Run({"witness", "set", "host-b"});
  EXPECT_EQ(asked.exit_status, 1) << asked.out;
  EXPECT_THAT(asked.err, HasSubstr("--force"));
  const IdctlResult forced = b_.idctl.Run({"witness", "set", "--force", "host-b"});
  EXPECT_EQ(forced.exit_status, 0) << forced.err;
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] { return IsTheWitness(b_); }));
  ClaimNew(b_, 5000);
  a_.daemon.Start();
  for (const Host* host : {&a_, &b_}) ClaimNew(*host, 3000);
  EXPECT_THAT(Witnesses(a_), ElementsAre("host-b"));
  EXPECT_TRUE(AuditAll(b_).ok);
}

TEST(SqliteWitnesses, AreNone) {
  const TempDir dir;
  Host host(dir);
  host.daemon.Start();
  const IdctlResult list = host.idctl.Run({"witness", "list"});
  EXPECT_EQ(list.exit_status, 1);
  EXPECT_THAT(list.err, HasSubstr("has no witnesses"));
  host.daemon.Stop();
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
