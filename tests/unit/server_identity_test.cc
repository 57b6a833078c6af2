// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/server_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace idd::daemon {
namespace {

using ::testing::HasSubstr;

class ServerIdentityTest : public ::testing::Test {
 protected:
  ServerIdentityTest() { EXPECT_TRUE(identity_.Recognise(facts_)); }

  // Whether it is another one on the next connection.
  bool RecogniseNext() {
    ++facts_.connection;
    return identity_.Recognise(facts_);
  }

  ServerFacts facts_{.hostname = "db1",
                     .port = 3306,
                     .server_id = 7,
                     .uid = "uid",
                     .connection = 10,
                     .started = 1'700'000'000};
  ServerIdentity identity_;
};

TEST_F(ServerIdentityTest, ServerThatHasRunSinceIsUnchanged) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(RecogniseNext());
  EXPECT_EQ(identity_.name(), "db1:3306 7 uid 1700000000");
  EXPECT_FALSE(identity_.is_cluster());
}

TEST_F(ServerIdentityTest, AnotherServerOrAnotherStartIsAnother) {
  for (const auto change : {+[](ServerFacts& facts) { facts.hostname = "db2"; },
                            +[](ServerFacts& facts) { facts.port = 3307; },
                            +[](ServerFacts& facts) { facts.server_id = 8; },
                            +[](ServerFacts& facts) { facts.uid = "other"; },
                            +[](ServerFacts& facts) { facts.uuid = "other"; },
                            +[](ServerFacts& facts) { ++facts.started; }}) {
    const std::string before = identity_.name();
    change(facts_);
    EXPECT_TRUE(RecogniseNext()) << identity_.name();
    EXPECT_NE(identity_.name(), before);
    EXPECT_FALSE(RecogniseNext()) << identity_.name();
  }
}

TEST_F(ServerIdentityTest, NodesOfAClusterHaveItsName) {
  facts_.cluster = "cluster-1 life-1";
  identity_.Recognise(facts_);
  EXPECT_EQ(identity_.name(), "cluster-1 life-1");
  EXPECT_TRUE(identity_.is_cluster());
  facts_.hostname = "node2";
  EXPECT_TRUE(RecogniseNext()) << "another node";
  EXPECT_EQ(identity_.name(), "cluster-1 life-1");
  facts_.cluster = "cluster-1 life-2";
  RecogniseNext();
  EXPECT_EQ(identity_.name(), "cluster-1 life-2");
}

TEST_F(ServerIdentityTest, ConditionNamesConnectionAndServer) {
  EXPECT_EQ(identity_.condition(),
            "@@hostname = _utf8mb4'db1' AND @@port = 3306 AND @@server_id = 7 AND"
            " CONNECTION_ID() = 10 AND @@server_uid = _utf8mb4'uid'");
  facts_.hostname = "d'b";
  identity_.Recognise(facts_);
  EXPECT_THAT(identity_.condition(), Not(HasSubstr("'d'b'")));
}

}  // namespace
}  // namespace idd::daemon
