// SPDX-License-Identifier: Apache-2.0
//
// One case for each kind of finding, and one for each state that is no finding.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "admin/operations/ledger_audit.h"

namespace idd::daemon {
namespace {

constexpr const char* kThisHost = "here";

LeaseRecord JournalRow(const std::string& token, shm::IdRange ids, LeaseState state,
                       const std::string& host = kThisHost) {
  LeaseRecord lease;
  lease.token = token;
  lease.tag = "orders";
  lease.host = host;
  lease.ids = ids;
  lease.state = state;
  return lease;
}
LeaseRecord Closed(const std::string& token, shm::IdRange ids, LeaseState state,
                   std::uint64_t claimed, std::uint64_t returned, std::uint64_t abandoned) {
  LeaseRecord lease = JournalRow(token, ids, state);
  lease.claimed = claimed;
  lease.returned = returned;
  lease.abandoned = abandoned;
  return lease;
}

class AuditTest : public ::testing::Test {
 protected:
  AuditTest() {
    input_.host = kThisHost;
    TagRecord tag;
    tag.tag = "orders";
    tag.next_id = 1001;
    tag.step = 100;
    input_.ledger.tags = {tag};
  }
  void AddLive(const std::string& token, LeaseState state, std::uint64_t claimed) {
    input_.live[token] = {.token = token, .tag = "orders", .state = state, .claimed = claimed};
  }
  // The audit of a ledger whose sums are those of its journal.
  [[nodiscard]] AuditReport Audit() const {
    AuditInput input = input_;
    input.ledger.sums = AddUp(input.ledger.journal);
    return RunAudit(input);
  }
  // The audit has exactly one finding, which contains all `words`.
  void ExpectFinding(const std::vector<std::string>& words) const {
    const AuditReport report = Audit();
    EXPECT_FALSE(report.ok());
    ASSERT_EQ(report.findings.size(), 1U) << ::testing::PrintToString(report.findings);
    for (const std::string& word : words) {
      EXPECT_NE(report.findings[0].find(word), std::string::npos) << report.findings[0];
    }
  }
  void ExpectNoFinding() const {
    const AuditReport report = Audit();
    EXPECT_TRUE(report.ok()) << ::testing::PrintToString(report.findings);
    for (const auto& [tag, account] : report.tags) EXPECT_TRUE(account.AddsUp()) << tag;
  }

  AuditInput input_;
};

TEST_F(AuditTest, EmptyJournalAddsUpAndListsTheTag) {
  ExpectNoFinding();
  const AuditReport report = Audit();
  ASSERT_TRUE(report.tags.contains("orders"));
  EXPECT_EQ(report.tags.at("orders").leased, 0U);
}

TEST_F(AuditTest, EveryStateOfALeaseGoesToItsPlace) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kExhausted, 100, 0, 0),
                           Closed("b", {101, 201}, LeaseState::kReturned, 40, 60, 0),
                           Closed("c", {201, 301}, LeaseState::kAbandoned, 10, 0, 90),
                           JournalRow("d", {301, 401}, LeaseState::kActive),
                           JournalRow("e", {401, 501}, LeaseState::kActive)};
  AddLive("d", LeaseState::kActive, 25);
  AddLive("e", LeaseState::kAbandoned, 30);
  ExpectNoFinding();
  const TagAccount account = Audit().tags.at("orders");
  EXPECT_EQ(account.leased, 500U);
  EXPECT_EQ(account.claimed, 100U + 40U + 10U + 25U + 30U);
  EXPECT_EQ(account.available, 75U);
  EXPECT_EQ(account.returned, 60U);
  EXPECT_EQ(account.abandoned, 90U + 70U) << "a drained lease has nothing left to claim";
}

TEST_F(AuditTest, LeasesOfOtherHostsAreNotAccounted) {
  input_.ledger.journal = {JournalRow("a", {1, 101}, LeaseState::kActive, "elsewhere")};
  ExpectNoFinding();
  EXPECT_EQ(Audit().tags.at("orders").leased, 0U);
}

TEST_F(AuditTest, TagsAreAccountedApart) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kExhausted, 100, 0, 0),
                           Closed("b", {1, 51}, LeaseState::kExhausted, 50, 0, 0)};
  input_.ledger.journal[1].tag = "users";
  ExpectNoFinding();
  EXPECT_EQ(Audit().tags.at("orders").leased, 100U);
  EXPECT_EQ(Audit().tags.at("users").leased, 50U);
}

TEST_F(AuditTest, ClosedLeaseWhosePartsAreNotItsSizeIsFound) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kReturned, 40, 50, 0)};
  const AuditReport report = Audit();
  ASSERT_EQ(report.findings.size(), 2U) << "the lease names the tag";
  EXPECT_NE(report.findings[0].find("lease a"), std::string::npos);
  EXPECT_NE(report.findings[0].find("parts"), std::string::npos);
  EXPECT_NE(report.findings[1].find("tag 'orders'"), std::string::npos);
  EXPECT_NE(report.findings[1].find("sum"), std::string::npos);
}

TEST_F(AuditTest, ActiveLeaseThatNoRingHasIsFound) {
  input_.ledger.journal = {JournalRow("a", {1, 101}, LeaseState::kActive)};
  ExpectFinding({"lease a", "in no ring"});
  EXPECT_EQ(Audit().tags.at("orders").available, 100U);
}

TEST_F(AuditTest, SegmentThatTheJournalLacksIsFound) {
  AddLive("ghost", LeaseState::kActive, 5);
  ExpectFinding({"ghost", "orders", "journal does not have"});
}

TEST_F(AuditTest, TwoLeasesThatShareIdsAreFound) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kExhausted, 100, 0, 0),
                           Closed("b", {100, 201}, LeaseState::kExhausted, 101, 0, 0)};
  ExpectFinding({"lease a", "lease b", "shares ids"});
}

TEST_F(AuditTest, LeasesOfTwoHostsThatShareIdsAreFound) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kExhausted, 100, 0, 0),
                           JournalRow("b", {50, 60}, LeaseState::kActive, "elsewhere")};
  ExpectFinding({"host here", "host elsewhere", "shares ids"});
}

TEST_F(AuditTest, LeaseInsideAWideOneIsFoundThoughAnotherLiesBetween) {
  input_.ledger.journal = {Closed("wide", {1, 901}, LeaseState::kExhausted, 900, 0, 0),
                           Closed("small", {10, 11}, LeaseState::kExhausted, 1, 0, 0),
                           Closed("late", {500, 600}, LeaseState::kExhausted, 100, 0, 0)};
  const AuditReport report = Audit();
  ASSERT_EQ(report.findings.size(), 2U) << ::testing::PrintToString(report.findings);
  for (const std::string& finding : report.findings) {
    EXPECT_NE(finding.find("lease wide"), std::string::npos) << finding;
  }
}

TEST_F(AuditTest, NeighboursShareNothing) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kExhausted, 100, 0, 0),
                           Closed("b", {101, 201}, LeaseState::kExhausted, 100, 0, 0)};
  ExpectNoFinding();
}

TEST_F(AuditTest, SameIdsOfTwoTagsShareNothing) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kExhausted, 100, 0, 0),
                           Closed("b", {1, 101}, LeaseState::kExhausted, 100, 0, 0)};
  input_.ledger.journal[1].tag = "users";
  ExpectNoFinding();
}

TEST_F(AuditTest, TailThatWasGivenBackMayBeLeasedAgain) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kReturned, 40, 60, 0),
                           Closed("b", {41, 141}, LeaseState::kExhausted, 100, 0, 0)};
  ExpectNoFinding();
}

TEST_F(AuditTest, WhatWasKeptOfAReturnedLeaseMayNotBeLeasedAgain) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kReturned, 40, 60, 0),
                           Closed("b", {40, 140}, LeaseState::kExhausted, 100, 0, 0)};
  ExpectFinding({"lease a", "lease b"});
}

TEST_F(AuditTest, ListedRangeThatAHostKeptIsFound) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kExhausted, 100, 0, 0)};
  input_.ledger.returned = {{.tag = "orders", .host = "elsewhere", .ids = {90, 120}}};
  ExpectFinding({"listed as returned", "lease a"});
}

TEST_F(AuditTest, ListedRangeThatItsLeaseGaveBackIsNoFinding) {
  input_.ledger.journal = {Closed("a", {1, 101}, LeaseState::kReturned, 40, 60, 0)};
  input_.ledger.returned = {{.tag = "orders", .host = kThisHost, .ids = {41, 101}}};
  ExpectNoFinding();
}

TEST_F(AuditTest, RangeListedTwiceIsFound) {
  input_.ledger.returned = {{.tag = "orders", .host = kThisHost, .ids = {41, 101}},
                            {.tag = "orders", .host = "elsewhere", .ids = {60, 70}}};
  ExpectFinding({"listed as returned", "shares ids"});
}

TEST_F(AuditTest, LeaseAboveMaxIdIsFound) {
  input_.ledger.journal = {Closed("a", {901, 1101}, LeaseState::kExhausted, 200, 0, 0)};
  ExpectFinding({"lease a", "max_id 1001", "backwards"});
}

TEST_F(AuditTest, ReturnedTailAboveMaxIdIsNoFinding) {
  input_.ledger.journal = {Closed("a", {901, 1101}, LeaseState::kReturned, 100, 100, 0)};
  ExpectNoFinding();
}

TEST_F(AuditTest, LeaseOfADeletedTagIsHeldAgainstNoMaxId) {
  input_.ledger.tags.clear();
  input_.ledger.journal = {Closed("a", {901, 1101}, LeaseState::kExhausted, 200, 0, 0)};
  ExpectNoFinding();
}

TEST_F(AuditTest, AnotherHostsActiveLeaseIsAvailableInFull) {
  input_.scope = AuditScope::kAllHosts;
  input_.ledger.journal = {JournalRow("a", {1, 101}, LeaseState::kActive),
                           JournalRow("b", {101, 301}, LeaseState::kActive, "elsewhere"),
                           Closed("c", {301, 401}, LeaseState::kReturned, 40, 60, 0)};
  input_.ledger.journal[2].host = "elsewhere";
  AddLive("a", LeaseState::kActive, 25);
  ExpectNoFinding();
  const TagAccount account = Audit().tags.at("orders");
  EXPECT_EQ(account.leased, 400U);
  EXPECT_EQ(account.claimed, 65U);
  EXPECT_EQ(account.available, 275U);
  EXPECT_EQ(account.returned, 60U);
  EXPECT_EQ(account.abandoned, 0U);
}

TEST_F(AuditTest, LiveCountBeyondTheLeaseDoesNotOverflow) {
  input_.ledger.journal = {JournalRow("a", {1, 101}, LeaseState::kActive)};
  AddLive("a", LeaseState::kActive, ~std::uint64_t{0});
  const TagAccount account = Audit().tags.at("orders");
  EXPECT_EQ(account.claimed, 100U);
  EXPECT_EQ(account.available, 0U);
}

TEST_F(AuditTest, LedgerMayLackWhatWasLeasedAfterItWasRead) {
  input_.ledger.journal = {};
  AddLive("a", LeaseState::kActive, 0);
  ExpectFinding({"lease a", "which the journal does not have"});
  input_.newer = {"a"};
  ExpectNoFinding();
}

}  // namespace
}  // namespace idd::daemon
