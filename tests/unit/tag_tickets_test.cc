// SPDX-License-Identifier: Apache-2.0
//
// Tags of mode `ticket`: each claim is a transaction, and claims that wait together share one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "support/tag_service_fixture.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using ::testing::HasSubstr;

class TicketTest : public TagServiceTest {
 protected:
  TicketTest() {
    h_.store.AddTag("tickets", 100);
    h_.store.SetMode("tickets", TagMode::kTicket);
  }
  // A claim that is at the store, which does not answer before Release().
  Answer& HeldClaim(std::uint64_t count, std::uint64_t owner) {
    h_.store.script.Hold("TakeLease");
    Answer& answer = Claim("tickets", count, kLong, owner);
    EXPECT_TRUE(h_.RunUntil([&] { return Leases() != 0; }));
    return answer;
  }
};

TEST_F(TicketTest, LeasesExactlyWhatIsClaimedAndHoldsNothing) {
  ASSERT_TRUE(Await(Attach("tickets"))) << "idd knows the mode from then on";
  const Answer& one = Awaited(Claim("tickets", 1));
  EXPECT_EQ(one.grant.ids, (IdRange{1, 2}));
  const Answer& three = Awaited(Claim("tickets", 3));
  EXPECT_EQ(three.grant.ids, (IdRange{2, 5}));
  EXPECT_EQ(h_.store.FindTag("tickets").value().next_id, 5U);
  const TagSnapshot snapshot = SnapshotOf("tickets");
  EXPECT_EQ(snapshot.state, TagState::kOk);
  EXPECT_EQ(snapshot.claimed, 4U);
  EXPECT_EQ(snapshot.fallbacks, 0U) << "no ring was found dry";
  EXPECT_TRUE(snapshot.leases.empty());
}

TEST_F(TicketTest, AttachGivesNoRing) {
  const Answer& answer = Awaited(Attach("tickets"));
  EXPECT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_EQ(answer.attached.ring_id, 0U);
}

TEST_F(TicketTest, ClaimsThatWaitTogetherShareOneTransaction) {
  HeldClaim(1, 1);
  for (std::uint64_t owner = 2; owner <= 6; ++owner) Claim("tickets", 2, kLong, owner);
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return answered_ == 6; }));
  EXPECT_EQ(Leases(), 2);
  EXPECT_EQ(answers_[0].grant.ids, (IdRange{1, 2}));
  for (std::uint64_t i = 1; i < 6; ++i) {
    EXPECT_EQ(answers_[i].grant.ids, (IdRange{2 * i, 2 * i + 2})) << i;
  }
}

// Meanwhile another host may have given out greater ids, and this claim may have begun after that.
TEST_F(TicketTest, ClaimGetsNoIdOfALeaseThatWasAskedForBeforeItCame) {
  HeldClaim(1, 1);
  const Answer& later = Claim("tickets", 1, kLong, 2);
  service_.DropOwner(1);
  h_.store.script.Release();
  ASSERT_TRUE(Await(later));
  EXPECT_EQ(later.grant.ids, (IdRange{2, 3}));
  PollAndSettle();
  const auto journal = h_.store.ListLeases({.tag = "tickets", .host = {}, .state = {}});
  ASSERT_TRUE(journal.ok());
  ASSERT_EQ(journal.value().size(), 2U);
  EXPECT_EQ(journal.value()[0].state, LeaseState::kAbandoned);
  EXPECT_EQ(journal.value()[0].abandoned, 1U);
}

TEST_F(TicketTest, AreRefusedAtOnceWhileTheStoreIsDown) {
  ASSERT_TRUE(Await(Claim("tickets", 1)));
  h_.store.script.Fail("TakeLeases", {Code::kUnavailable, "connection refused"}, 1000);
  for (int i = 0; i < 2; ++i) {
    const Answer& answer = Awaited(Claim("tickets", 1));
    EXPECT_EQ(answer.status.code(), Code::kUnavailable);
    EXPECT_THAT(answer.status.message(), HasSubstr("tickets"));
    EXPECT_THAT(answer.status.message(), HasSubstr("connection refused"));
  }
  const Answer& answer = Claim("tickets", 1);
  EXPECT_TRUE(answer.done()) << "without a wait";
  EXPECT_THAT(answer.status.message(), HasSubstr("each of its ids is a transaction at the store"));
}

TEST_F(TicketTest, ReturnedRangesAreNotUsed) {
  HeldClaim(4, 1);
  Shutdown();
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_EQ(h_.store.returned_tails().size(), 1U) << "handed back by the stop";
  for (const LeaseRequest& request : h_.store.requests()) EXPECT_TRUE(request.rises);
}

}  // namespace
}  // namespace idd::daemon
