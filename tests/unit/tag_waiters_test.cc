// SPDX-License-Identifier: Apache-2.0
//
// Requests that wait for the ids of a tag. Claimers reach the rings as clients do: through the
// descriptors of an attach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "support/tag_service_fixture.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono::milliseconds;

TEST_F(TagServiceTest, WaitersAreServedFirstComeFirstServed) {
  h_.store.AddTag("orders", 100);
  h_.store.script.Hold("TakeLease");
  for (std::uint64_t i = 1; i <= 5; ++i) Claim("orders", 5, kLong, i);
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return answered_ == 5; }));
  for (std::uint64_t i = 0; i < 5; ++i) {
    const Answer& answer = answers_[i];
    EXPECT_EQ(answer.grant.ids, (IdRange{1 + 5 * i, 6 + 5 * i}));
    EXPECT_EQ(answer.order, static_cast<int>(i) + 1);
    EXPECT_EQ(answer.times, 1);
    EXPECT_FALSE(answer.grant.more_follow) << "each on a connection of its own";
  }
  EXPECT_EQ(AttachedClient("orders").Claim(1), (IdRange{26, 27})) << "the rest is published";
  EXPECT_FALSE(Granted("orders", 1).more_follow);
}

TEST_F(TagServiceTest, WaitersOfOneConnectionAreAnsweredTogether) {
  h_.store.AddTag("orders", 100);
  h_.store.script.Hold("TakeLease");
  for (const std::uint64_t owner : {1U, 2U, 1U}) Claim("orders", 5, kLong, owner);
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return answered_ == 3; }));
  EXPECT_EQ(answers_[0].order, 1);
  EXPECT_TRUE(answers_[0].grant.more_follow);
  EXPECT_EQ(answers_[2].order, 2);
  EXPECT_FALSE(answers_[2].grant.more_follow);
  EXPECT_EQ(answers_[2].grant.ids, (IdRange{6, 11}));
  EXPECT_EQ(answers_[1].grant.ids, (IdRange{11, 16}));
}

TEST_F(TagServiceTest, WaitersThatALeaseDoesNotReachWaitInOrderForTheNext) {
  h_.store.AddTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  for (int i = 0; i < 4; ++i) Claim("orders", 8);
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return answered_ == 4; }));
  EXPECT_EQ(answers_[0].grant.ids, (IdRange{1, 9}));
  EXPECT_EQ(answers_[1].grant.ids, (IdRange{9, 11})) << "a segment's end shortens the answer";
  EXPECT_EQ(answers_[2].grant.ids, (IdRange{11, 19}));
  EXPECT_EQ(answers_[3].grant.ids, (IdRange{19, 21}));
}

TEST_F(TagServiceTest, ClaimOnARingWithIdsIsAnsweredAtOnceInTheRingsOrder) {
  Client& client = ClientOfNewTag("orders", 100);
  ASSERT_EQ(client.Claim(10), (IdRange{1, 11}));
  const Answer& answer = Claim("orders", 5, milliseconds(0));
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(answer.grant.ids, (IdRange{11, 16}));
  EXPECT_EQ(client.Claim(1), (IdRange{16, 17}));
}

TEST_F(TagServiceTest, GrantMakesAClientWithAnotherRingAttachAgain) {
  const Client& client = ClientOfNewTag("orders", 100);
  EXPECT_FALSE(Claim("orders", 1, kLong, 1, client.ring_id()).grant.attach_again);
  EXPECT_TRUE(Claim("orders", 1, kLong, 1, client.ring_id() + 1).grant.attach_again);
  EXPECT_TRUE(Claim("orders", 1, kLong, 1, 0).grant.attach_again);
}

TEST_F(TagServiceTest, WaiterLeavesAtItsDeadlineWithTheReason) {
  Client& client = ClientOfNewTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const MonotonicTime began = MonotonicClock::now();
  const Answer& answer = Claim("orders", 1, milliseconds(30));
  const Answer& patient = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_NE(answer.status.message().find("orders"), std::string::npos);
  // On a busy machine the store may count as one that has not answered for long.
  EXPECT_THAT(answer.status.message(), ::testing::ContainsRegex("on its way|has not answered for"));
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(30));
  EXPECT_FALSE(patient.done()) << "another waiter's deadline must not count";
  h_.store.script.Release();
  ASSERT_TRUE(Await(patient));
  EXPECT_EQ(patient.grant.ids, (IdRange{11, 12})) << "a waiter that left must not be served";
}

TEST_F(TagServiceTest, TimeoutWhileTheStoreDoesNotAnswerSaysSo) {
  Client& client = ClientOfNewTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const Answer& answer = Awaited(Claim("orders", 1, milliseconds(200)));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_NE(answer.status.message().find("has not answered for"), std::string::npos)
      << answer.status.message();
  EXPECT_NE(answer.status.message().find("locked or slow"), std::string::npos);
}

TEST_F(TagServiceTest, ZeroTimeoutOnADryRingIsAnsweredAtOnce) {
  Client& client = ClientOfNewTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const Answer& answer = Claim("orders", 1, milliseconds(0));
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
}

TEST_F(TagServiceTest, TimeoutWhileTheStoreIsDownSaysSoWithItsError) {
  h_.store.AddTag("orders", 10);
  h_.store.script.FailAll({Code::kUnavailable, "disk full"});
  const Answer& attach = Awaited(Attach("orders", milliseconds(1000)));
  EXPECT_EQ(attach.status.code(), Code::kTimeout);
  EXPECT_NE(attach.status.message().find("down"), std::string::npos) << attach.status.message();
  EXPECT_NE(attach.status.message().find("disk full"), std::string::npos);
}

TEST_F(TagServiceTest, WaitersOfOtherTagsDoNotWaitForASlowOne) {
  h_.store.AddTag("slow", 10);
  h_.store.AddTag("fast", 10);
  AttachedClient("slow");
  AttachedClient("fast");
  h_.store.script.Hold("TakeLease");
  const Answer& slow = Claim("slow", 100);  // served from the ring, which is then dry
  const Answer& waits = Claim("slow", 1);
  const Answer& fast = Claim("fast", 1);
  EXPECT_TRUE(slow.done());
  EXPECT_TRUE(fast.done());
  EXPECT_FALSE(waits.done());
}

TEST_F(TagServiceTest, DroppedOwnersAreNotAnsweredAndTheirIdsGoToTheOthers) {
  h_.store.AddTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  const Answer& gone = Claim("orders", 3, kLong, 7);
  const Answer& stays = Claim("orders", 3, kLong, 8);
  const Answer& gone_too = Claim("orders", 3, kLong, 7);
  service_.DropOwner(7);
  h_.store.script.Release();
  ASSERT_TRUE(Await(stays));
  h_.Settle();
  EXPECT_EQ(stays.grant.ids, (IdRange{1, 4}));
  EXPECT_FALSE(gone.done());
  EXPECT_FALSE(gone_too.done());
}

TEST_F(TagServiceTest, DroppedOwnerOfAnUnknownTagLeavesNothing) {
  h_.store.script.Hold("FindTag");
  const Answer& gone = Attach("nobody", kLong, 7);
  service_.DropOwner(7);
  h_.store.script.Release();
  h_.Settle();
  EXPECT_FALSE(gone.done());
  EXPECT_TRUE(service_.Snapshot().empty());
}

}  // namespace
}  // namespace idd::daemon
