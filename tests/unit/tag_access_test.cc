// SPDX-License-Identifier: Apache-2.0
//
// Tags whose ids are claimed over the socket only, and rings that are withdrawn. Claimers reach the
// rings as clients do: through the descriptors of an attach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "support/tag_service_fixture.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono::milliseconds;

TEST_F(TagServiceTest, TagClaimedOverTheSocketPassesItsRingToNoClient) {
  h_.store.AddTag("orders", 100);
  h_.store.SetAccess("orders", TagAccess::kSocket);
  const Answer& attach = Awaited(Attach("orders"));
  h_.Settle();
  EXPECT_TRUE(attach.status.ok()) << attach.status.message();
  EXPECT_EQ(attach.attached.ring_id, 0U);
  EXPECT_EQ(attach.attached.table_fd, -1);
  EXPECT_EQ(attach.attached.cursors_fd, -1);
  for (std::uint64_t next = 1; next < 100; next += 11) {
    const ClaimGrant grant = Granted("orders", 11);
    EXPECT_EQ(grant.ids, (IdRange{next, next + 11}));
    EXPECT_FALSE(grant.attach_again);
  }
  EXPECT_EQ(Granted("orders", 11).ids, (IdRange{100, 101})) << "a segment's end";
  h_.Settle();
  EXPECT_EQ(Granted("orders", 1).ids, (IdRange{101, 102}));
  EXPECT_TRUE(Granted("orders", 1, 4711).attach_again) << "a ring of an earlier policy";
}

TEST_F(TagServiceTest, ClaimOverTheSocketIsAFallbackOnlyWhenTheRingIsDry) {
  h_.store.AddTag("orders", 10);
  h_.store.SetAccess("orders", TagAccess::kSocket);
  ASSERT_TRUE(Await(Attach("orders")));
  h_.Settle();
  h_.store.script.Hold("TakeLease");
  for (int i = 0; i < 10; ++i) {
    const ClaimGrant grant = Granted("orders", 1);
    EXPECT_FALSE(grant.ids.empty());
    EXPECT_FALSE(grant.has_waited);
  }
  EXPECT_EQ(SnapshotOf("orders").fallbacks, 0U);
  const Answer& waits = Claim("orders", 1);
  EXPECT_EQ(SnapshotOf("orders").fallbacks, 1U);
  h_.store.script.Release();
  ASSERT_TRUE(Await(waits));
  EXPECT_TRUE(waits.grant.has_waited);
  EXPECT_EQ(SnapshotOf("orders").claimed, 11U);
}

TEST_F(TagServiceTest, ChangeToTheSocketClosesTheRingAndLosesNoId) {
  Client& client = ClientOfNewTag("orders", 100);
  ASSERT_EQ(client.Claim(30), (IdRange{1, 31}));
  RefillAndSettle("orders");
  ASSERT_EQ(SnapshotOf("orders").leases.size(), 2U);
  ChangeAccess("orders", TagAccess::kSocket);
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(SnapshotOf("orders").claimed, 30U);
  EXPECT_EQ(SnapshotOf("orders").leases.size(), 2U);
  EXPECT_EQ(service_.LiveLeases().size(), 2U);
  EXPECT_EQ(Attach("orders").attached.ring_id, 0U);
  const ClaimGrant first = Granted("orders", 20, client.ring_id());
  EXPECT_EQ(first.ids, (IdRange{31, 51}));
  EXPECT_TRUE(first.attach_again);
  EXPECT_EQ(Granted("orders", 1000).ids, (IdRange{51, 101}));
  EXPECT_EQ(Granted("orders", 50).ids, (IdRange{101, 151}));
  h_.Settle();
  EXPECT_EQ(h_.store.leases()[0].state, LeaseState::kExhausted);
  EXPECT_EQ(SnapshotOf("orders").claimed, 150U);
  ASSERT_TRUE(ShutsDown());
  EXPECT_EQ(h_.store.next_id("orders"), 151U) << "the rest goes back as from any ring";
  for (const LeaseRecord& lease : h_.store.leases()) ExpectAccounted(lease);
}

TEST_F(TagServiceTest, WithdrawnRingIsClosedAndWhatIsLeftGoesOnInAnother) {
  Client& client = ClientOfNewTag("orders", 100, 30);
  EXPECT_TRUE(service_.Withdraw("orders", client.ring_id() + 1)) << "a ring that is gone already";
  EXPECT_TRUE(service_.Withdraw("nobody-asked-for-it", 1));
  ASSERT_EQ(client.Claim(1).first, 31U);
  EXPECT_TRUE(service_.Withdraw("orders", client.ring_id()));
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  const ClaimGrant next = Granted("orders", 1, client.ring_id());
  EXPECT_EQ(next.ids, (IdRange{32, 33}));
  EXPECT_TRUE(next.attach_again);
  Client& again = AttachedClient("orders");
  EXPECT_NE(again.ring_id(), client.ring_id());
  EXPECT_EQ(again.Claim(1).first, 33U);
  ASSERT_TRUE(ShutsDown());
  EXPECT_TRUE(service_.Withdraw("orders", again.ring_id())) << "too late, and no harm";
  for (const LeaseRecord& lease : h_.store.leases()) ExpectAccounted(lease);
}

TEST_F(TagServiceTest, ChangeToTheSocketClosesWhatWasUsedUpAndKeepsTheFloor) {
  ClientOfNewTag("orders", 100, 100);
  ChangeAccess("orders", TagAccess::kSocket);
  h_.Settle();
  EXPECT_EQ(h_.store.leases()[0].state, LeaseState::kExhausted);
  EXPECT_EQ(SnapshotOf("orders").claimed, 100U);
  EXPECT_EQ(h_.store.requests().back().floor, 101U);
  // Once more with no lease in the ring.
  h_.store.AddTag("users", 10, 500);
  h_.store.script.Fail("TakeLease", {Code::kInvalid, "not now"});
  ASSERT_TRUE(Await(Attach("users")));
  h_.Settle();
  ASSERT_TRUE(SnapshotOf("users").leases.empty());
  ChangeAccess("users", TagAccess::kSocket);
  h_.Settle();
  EXPECT_EQ(Granted("users", 1).ids, (IdRange{500, 501}));
}

TEST_F(TagServiceTest, ChangeToTheRingGivesClientsTheRingThatIsInUse) {
  h_.store.AddTag("orders", 100);
  h_.store.SetAccess("orders", TagAccess::kSocket);
  ASSERT_TRUE(Await(Attach("orders")));
  h_.Settle();
  EXPECT_EQ(Granted("orders", 10).ids, (IdRange{1, 11}));
  ChangeAccess("orders", TagAccess::kRing);
  const ClaimGrant grant = Granted("orders", 10);
  EXPECT_EQ(grant.ids, (IdRange{11, 21}));
  EXPECT_TRUE(grant.attach_again);
  Client& client = AttachedClient("orders");
  EXPECT_EQ(client.Claim(10), (IdRange{21, 31}));
  EXPECT_FALSE(Granted("orders", 1, client.ring_id()).attach_again);
  // And back, twice.
  std::uint64_t next = 32;
  for (int round = 0; round < 2; ++round) {
    Client& mapped = AttachedClient("orders");
    EXPECT_EQ(mapped.Claim(3), (IdRange{next, next + 3}));
    ChangeAccess("orders", TagAccess::kSocket);
    EXPECT_TRUE(mapped.Claim(1).empty());
    EXPECT_EQ(Granted("orders", 3).ids, (IdRange{next + 3, next + 6}));
    ChangeAccess("orders", TagAccess::kRing);
    EXPECT_TRUE(mapped.Claim(1).empty()) << "the old ring must not be used again";
    next += 6;
  }
  EXPECT_EQ(SnapshotOf("orders").claimed, next - 1);
}

TEST_F(TagServiceTest, WaitersPresentAtAChangeAreServedInOrderAndAttachAgain) {
  Client& client = ClientOfNewTag("orders", 10);
  h_.store.script.Hold("FindTag");  // so the lease brings the changed record
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const Answer& of_ring = Claim("orders", 2, kLong, 1, client.ring_id());
  ChangeAccess("orders", TagAccess::kSocket);
  const Answer& of_socket = Claim("orders", 2);
  EXPECT_FALSE(of_ring.done() || of_socket.done());
  h_.store.script.Release();
  ASSERT_TRUE(Await(of_ring) && Await(of_socket));
  EXPECT_EQ(of_ring.grant.ids, (IdRange{11, 13}));
  EXPECT_TRUE(of_ring.grant.attach_again);
  EXPECT_EQ(of_socket.grant.ids, (IdRange{13, 15}));
  EXPECT_FALSE(of_socket.grant.attach_again);
  h_.Settle();
  // In the other direction.
  h_.store.script.Hold("FindTag");
  while (SnapshotOf("orders").state != TagState::kDry)
    ASSERT_FALSE(Granted("orders", 100).ids.empty());
  const std::uint64_t next = SnapshotOf("orders").claimed + 1;
  const Answer& waits = Claim("orders", 2);
  ChangeAccess("orders", TagAccess::kRing);
  EXPECT_FALSE(waits.done());
  h_.store.script.Release();
  ASSERT_TRUE(Await(waits));
  EXPECT_EQ(waits.grant.ids, (IdRange{next, next + 2}));
  EXPECT_TRUE(waits.grant.attach_again);
}

TEST_F(TagServiceTest, WaiterForTheRingAfterAQuarantineLearnsOfIt) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  PollAndSettle();
  h_.store.script.Hold("CloseLeases");  // and the lease after it
  client.memory->cursors().slots[1].next = 10;
  service_.Poll();
  const Answer& answer = Awaited(Claim("orders", 1, milliseconds(50)));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_THAT(answer.status.message(),
              ::testing::ContainsRegex("its ring was quarantined [0-9]+ s ago"));
}

TEST_F(TagServiceTest, RingThatIsForgedAtTheChangeIsQuarantined) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  PollAndSettle();
  const std::size_t leases = h_.store.leases().size();
  client.memory->cursors().slots[1].next = 10;
  ChangeAccess("orders", TagAccess::kSocket);
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kQuarantined);
  EXPECT_EQ(Attach("orders").attached.ring_id, 0U);
  h_.Settle();
  for (std::size_t i = 0; i < leases; ++i) {
    const LeaseRecord lease = h_.store.leases()[i];
    EXPECT_EQ(lease.state, LeaseState::kAbandoned);
    EXPECT_EQ(lease.returned, 0U);
    EXPECT_LT(lease.ids.limit, Granted("orders", 1).ids.limit);
  }
  ASSERT_GE(leases, 1U);
}

TEST_F(TagServiceTest, RingThatIsForgedAtTheChangeLeavesNoDescriptors) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  PollAndSettle();
  client.memory->cursors().slots[1].next = 10;
  ChangeAccess("orders", TagAccess::kSocket);
  EXPECT_EQ(h_.descriptors.names.size(), 2U) << "only the descriptors of the one ring";
}

TEST_F(TagServiceTest, ChangeByAnotherHostIsNoticedAtTheNextLease) {
  Client& client = ClientOfNewTag("orders", 100);
  h_.store.SetAccess("orders", TagAccess::kSocket);
  ASSERT_EQ(client.Claim(20), (IdRange{1, 21})) << "not known yet";
  RefillAndSettle("orders");
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_EQ(Granted("orders", 1000).ids, (IdRange{21, 101}));
  EXPECT_EQ(Granted("orders", 1000).ids, (IdRange{101, 201}));
}

TEST_F(TagServiceTest, LeaseUnderWayAtTheChangeIsPublishedInTheNewRing) {
  Client& client = ClientOfNewTag("orders", 100, 20);
  h_.store.script.Hold("FindTag");
  service_.Refill("orders");
  ASSERT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("FindTag") == 3; }));
  ChangeAccess("orders", TagAccess::kSocket);
  EXPECT_EQ(Granted("orders", 30).ids, (IdRange{21, 51}));
  h_.store.script.Release();
  h_.Settle();
  EXPECT_EQ(Granted("orders", 1000).ids, (IdRange{51, 101}));
  EXPECT_EQ(Granted("orders", 1000).ids, (IdRange{101, 201}));
  EXPECT_TRUE(client.Claim(1).empty());
}

TEST_F(TagServiceTest, ChangeThatFindsNoMemoryForARingIsDoneByALaterPoll) {
  Client& client = ClientOfNewTag("orders", 100, 10);
  WithoutDescriptors([&] { ChangeAccess("orders", TagAccess::kSocket); });
  EXPECT_EQ(client.Claim(10), (IdRange{11, 21})) << "clients must not be left without ids";
  EXPECT_EQ(Attach("orders").attached.ring_id, 0U) << "no other client may get the ring";
  service_.Poll();
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(Granted("orders", 1).ids, (IdRange{21, 22}));
}

}  // namespace
}  // namespace idd::daemon
