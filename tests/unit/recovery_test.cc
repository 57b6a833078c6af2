// SPDX-License-Identifier: Apache-2.0
#include "leasing/recovery.h"

#include <gtest/gtest.h>

#include <string>

#include "support/fake_marks.h"
#include "support/fake_store.h"

namespace idd::daemon {
namespace {

constexpr const char* kFirst = "0123456789abcdef";
constexpr const char* kOther = "fedcba9876543210";

class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() { Open(); }

  void Open() { ASSERT_TRUE(store_.Open().ok()); }
  Status RunRecovery() { return Recover(store_, marks_, session_); }
  void RecoverFirst() {
    const Status status = RunRecovery();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void Replace(const std::string& incarnation) {
    store_.Replace(incarnation);
    Open();
  }
  [[nodiscard]] bool InGrace() const { return MonotonicClock::now() < session_.lease_from; }

  FakeStore store_;
  FakeMarks marks_;
  StoreSession session_;
};

TEST_F(RecoveryTest, FirstStartRemembersTheDataSetAndWaitsForNoHost) {
  RecoverFirst();
  EXPECT_EQ(marks_.Incarnation().value(), kFirst);
  EXPECT_EQ(session_.data_set, 1U);
  EXPECT_FALSE(InGrace());
}

TEST_F(RecoveryTest, SameStoreOpenedAgainIsTheSameDataSet) {
  RecoverFirst();
  Open();
  RecoverFirst();
  EXPECT_EQ(session_.data_set, 1U);
  EXPECT_FALSE(InGrace());
}

TEST_F(RecoveryTest, OtherDataSetGetsTheMarksBeforeItIsRemembered) {
  store_.AddTag("orders", 10);
  ASSERT_TRUE(marks_.SetIncarnation(kOther).ok());
  ASSERT_TRUE(marks_.Raise("orders", 501).ok());
  store_.script.Fail("Reconcile", {Code::kUnavailable, "gone"});
  EXPECT_EQ(RunRecovery().code(), Code::kUnavailable);
  EXPECT_EQ(marks_.Incarnation().value(), kOther);
  RecoverFirst();
  EXPECT_EQ(marks_.Incarnation().value(), kFirst);
  EXPECT_EQ(store_.next_id("orders"), 501U);
  EXPECT_TRUE(InGrace());
}

TEST_F(RecoveryTest, IdentityIsComparedAtEveryOpening) {
  store_.AddTag("orders", 10);
  RecoverFirst();
  ASSERT_TRUE(marks_.Raise("orders", 501).ok());
  Replace(kOther);
  RecoverFirst();
  EXPECT_EQ(marks_.Incarnation().value(), kOther);
  EXPECT_EQ(store_.next_id("orders"), 501U);
  EXPECT_EQ(session_.data_set, 2U);
  EXPECT_TRUE(InGrace());
}

TEST_F(RecoveryTest, OtherFileOfTheSameDataSetMayBeAnOlderCopy) {
  RecoverFirst();
  Replace(kFirst);
  RecoverFirst();
  EXPECT_EQ(session_.data_set, 2U);
  EXPECT_TRUE(InGrace());
}

TEST_F(RecoveryTest, HeldLeasesStayActiveAndAreJournalledWhereTheyAreMissing) {
  store_.AddTag("orders", 10);
  RecoverFirst();
  LeaseRequest request{.tag = "orders", .count = 10, .token = std::string(32, 'a')};
  session_.held[request.token] = store_.TakeLease(request).value();
  request.token = std::string(32, 'b');
  ASSERT_TRUE(store_.TakeLease(request).ok());
  Open();
  RecoverFirst();
  ASSERT_EQ(store_.leases().size(), 2U);
  EXPECT_EQ(store_.leases()[0].state, LeaseState::kActive);
  EXPECT_EQ(store_.leases()[1].state, LeaseState::kAbandoned) << "no host holds the lease";
  EXPECT_FALSE(InGrace());
  store_.ForgetLeases();
  Open();
  RecoverFirst();
  ASSERT_EQ(store_.leases().size(), 1U);
  EXPECT_EQ(store_.leases()[0].token, std::string(32, 'a'));
  EXPECT_EQ(store_.leases()[0].state, LeaseState::kActive);
  EXPECT_TRUE(InGrace()) << "overwritten in place by a copy that lacks a lease";
}

}  // namespace
}  // namespace idd::daemon
