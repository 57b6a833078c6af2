// SPDX-License-Identifier: Apache-2.0
//
// Clients that write values into the ring that no claim writes. Claimers reach the rings as clients
// do: through the descriptors of an attach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>

#include "support/tag_service_fixture.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono::milliseconds;

TEST_F(TagServiceTest, ForgedOvershootIsClosedAsUsedNotHandedBack) {
  Client& client = ClientOfNewTag("orders", 100);
  client.memory->cursors().slots[1].next = std::numeric_limits<std::uint64_t>::max();
  ASSERT_TRUE(ShutsDown());
  const LeaseRecord lease = h_.store.leases()[0];
  EXPECT_EQ(lease.returned, 0U);
  EXPECT_EQ(lease.claimed, 100U);
}

TEST_F(TagServiceTest, CursorForgedBelowBaseIsClosedAsUsedNotHandedBack) {
  Client& client = ClientOfNewTag("orders", 100, 5, 1000);
  client.memory->cursors().slots[1].next = 0;
  ASSERT_TRUE(ShutsDown());
  EXPECT_EQ(h_.store.leases()[0].returned, 0U);
}

// Regression: a cursor that was moved back made the difference between two looks wrap around.
TEST_F(TagServiceTest, RateStaysFiniteWhenAClientMovesTheCursorBack) {
  Client& client = ClientOfNewTag("orders", 1000, 50);
  service_.Poll();
  client.memory->cursors().slots[1].next = 10;
  service_.Poll();
  EXPECT_GE(SnapshotOf("orders").rate_per_s, 0.0);
  EXPECT_LT(SnapshotOf("orders").rate_per_s, 1e15);
}

TEST_F(TagServiceTest, GarbageInEveryCursorStopsNeitherTheTagNorAnother) {
  h_.store.AddTag("orders", 100, 1000);
  h_.store.AddTag("users", 100);
  Client& client = AttachedClient("orders");
  Client& other = AttachedClient("users");
  for (shm::Cursor& cursor : client.memory->cursors().slots) {
    cursor.next = std::numeric_limits<std::uint64_t>::max();
  }
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_EQ(answer.grant.ids, (IdRange{1100, 1101})) << answer.status.message();
  EXPECT_EQ(other.Claim(1), (IdRange{1, 2}));
}

TEST_F(TagServiceTest, ForgedRingIsReplacedAndNothingOfItIsHandedBack) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  service_.Poll();
  client.memory->cursors().slots[1].next = 10;
  service_.Poll();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kQuarantined);
  h_.Settle();
  EXPECT_EQ(h_.store.leases()[0].state, LeaseState::kAbandoned);
  EXPECT_EQ(h_.store.leases()[0].returned, 0U);
  Client& next = AttachedClient("orders");
  EXPECT_NE(next.ring_id(), client.ring_id());
  const IdRange ids = next.Claim(1);
  EXPECT_GE(ids.first, 101U) << "above all of the spoilt ring";
}

TEST_F(TagServiceTest, LeaseThatArrivesWhileNoRingCanBeMadeEndsNothing) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  h_.store.script.Hold("TakeLease");
  service_.Poll();
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 2; }));
  client.memory->cursors().slots[1].next = 10;
  WithoutDescriptors([&] {
    service_.Poll();
    h_.store.script.Release();
    h_.Settle();
  });
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_GE(answer.grant.ids.first, 101U);
}

// Regression: the request that showed the forged cursor to the daemon was answered from that
// cursor.
TEST_F(TagServiceTest, RequestThatFindsACursorSetBackIsServedFromAFreshSegment) {
  Client& client = ClientOfNewTag("orders", 100);
  EXPECT_EQ(Granted("orders", 50).ids, (IdRange{1, 51}));
  client.memory->cursors().slots[1].next = 1;
  const Answer& answer = Awaited(Claim("orders", 50));
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_GE(answer.grant.ids.first, 101U) << "ids of the forged ring";
  EXPECT_TRUE(answer.grant.attach_again);
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kQuarantined);
}

TEST_F(TagServiceTest, RequestThatFindsOneOfTwoCursorsSetBackIsServedFromNeither) {
  Client& client = ClientOfNewTag("orders", 100, 20);
  RefillAndSettle("orders");
  ASSERT_GE(SnapshotOf("orders").leases.size(), 2U);
  const std::uint64_t reached = SnapshotOf("orders").leases.back().lease.ids.limit;
  client.memory->cursors().slots[2].next = 1;
  const Answer& answer = Awaited(Claim("orders", 1));
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_GE(answer.grant.ids.first, reached);
}

TEST_F(TagServiceTest, RequestThatFindsAForgedCursorFailsWithTheReasonWhenThereIsNoLease) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  PollAndSettle();
  h_.store.script.Hold("CloseLeases");  // and the lease after it
  client.memory->cursors().slots[1].next = 10;
  const Answer& answer = Claim("orders", 1, milliseconds(0));
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_THAT(answer.status.message(),
              ::testing::ContainsRegex("its ring was quarantined [0-9]+ s ago"));
}

TEST_F(TagServiceTest, AttachThatFindsAForgedCursorGetsAnotherRing) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  service_.Poll();
  client.memory->cursors().slots[1].next = 10;
  Client& next = AttachedClient("orders");
  EXPECT_NE(next.ring_id(), client.ring_id());
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
}

TEST_F(TagServiceTest, LeaseThatArrivesAfterAForgeryIsNotPublishedInThatRing) {
  Client& client = ClientOfNewTag("orders", 100, 50);
  h_.store.script.Hold("TakeLease");
  service_.Poll();
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 2; }));
  client.memory->cursors().slots[1].next = 10;
  h_.store.script.Release();
  h_.Settle();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_EQ(h_.store.leases()[0].state, LeaseState::kAbandoned);
  EXPECT_EQ(h_.store.leases()[1].state, LeaseState::kActive) << "no client could spoil it";
  EXPECT_EQ(Granted("orders", 1).ids.first, h_.store.leases()[1].ids.first);
}

// Regression: socket claims were recorded once a second, if at all. A daemon killed in between left
// a ring whose cursor a client could set back to the value that the last poll had seen.
TEST_F(TagServiceTest, ClaimsBySocketAreNotedForTheNextDaemonBeforeTheyAreAnswered) {
  h_.store.AddTag("orders", 100);
  static_cast<void>(AttachedClient("orders"));
  std::uint64_t noted = 0;
  const auto next_noted = [this] {
    auto next = HeldLeases::Adopt(ScopedFd(::fcntl(h_.held->fd(), F_DUPFD_CLOEXEC, 0)), "host-a");
    return next.value()->All().at(0).next;
  };
  service_.Claim("orders", 0, 50, {.owner = 1, .deadline = Deadline::After(kLong)},
                 [&](const Result<ClaimGrant>&) { noted = next_noted(); });
  EXPECT_EQ(noted, 51U);
}

// The same for values seen by a wake-up, a request or a report.
TEST_F(TagServiceTest, WhatWasSeenOfACursorIsNotedForTheNextDaemonAtOnce) {
  ClientOfNewTag("orders", 100, 5);
  static_cast<void>(service_.Snapshot());
  auto next = HeldLeases::Adopt(ScopedFd(::fcntl(h_.held->fd(), F_DUPFD_CLOEXEC, 0)), "host-a");
  EXPECT_EQ(next.value()->All().at(0).next, 6U);
}

}  // namespace
}  // namespace idd::daemon
