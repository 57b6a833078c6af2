// SPDX-License-Identifier: Apache-2.0
#include "store/term.h"

#include <gtest/gtest.h>

#include <string>

#include "store/mysql/host_row.h"

namespace idd::daemon {
namespace {

const Term kTerm = {.number = 17, .witness = "host-a.1f2e3d4c"};

WitnessList ListOf(std::uint64_t version, const Term& asked_in) {
  return {
      .version = version, .asked_in = asked_in, .names = {"host-a.1f2e3d4c", "host-b.5a6b7c8d"}};
}

TEST(TermTest, IsOrderedByNumberAndThenByWitness) {
  EXPECT_LT(Term(), kTerm);
  EXPECT_LT(kTerm, (Term{.number = 18, .witness = "a"}));
  EXPECT_LT(kTerm, (Term{.number = 17, .witness = "host-b.1f2e3d4c"}));
  EXPECT_EQ(kTerm, (Term{.number = 17, .witness = "host-a.1f2e3d4c"}));
}

TEST(TermTest, TextIsReadBack) {
  EXPECT_EQ(kTerm.Text(), "17 host-a.1f2e3d4c");
  EXPECT_EQ(ParseTerm(kTerm.Text()), kTerm);
  EXPECT_EQ(Term().Text(), "");
  EXPECT_EQ(ParseTerm(""), Term());
  const Term highest = {.number = ~std::uint64_t{0}, .witness = "h"};
  EXPECT_EQ(ParseTerm(highest.Text()), highest);
}

TEST(TermTest, MalformedTextIsNoTerm) {
  for (const char* text : {"17", "17 ", " a", "0 a", "-1 a", "+1 a", "1x a", "17 a b", "17  a",
                           "18446744073709551616 a", "a 17", " "}) {
    EXPECT_FALSE(ParseTerm(text).has_value()) << "'" << text << "'";
  }
}

TEST(WitnessListTest, IsNewerByVersionAndThenByTheTermOfTheRequest) {
  const Term later = {.number = 18, .witness = "a"};
  EXPECT_TRUE(ListOf(2, kTerm).IsNewerThan(ListOf(1, later)));
  EXPECT_FALSE(ListOf(1, later).IsNewerThan(ListOf(2, kTerm)));
  EXPECT_TRUE(ListOf(2, later).IsNewerThan(ListOf(2, kTerm)));
  EXPECT_FALSE(ListOf(2, kTerm).IsNewerThan(ListOf(2, kTerm)));
  EXPECT_TRUE(ListOf(1, kTerm).IsNewerThan(WitnessList()));
}

TEST(WitnessListTest, MajorityIsMoreThanHalf) {
  WitnessList list = {.version = 1, .asked_in = kTerm, .names = {"a"}};
  EXPECT_EQ(list.majority(), 1U);
  list.names = {"a", "b", "c"};
  EXPECT_EQ(list.majority(), 2U);
  list.names = {"a", "b", "c", "d", "e"};
  EXPECT_EQ(list.majority(), 3U);
  EXPECT_TRUE(list.Has("e"));
  EXPECT_FALSE(list.Has("E"));
}

TEST(WitnessListTest, TextIsReadBack) {
  const WitnessList list = ListOf(3, kTerm);
  EXPECT_EQ(list.Text(), "3 17 host-a.1f2e3d4c host-a.1f2e3d4c host-b.5a6b7c8d");
  EXPECT_EQ(ParseWitnessList(list.Text()), list);
  EXPECT_EQ(WitnessList().Text(), "");
  EXPECT_EQ(ParseWitnessList(""), WitnessList());
}

TEST(WitnessListTest, MalformedTextIsNoList) {
  EXPECT_TRUE(ParseWitnessList("3 17 a a").has_value());
  EXPECT_TRUE(ParseWitnessList("3 17 a a b c d e").has_value());
  for (const char* text :
       {"3", "3 17", "3 17 a", "0 17 a a", "3 0 a a", "x 17 a a", "3 x a a", "3 17 a b a",
        "3 17 a a a", "3 17 a a  b", "3 17  a", "3 17 a a b c d e f", " 3 17 a a"}) {
    EXPECT_FALSE(ParseWitnessList(text).has_value()) << "'" << text << "'";
  }
}

TEST(WitnessNameTest, IsTheHostWithItsDisk) {
  const std::string name = WitnessName("db.example.org", "1f2e3d4c");
  EXPECT_EQ(name, "db.example.org.1f2e3d4c");
  EXPECT_EQ(HostOfWitness(name), "db.example.org");
}

TEST(HostRunTest, LaterRunHasAHigherNumber) {
  const std::string first = MakeRun(9);
  const std::string second = MakeRun(10);
  EXPECT_EQ(first.size(), 32U);
  EXPECT_EQ(first.substr(0, kRunNumberSize), "0000000000000009");
  EXPECT_EQ(second.substr(0, kRunNumberSize), "000000000000000a");
  EXPECT_TRUE(IsOlderRun(first, second));
  EXPECT_FALSE(IsOlderRun(second, first));
  EXPECT_FALSE(IsOlderRun(first, MakeRun(9)));
  EXPECT_NE(first, MakeRun(9)) << "the rest is random";
}

}  // namespace
}  // namespace idd::daemon
