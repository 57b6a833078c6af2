// SPDX-License-Identifier: Apache-2.0
//
// Which user may do what with which tag.
#include "access/access_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "access/ring_holders.h"

namespace idd::daemon {
namespace {

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;
constexpr uid_t kService = 990;
constexpr gid_t kServiceGroup = 991;
constexpr gid_t kBilling = 2000;

Peer User(uid_t uid, std::vector<gid_t> groups = {}) {
  return {.pid = 1, .uid = uid, .gid = uid, .groups = std::move(groups)};
}

AccessRule Rule(std::vector<std::string> tags, uid_t user, Access access) {
  return {.tags = std::move(tags),
          .users = {user},
          .groups = {},
          .access = access,
          .ids_per_s = std::nullopt};
}

AccessRules Rules(std::vector<AccessRule> rules) {
  return AccessRules(std::move(rules), {.daemon_uid = kService, .shm_groups = {kServiceGroup}});
}

TEST(PatternTest, StarsAndQuestionMarksMatchWhatTheySay) {
  EXPECT_TRUE(MatchesPattern("orders", "orders"));
  EXPECT_FALSE(MatchesPattern("orders", "orders2"));
  EXPECT_FALSE(MatchesPattern("orders2", "orders"));
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("**", "x"));
  EXPECT_FALSE(MatchesPattern("?", ""));
  EXPECT_TRUE(MatchesPattern("billing.*", "billing."));
  EXPECT_FALSE(MatchesPattern("billing.*", "billing"));
  EXPECT_TRUE(MatchesPattern("*.eu.*", "a.b.eu.c.eu"));
  EXPECT_FALSE(MatchesPattern("*.eu", "a.eu.b"));
  EXPECT_TRUE(MatchesPattern("a*b?c*", "axxbxbyc"));
  EXPECT_FALSE(MatchesPattern("", "x"));
  EXPECT_TRUE(MatchesPattern("", ""));
  EXPECT_FALSE(MatchesPattern("[ab]", "a")) << "brackets must match literally";
  EXPECT_TRUE(MatchesPattern("[ab]", "[ab]"));
  EXPECT_FALSE(MatchesPattern("Orders", "orders"));
}

// Regression: a rule for one user took the tag from all members of the group, and nothing said so.
TEST(TagsWithoutGroupsTest, NamesTheTagsThatRulesTakeFromTheGroup) {
  const AccessDefaults defaults{.daemon_uid = kService, .shm_groups = {kServiceGroup}};
  EXPECT_EQ(TagsWithoutGroups({}, defaults), "");
  const AccessRule of_alice = Rule({"orders", "billing.*"}, kAlice, Access::kShm);
  EXPECT_EQ(TagsWithoutGroups({of_alice}, defaults), "'orders', 'billing.*'");
  AccessRule of_group = Rule({"orders"}, kBob, Access::kSocket);
  of_group.groups = {kServiceGroup};
  EXPECT_EQ(TagsWithoutGroups({of_alice, of_group}, defaults), "'billing.*'");
  of_group.tags = {"*"};
  EXPECT_EQ(TagsWithoutGroups({of_alice, of_group}, defaults), "");
  of_group.groups = {kBilling};
  EXPECT_EQ(TagsWithoutGroups({of_group, of_alice}, defaults), "'*', 'orders', 'billing.*'");
  std::vector<AccessRule> many;
  for (int i = 0; i < 12; ++i) many.push_back(Rule({"t" + std::to_string(i)}, kBob, Access::kShm));
  EXPECT_NE(TagsWithoutGroups(many, defaults).find("'t9' and 2 more"), std::string::npos);
}

TEST(PatternTest, QuestionMarkIsOneCharacterOfUtf8AndNoHalf) {
  EXPECT_TRUE(MatchesPattern("gr?n", "gr\xc3\xbcn"));
  EXPECT_FALSE(MatchesPattern("gr??n", "gr\xc3\xbcn"));
  EXPECT_TRUE(MatchesPattern("*\xc3\xbc*", "gr\xc3\xbcn"));
  EXPECT_TRUE(MatchesPattern("?", "\xc3")) << "a truncated character counts as one";
}

TEST(PatternTest, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 64; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesPattern(pattern + "b", std::string(128, 'a')));
}

TEST(AccessRulesTest, WithoutARuleOnlyTheGroupClaims) {
  const AccessRules rules = Rules({});
  EXPECT_EQ(rules.Of(User(kAlice, {5, kServiceGroup}), "orders").access, Access::kShm);
  Peer primary = User(kAlice);
  primary.gid = kServiceGroup;
  EXPECT_EQ(rules.Of(primary, "orders").access, Access::kShm);
  EXPECT_EQ(rules.Of(User(kAlice), "orders").access, Access::kNone);
  EXPECT_FALSE(rules.HasAnyRight(User(kAlice)));
  EXPECT_TRUE(rules.HasAnyRight(primary));
  EXPECT_FALSE(rules.AdministersAll(primary));
}

TEST(AccessRulesTest, RootAndTheDaemonsUserAdministerWhateverTheRulesSay) {
  const AccessRules rules = Rules({Rule({"*"}, kAlice, Access::kSocket)});
  for (const uid_t uid : {uid_t{0}, kService}) {
    EXPECT_EQ(rules.Of(User(uid), "orders").access, Access::kAdmin);
    EXPECT_TRUE(rules.AdministersAll(User(uid)));
    EXPECT_TRUE(rules.IsOperator(User(uid)));
  }
  EXPECT_FALSE(rules.IsOperator(User(kAlice)));
}

TEST(AccessRulesTest, TagThatARuleNamesIsGovernedByRulesAlone) {
  const AccessRules rules = Rules({Rule({"orders", "billing.*"}, kAlice, Access::kShm)});
  const Peer member = User(kBob, {kServiceGroup});
  EXPECT_EQ(rules.Of(User(kAlice), "billing.eu").access, Access::kShm);
  EXPECT_EQ(rules.Of(member, "orders").access, Access::kNone);
  EXPECT_EQ(rules.Of(member, "users").access, Access::kShm);
  EXPECT_EQ(rules.Of(User(kAlice), "users").access, Access::kNone);
  EXPECT_TRUE(rules.HasAnyRight(member));
}

TEST(AccessRulesTest, RuleForEveryTagTakesTheGroupsDefault) {
  const AccessRules rules = Rules({Rule({"**"}, kAlice, Access::kAdmin)});
  EXPECT_FALSE(rules.HasAnyRight(User(kBob, {kServiceGroup})));
  EXPECT_TRUE(rules.AdministersAll(User(kAlice)));
  EXPECT_FALSE(Rules({Rule({"*s"}, kAlice, Access::kAdmin)}).AdministersAll(User(kAlice)));
  EXPECT_FALSE(Rules({Rule({"*"}, kAlice, Access::kShm)}).AdministersAll(User(kAlice)));
}

TEST(AccessRulesTest, HighestOfTheRulesThatMatchCounts) {
  AccessRule group = Rule({"orders"}, kBob, Access::kAdmin);
  group.users.clear();
  group.groups = {kBilling};
  const AccessRules rules =
      Rules({Rule({"*"}, kAlice, Access::kSocket), group, Rule({"ord*"}, kAlice, Access::kShm)});
  EXPECT_EQ(rules.Of(User(kAlice), "orders").access, Access::kShm);
  EXPECT_EQ(rules.Of(User(kAlice, {kBilling}), "orders").access, Access::kAdmin);
  EXPECT_EQ(rules.Of(User(kAlice), "users").access, Access::kSocket);
  EXPECT_EQ(rules.Of(User(kBob), "orders").access, Access::kNone);
}

TEST(AccessRulesTest, LoosestLimitOfTheHighestAccessCounts) {
  AccessRule slow = Rule({"*"}, kAlice, Access::kSocket);
  slow.ids_per_s = 10;
  AccessRule faster = Rule({"o*"}, kAlice, Access::kSocket);
  faster.ids_per_s = 50;
  const auto of = [](std::vector<AccessRule> rules) {
    return Rules(std::move(rules)).Of(User(kAlice), "orders");
  };
  EXPECT_EQ(of({slow}).ids_per_s, 10U);
  EXPECT_EQ(of({faster, slow}).ids_per_s, 50U);
  EXPECT_EQ(of({slow, Rule({"*"}, kAlice, Access::kSocket)}).ids_per_s, std::nullopt);
  EXPECT_EQ(of({slow, Rule({"*"}, kAlice, Access::kShm)}).ids_per_s, std::nullopt);
  EXPECT_EQ(of({slow, Rule({"*"}, kAlice, Access::kShm)}).access, Access::kShm);
}

TEST(PeerRightsTest, DenialSaysWhoAndWhatIsMissing) {
  const auto rules =
      std::make_shared<const AccessRules>(Rules({Rule({"orders"}, kAlice, Access::kShm)}));
  const PeerRights rights(rules, User(kAlice, {7, 8}));
  EXPECT_TRUE(rights.Require(Access::kSocket, "orders").ok());
  const Status denied = rights.Require(Access::kAdmin, "orders");
  EXPECT_EQ(denied.code(), Code::kDenied);
  for (const char* word : {"uid 1001", "groups 7 8", "'orders'", "admin", "shm", "[[access]]"}) {
    EXPECT_NE(denied.message().find(word), std::string::npos) << word << denied.message();
  }
  EXPECT_FALSE(rights.MaySee("users"));
  EXPECT_EQ(rights.RequireAll().code(), Code::kDenied);
  const Status long_name = rights.Require(Access::kSocket, std::string(100'000, 'x'));
  EXPECT_LT(long_name.message().size(), 1000U);
}

class RingHoldersTest : public ::testing::Test {
 protected:
  static std::vector<std::string> Names(const std::vector<RingHolders::Ring>& rings) {
    std::vector<std::string> names;
    names.reserve(rings.size());
    for (const auto& ring : rings) names.push_back(ring.tag + std::to_string(ring.ring_id));
    return names;
  }
  using Rings = std::vector<std::string>;
  RingHolders holders_;
};

TEST_F(RingHoldersTest, RingIsToBeWithdrawnWhileAUserWithoutAccessHasIt) {
  holders_.Add({.tag = "orders", .ring_id = 1}, User(kAlice));
  holders_.Add({.tag = "orders", .ring_id = 1}, User(kBob));
  holders_.Add({.tag = "users", .ring_id = 2}, User(kAlice));
  const AccessRules both =
      Rules({Rule({"*"}, kAlice, Access::kShm), Rule({"*"}, kBob, Access::kShm)});
  EXPECT_EQ(Names(holders_.ToWithdraw(both)), Rings());
  const AccessRules alice =
      Rules({Rule({"*"}, kAlice, Access::kAdmin), Rule({"*"}, kBob, Access::kSocket)});
  EXPECT_EQ(Names(holders_.ToWithdraw(alice)), Rings{"orders1"});
  holders_.Forget({.tag = "orders", .ring_id = 9});
  EXPECT_EQ(Names(holders_.ToWithdraw(alice)), Rings{"orders1"}) << "another ring";
  holders_.Forget({.tag = "orders", .ring_id = 1});
  EXPECT_EQ(Names(holders_.ToWithdraw(alice)), Rings());
}

TEST_F(RingHoldersTest, NextRingOfATagHasNoneOfTheLastOnesHolders) {
  holders_.Add({.tag = "orders", .ring_id = 1}, User(kBob));
  holders_.Add({.tag = "orders", .ring_id = 2}, User(kAlice));
  EXPECT_EQ(Names(holders_.ToWithdraw(Rules({Rule({"*"}, kAlice, Access::kShm)}))), Rings());
}

TEST_F(RingHoldersTest, RingWithTooManyHoldersToRememberIsToBeWithdrawn) {
  for (uid_t uid = 1; uid <= 64; ++uid) holders_.Add({.tag = "t", .ring_id = 1}, User(0, {uid}));
  const AccessRules rules = Rules({});
  EXPECT_EQ(Names(holders_.ToWithdraw(rules)), Rings());
  holders_.Add({.tag = "t", .ring_id = 1}, User(0, {1}));
  EXPECT_EQ(Names(holders_.ToWithdraw(rules)), Rings()) << "known already";
  holders_.Add({.tag = "t", .ring_id = 1}, User(0, {65}));
  EXPECT_EQ(Names(holders_.ToWithdraw(rules)), Rings{"t1"});
}

}  // namespace
}  // namespace idd::daemon
