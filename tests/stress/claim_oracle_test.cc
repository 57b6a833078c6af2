// SPDX-License-Identifier: Apache-2.0
//
// Tests the oracle itself: each check gets logs that break it, so that its silence means something.
#include "support/claim_oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/claim_log.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using ::testing::HasSubstr;

// Two claimers that take turns: the logs of a good run.
std::vector<ClaimRecord> GoodFirst() { return {{10, 11, 1, 1}, {30, 31, 4, 10}, {50, 55, 21, 1}}; }
std::vector<ClaimRecord> GoodSecond() { return {{20, 21, 2, 2}, {40, 41, 14, 7}, {51, 54, 22, 3}}; }

std::vector<JournalLease> GoodLeases() {
  return {{"t1", "orders", "host-a", 1, 11, "exhausted", 10, 0, 0},
          {"t2", "orders", "host-a", 11, 31, "active", 14, 0, 0}};
}

std::vector<Claimer> Claimers(const std::vector<ClaimRecord>& first,
                              const std::vector<ClaimRecord>& second) {
  return {{"first", first}, {"second", second}};
}

TEST(ClaimOracle, FindsNothingInAGoodRun) {
  const auto first = GoodFirst();
  const auto second = GoodSecond();
  const auto claimers = Claimers(first, second);
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  EXPECT_EQ(Join(CheckRising(claimers)), "");
  EXPECT_EQ(Join(CheckOrder(claimers)), "");
  EXPECT_EQ(Join(CheckLeased(claimers, GoodLeases())), "");
  EXPECT_EQ(CountIds(claimers), 24U);
}

TEST(ClaimOracle, ReportsAnIdThatTwoClaimersHave) {
  const auto first = GoodFirst();
  auto second = GoodSecond();
  second[1].first = 13;  // first has [4, 14)
  EXPECT_THAT(Join(CheckUnique(Claimers(first, second))),
              AllOf(HasSubstr("id 13"), HasSubstr("first"), HasSubstr("second")));
}

TEST(ClaimOracle, ReportsAnIdThatOneClaimerHasTwice) {
  auto first = GoodFirst();
  first[2].first = 5;
  EXPECT_THAT(Join(CheckUnique(Claimers(first, {}))), HasSubstr("id 5"));
}

TEST(ClaimOracle, ReportsDuplicatesFarApartAndAtPageBorders) {
  constexpr std::uint64_t kBorder = std::uint64_t{1} << 40;
  const std::vector<ClaimRecord> first = {{1, 2, kBorder - 2, 4}};
  const std::vector<ClaimRecord> second = {{3, 4, 7, 1}, {5, 6, kBorder + 1, 1}};
  EXPECT_THAT(Join(CheckUnique(Claimers(first, second))), HasSubstr(std::to_string(kBorder + 1)));
}

TEST(ClaimOracle, CountsDuplicatesBeyondTheFirstTen) {
  const std::vector<ClaimRecord> first = {{1, 2, 100, 50}};
  const std::vector<ClaimRecord> second = {{3, 4, 100, 50}};
  EXPECT_THAT(Join(CheckUnique(Claimers(first, second))), HasSubstr("50 in all"));
}

TEST(ClaimOracle, ReportsAClaimerWhoseIdsFall) {
  auto first = GoodFirst();
  std::swap(first[0].first, first[2].first);
  EXPECT_THAT(Join(CheckRising(Claimers(first, {}))), HasSubstr("not rising"));
}

TEST(ClaimOracle, ReportsAClockThatRanBack) {
  auto first = GoodFirst();
  first[1].before_ns = 5;
  EXPECT_THAT(Join(CheckRising(Claimers(first, {}))), HasSubstr("clock"));
}

TEST(ClaimOracle, ReportsALowerIdOfAClaimThatBeganLater) {
  const std::vector<ClaimRecord> first = {{10, 11, 5, 1}};
  const std::vector<ClaimRecord> second = {{12, 13, 4, 1}};
  EXPECT_THAT(Join(CheckOrder(Claimers(first, second))), HasSubstr("out of order"));
}

TEST(ClaimOracle, ReportsALowerIdAfterManyOtherClaims) {
  std::vector<ClaimRecord> first;
  for (std::uint64_t i = 0; i < 1000; ++i) first.push_back({i * 10, i * 10 + 1, 100 + i, 1});
  const std::vector<ClaimRecord> second = {{5000, 20000, 50, 1}};
  EXPECT_THAT(Join(CheckOrder(Claimers(first, second))), HasSubstr("second"));
}

TEST(ClaimOracle, AllowsAnyOrderOfClaimsThatOverlap) {
  const std::vector<ClaimRecord> first = {{10, 20, 5, 1}};
  const std::vector<ClaimRecord> second = {{20, 30, 4, 1}};
  EXPECT_EQ(Join(CheckOrder(Claimers(first, second))), "");
}

TEST(ClaimOracle, LooksAtTheWholeBatchForOrder) {
  const std::vector<ClaimRecord> first = {{10, 11, 5, 10}};
  const std::vector<ClaimRecord> second = {{12, 13, 14, 1}};
  EXPECT_THAT(Join(CheckOrder(Claimers(first, second))), HasSubstr("out of order"));
}

TEST(ClaimOracle, SkipsFailedCalls) {
  const std::vector<ClaimRecord> first = {{10, 11, 5, 1}, {12, 13, 5, 0}, {14, 15, 6, 1}};
  const auto claimers = Claimers(first, {});
  EXPECT_EQ(Join(CheckUnique(claimers)) + Join(CheckRising(claimers)) + Join(CheckOrder(claimers)),
            "");
  EXPECT_EQ(CountIds(claimers), 2U);
}

TEST(ClaimOracle, ReportsAnIdOutsideEveryLease) {
  const auto first = GoodFirst();
  auto second = GoodSecond();
  second[2] = {51, 54, 29, 3};  // the last lease ends at 31
  EXPECT_THAT(Join(CheckLeased(Claimers(first, second), GoodLeases())), HasSubstr("[29, 32)"));
  const std::vector<ClaimRecord> below = {{1, 2, 0, 1}};
  EXPECT_THAT(Join(CheckLeased(Claimers(below, {}), GoodLeases())), HasSubstr("[0, 1)"));
  EXPECT_THAT(Join(CheckLeased(Claimers(below, {}), {})), HasSubstr("[0, 1)"));
}

TEST(ClaimOracle, ReportsAnIdInAGapBetweenLeases) {
  const auto first = GoodFirst();
  auto leases = GoodLeases();
  leases[1].base = 13;
  EXPECT_THAT(Join(CheckLeased(Claimers(first, {}), leases)), HasSubstr("[4, 14)"));
}

TEST(ClaimOracle, ReportsAnIdOfATailThatWasGivenBack) {
  const std::vector<ClaimRecord> first = {{1, 2, 1, 5}};
  std::vector<JournalLease> leases = {{"t1", "orders", "host-a", 1, 11, "returned", 5, 6, 0}};
  EXPECT_EQ(Join(CheckLeased(Claimers(first, {}), leases)), "");
  leases[0].claimed = 4;
  EXPECT_THAT(Join(CheckLeased(Claimers(first, {}), leases)), HasSubstr("[1, 6)"));
}

TEST(ClaimOracle, ReportsLeasesThatGrantTheSameIds) {
  auto leases = GoodLeases();
  leases[1].base = 10;
  EXPECT_THAT(Join(CheckLeased({}, leases)), HasSubstr("grant the same ids"));
}

TEST(ClaimOracle, ReportsAnAuditThatDoesNotFitTheLogs) {
  const AuditRow good{true, 100, 60, 30, 6, 4};
  EXPECT_EQ(Join(CheckAudit(good, 60, 0)), "");
  EXPECT_EQ(Join(CheckAudit(good, 58, 2)), "");
  EXPECT_NE(Join(CheckAudit(good, 61, 100)), "");  // an id that the journal does not know
  EXPECT_NE(Join(CheckAudit(good, 57, 2)), "");
  AuditRow bad = good;
  bad.ok = false;
  EXPECT_NE(Join(CheckAudit(bad, 60, 0)), "");
  bad = good;
  bad.abandoned = 5;
  EXPECT_NE(Join(CheckAudit(bad, 60, 0)), "");
}

TEST(ClaimOracle, RefusesDocumentsWithoutTheirFields) {
  EXPECT_THROW(
      (void)ParseLeases(nlohmann::json::parse(R"({"leases":[{"tag":"orders"}]})"), "orders"),
      HarnessError);
  EXPECT_THROW((void)ParseLeases(nlohmann::json::parse(R"({})"), "orders"), HarnessError);
  EXPECT_THROW((void)ParseAudit(nlohmann::json::parse(R"({"ok":true,"tags":[]})"), "orders"),
               HarnessError);
}

TEST(ClaimLog, KeepsCompleteRecordsForAnotherMapping) {
  const TempDir dir;
  ClaimLog written = ClaimLog::Create(dir.File("log"), 2);
  const ClaimLog read = ClaimLog::Open(dir.File("log"));
  written.Append({1, 2, 10, 3});
  EXPECT_EQ(read.records().size(), 1U);
  EXPECT_EQ(read.header().last_id.load(), 12U);
  written.Append({3, 4, 5, 0});
  EXPECT_TRUE(written.Full());
  EXPECT_EQ(read.header().ids.load(), 3U);
  EXPECT_EQ(read.header().errors.load(), 1U);
}

}  // namespace
}  // namespace idd::harness
