// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/server_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using Change = ServerIdentity::Change;

class ServerIdentityTest : public ::testing::Test {
 protected:
  ServerIdentityTest() { EXPECT_EQ(identity_.Recognise(facts_), Change::kOther); }

  // The same server, `later`: its uptime is longer by that time, and it has counted connections.
  void Pass(std::chrono::seconds later) {
    facts_.asked += later;
    facts_.uptime += later;
    ++facts_.connection;
  }

  ServerFacts facts_{.hostname = "db1",
                     .port = 3306,
                     .server_id = 7,
                     .uid = "uid",
                     .connection = 10,
                     .uptime = 100s,
                     .asked = MonotonicTime{} + 1h};
  ServerIdentity identity_;
};

TEST_F(ServerIdentityTest, ServerThatHasRunSinceIsUnchanged) {
  for (int i = 0; i < 3; ++i) {
    Pass(5s);
    EXPECT_EQ(identity_.Recognise(facts_), Change::kNone);
  }
  EXPECT_EQ(identity_.name(), "db1:3306 7 uid");
  EXPECT_FALSE(identity_.is_cluster());
  EXPECT_EQ(identity_.Uptime(facts_.asked + 4s), 119s);
}

TEST_F(ServerIdentityTest, AnotherServerIsAnother) {
  Pass(5s);
  for (const auto change : {+[](ServerFacts& facts) { facts.hostname = "db2"; },
                            +[](ServerFacts& facts) { facts.port = 3307; },
                            +[](ServerFacts& facts) { facts.server_id = 8; },
                            +[](ServerFacts& facts) { facts.uid = "other"; },
                            +[](ServerFacts& facts) { facts.uuid = "other"; }}) {
    change(facts_);
    EXPECT_EQ(identity_.Recognise(facts_), Change::kOther) << identity_.name();
    Pass(5s);
    EXPECT_EQ(identity_.Recognise(facts_), Change::kNone) << identity_.name();
    Pass(5s);
  }
}

TEST_F(ServerIdentityTest, RestartIsSeenByTheUptime) {
  Pass(60s);
  facts_.uptime = 59s;
  EXPECT_EQ(identity_.Recognise(facts_), Change::kInterrupted);
  Pass(5s);
  EXPECT_EQ(identity_.Recognise(facts_), Change::kNone);
}

// Whole seconds: a server that was restarted within the second of the first look shows the same
// uptime.
TEST_F(ServerIdentityTest, UptimeThatMayBeTooShortIsARestart) {
  facts_.asked += 60s;
  ++facts_.connection;
  facts_.uptime = 60s;
  EXPECT_EQ(identity_.Recognise(facts_), Change::kInterrupted);
  facts_.asked += 60s;
  ++facts_.connection;
  facts_.uptime = 61s;
  EXPECT_EQ(identity_.Recognise(facts_), Change::kNone);
}

TEST_F(ServerIdentityTest, RestartIsSeenByTheCountOfConnections) {
  Pass(5s);
  facts_.connection = 10;
  EXPECT_EQ(identity_.Recognise(facts_), Change::kInterrupted);
}

TEST_F(ServerIdentityTest, ClusterMayAlwaysHaveLess) {
  facts_.cluster = "cluster-1";
  Pass(5s);
  EXPECT_EQ(identity_.Recognise(facts_), Change::kOther);
  EXPECT_EQ(identity_.name(), "cluster-1");
  EXPECT_TRUE(identity_.is_cluster());
  EXPECT_EQ(identity_.Uptime(facts_.asked), std::nullopt);
  Pass(5s);
  facts_.hostname = "node2";
  EXPECT_EQ(identity_.Recognise(facts_), Change::kInterrupted) << "another node, the same cluster";
}

TEST_F(ServerIdentityTest, ConditionNamesConnectionAndServer) {
  EXPECT_EQ(identity_.condition(),
            "@@hostname = _utf8mb4'db1' AND @@port = 3306 AND @@server_id = 7 AND"
            " CONNECTION_ID() = 10 AND @@server_uid = _utf8mb4'uid'");
  facts_.hostname = "d'b";
  EXPECT_EQ(identity_.Recognise(facts_), Change::kOther);
  EXPECT_THAT(identity_.condition(), Not(HasSubstr("'d'b'")));
}

}  // namespace
}  // namespace idd::daemon
