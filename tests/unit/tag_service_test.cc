// SPDX-License-Identifier: Apache-2.0
//
// The life of a tag over an in-memory store: look-up, warm-up, deletion, shutdown. Claimers reach
// the rings as clients do: through the descriptors of an attach.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "support/tag_service_fixture.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono::milliseconds;

// --- looking tags up

TEST_F(TagServiceTest, AttachGivesARingThatIsThenFilled) {
  Client& client = ClientOfNewTag("orders", 100);
  EXPECT_EQ(client.Claim(1000), (IdRange{1, 101}));
}

TEST_F(TagServiceTest, UnknownTagIsAnErrorAndIsForgotten) {
  const Answer& attach = Attach("nobody");
  const Answer& claim = Claim("nobody", 1);
  ASSERT_TRUE(Await(attach) && Await(claim));
  EXPECT_EQ(attach.status.code(), Code::kNoSuchTag);
  EXPECT_EQ(claim.status.code(), Code::kNoSuchTag);
  EXPECT_TRUE(service_.Snapshot().empty());
  EXPECT_EQ(Leases(), 0) << "never leased, never created";
  // Nothing of it was kept: a tag created meanwhile is found.
  h_.store.AddTag("nobody", 10);
  const Answer& again = Awaited(Attach("nobody"));
  EXPECT_TRUE(again.status.ok()) << again.status.message();
}

TEST_F(TagServiceTest, ManyRequestsForAnUnknownTagAskTheStoreOnce) {
  h_.store.AddTag("orders", 100);
  h_.store.script.Hold("FindTag");
  for (int i = 0; i < 5; ++i) Attach("orders");
  for (int i = 0; i < 5; ++i) Claim("orders", 1);
  ASSERT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("FindTag") == 1; }));
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return answered_ == 10; }));
  for (const Answer& answer : answers_) EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(h_.store.script.Count("FindTag"), 2) << "the look-up and the one lease";
}

TEST_F(TagServiceTest, RefillOfAnUnusedTagDoesNothing) {
  RefillAndSettle("orders");
  EXPECT_EQ(Leases(), 0);
  EXPECT_TRUE(service_.Snapshot().empty());
}

TEST_F(TagServiceTest, ShutdownIsDoneOnlyWhenEveryTagHasHandedBack) {
  h_.store.AddTag("a-used-up", 100, 101, 100);
  h_.store.AddTag("orders", 100);
  const Answer& refused = Awaited(Claim("a-used-up", 1));
  EXPECT_EQ(refused.status.code(), Code::kOutOfIds);
  AttachedClient("orders");
  h_.store.script.Hold("ReturnTail");
  Shutdown();
  EXPECT_EQ(shutdowns_, 0) << "the first tag has nothing to hand back, the second has";
  h_.store.script.Release();
  EXPECT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_EQ(h_.store.next_id("orders"), 1U);
}

// --- warming up

TEST_F(TagServiceTest, WarmedTagsAreLeasedBeforeAnyRequest) {
  std::vector<std::string> tags;
  for (int i = 0; i < 20; ++i) {
    tags.push_back("tag-" + std::to_string(i));
    h_.store.AddTag(tags.back(), 100);
  }
  int warmed = 0;
  service_.Warm(tags, [&] { ++warmed; });
  ASSERT_TRUE(h_.RunUntil([&] { return warmed == 1; }));
  EXPECT_EQ(Leases(), 20);
  for (const std::string& tag : tags) {
    const Answer& answer = Claim(tag, 1, milliseconds(0));
    EXPECT_TRUE(answer.done() && answer.status.ok()) << tag;
  }
  h_.Settle();
  EXPECT_EQ(warmed, 1);
}

TEST_F(TagServiceTest, WarmingEndsWhenTheStoreIsDown) {
  h_.store.AddTag("orders", 100);
  h_.store.AddTag("gone", 100);
  h_.store.script.FailAll({Code::kUnavailable, "no database"});
  bool warmed = false;
  service_.Warm({"orders", "gone"}, [&] { warmed = true; });
  EXPECT_TRUE(h_.RunUntil([&] { return warmed; }));
  EXPECT_TRUE(service_.Snapshot().empty()) << "a failed look-up must keep nothing";
}

TEST_F(TagServiceTest, WarmUpReportsNoMissingTag) {
  h_.store.AddTag("orders", 100);
  bool warmed = false;
  service_.Warm({"orders", "deleted"}, [&] { warmed = true; });
  EXPECT_TRUE(h_.RunUntil([&] { return warmed; }));
  EXPECT_EQ(service_.Snapshot().size(), 1U);
  warmed = false;
  service_.Warm({}, [&] { warmed = true; });
  EXPECT_TRUE(warmed);
}

TEST_F(TagServiceTest, StoppedWarmingBeginsNoMore) {
  std::vector<std::string> tags;
  for (int i = 0; i < 20; ++i) {
    tags.push_back("tag-" + std::to_string(i));
    h_.store.AddTag(tags.back(), 100);
  }
  h_.store.script.Hold("TakeLease");
  bool warmed = false;
  service_.Warm(tags, [&] { warmed = true; });
  ASSERT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("TakeLease") == 1; }));
  service_.StopWarming();
  EXPECT_FALSE(warmed);
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return warmed; }));
  EXPECT_LE(Leases(), 4);
}

// --- when the ids end

TEST_F(TagServiceTest, EndOfTheIdsIsForecastFromTheRate) {
  h_.store.AddTag("orders", 100, 1, 100'000);
  Client& client = AttachedClient("orders");
  PollAndSettle();
  EXPECT_FALSE(SnapshotOf("orders").exhausted_in_days.has_value()) << "no client claims";
  ASSERT_EQ(client.Claim(50).size(), 50U);
  std::this_thread::sleep_for(milliseconds(20));
  PollAndSettle();
  const TagSnapshot snapshot = SnapshotOf("orders");
  ASSERT_TRUE(snapshot.exhausted_in_days.has_value());
  // 50 of 100,000 ids are claimed.
  EXPECT_NEAR(*snapshot.exhausted_in_days * snapshot.rate_per_s * 86'400, 99'950, 200);
}

// --- views

TEST_F(TagServiceTest, LiveLeasesReportThePositionOfTheRing) {
  ClientOfNewTag("orders", 100, 42);
  const auto live = service_.LiveLeases();
  const auto use = live.find(h_.store.leases()[0].token);
  ASSERT_NE(use, live.end());
  EXPECT_EQ(use->second.state, LeaseState::kActive);
  EXPECT_EQ(use->second.claimed, 42U);
}

TEST_F(TagServiceTest, SnapshotCountsClaimsOfAllPathsAndLeases) {
  ClientOfNewTag("orders", 10, 10);
  ASSERT_TRUE(Await(Claim("orders", 4)));
  h_.Settle();
  const TagSnapshot snapshot = SnapshotOf("orders");
  EXPECT_EQ(snapshot.claimed, 14U);
  EXPECT_EQ(snapshot.fallbacks, 1U);
  EXPECT_EQ(snapshot.leases_taken, static_cast<std::uint64_t>(Leases()));
  EXPECT_EQ(snapshot.state, TagState::kOk);
  EXPECT_EQ(snapshot.mode, TagMode::kSegment);
}

TEST_F(TagServiceTest, SnapshotShowsADryRing) {
  Client& client = ClientOfNewTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kDry);
}

// --- deletion

TEST_F(TagServiceTest, DeletionDrainsTheRingAndClosesItsLeases) {
  Client& client = ClientOfNewTag("orders", 100, 30);
  service_.OnTagDeleted("orders");
  h_.Settle();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_TRUE(service_.Snapshot().empty());
  const LeaseRecord lease = h_.store.leases()[0];
  EXPECT_EQ(lease.state, LeaseState::kAbandoned);
  EXPECT_EQ(lease.claimed, 30U);
  EXPECT_EQ(lease.abandoned, 70U);
}

TEST_F(TagServiceTest, DeletionFailsTheWaiters) {
  ClientOfNewTag("orders", 10, 10);
  h_.store.script.Hold("TakeLease");
  const Answer& waiter = Claim("orders", 1);
  service_.OnTagDeleted("orders");
  EXPECT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status.code(), Code::kNoSuchTag);
}

TEST_F(TagServiceTest, LeaseThatArrivesAfterTheDeletionGoesBackWhole) {
  ClientOfNewTag("orders", 10, 10);
  h_.store.script.Hold("TakeLease");
  service_.Poll();
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 2; }));
  service_.OnTagDeleted("orders");
  h_.store.script.Release();
  h_.Settle();
  const auto journal = h_.store.leases();
  ASSERT_EQ(journal.size(), 2U);
  EXPECT_EQ(journal[1].state, LeaseState::kReturned);
  EXPECT_EQ(journal[1].returned, 10U);
  EXPECT_TRUE(service_.Snapshot().empty()) << "the tag is not revived";
}

TEST_F(TagServiceTest, DeletionByAnotherHostIsNoticedAtTheNextLease) {
  Client& client = ClientOfNewTag("orders", 10, 5);
  h_.store.RemoveTag("orders");
  RefillAndSettle("orders");
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_EQ(answer.status.code(), Code::kNoSuchTag);
}

TEST_F(TagServiceTest, NamesakeOfADeletedTagGetsARingOfItsOwn) {
  h_.store.AddTag("orders", 10);
  const std::uint64_t old_ring = AttachedClient("orders").ring_id();
  service_.OnTagDeleted("orders");
  Client& client = ClientOfNewTag("orders", 10, 0, 500);
  EXPECT_NE(client.ring_id(), old_ring);
  EXPECT_EQ(client.Claim(1), (IdRange{500, 501}));
}

// --- shutdown

TEST_F(TagServiceTest, ShutdownHandsTailsBackNewestFirst) {
  Client& client = ClientOfNewTag("orders", 10, 4);
  RefillAndSettle("orders");
  ASSERT_EQ(SnapshotOf("orders").leases.size(), 2U);
  ASSERT_TRUE(ShutsDown());
  const auto tails = h_.store.returned_tails();
  ASSERT_EQ(tails.size(), 2U);
  EXPECT_EQ(tails[0].claimed, 0U) << "the newest";
  EXPECT_EQ(tails[1].claimed, 4U);
  EXPECT_EQ(h_.store.next_id("orders"), 5U) << "each lowers max_id to where the next one ends";
  EXPECT_EQ(h_.marks.mark("orders"), 5U);
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  for (const LeaseRecord& lease : h_.store.leases()) ExpectAccounted(lease);
  EXPECT_TRUE(service_.LiveLeases().empty());
}

TEST_F(TagServiceTest, ShutdownWithNothingToHandBackEndsAtOnce) {
  Shutdown();
  EXPECT_EQ(shutdowns_, 1);
}

TEST_F(TagServiceTest, ShutdownClosesWhatWasUsedUp) {
  ClientOfNewTag("orders", 10, 10);
  ASSERT_TRUE(ShutsDown());
  EXPECT_EQ(h_.store.leases()[0].state, LeaseState::kExhausted);
  EXPECT_TRUE(h_.store.returned_tails().empty());
}

TEST_F(TagServiceTest, ShutdownRefusesNewRequestsAndFailsTheWaiters) {
  h_.store.AddTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  const Answer& waiter = Claim("orders", 1);
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 1; }));
  Shutdown();
  EXPECT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status.code(), Code::kUnavailable);
  EXPECT_EQ(Claim("orders", 1).status.code(), Code::kUnavailable);
  EXPECT_EQ(Attach("other").status.code(), Code::kUnavailable);
  for (const Answer& answer : answers_) EXPECT_EQ(answer.times, 1);
}

TEST_F(TagServiceTest, LeaseThatArrivesDuringShutdownGoesBackWhole) {
  h_.store.AddTag("orders", 10);
  h_.store.script.Hold("TakeLease");
  Claim("orders", 3);
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 1; }));
  Shutdown();
  EXPECT_EQ(shutdowns_, 0) << "a lease is under way";
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  const auto journal = h_.store.leases();
  ASSERT_EQ(journal.size(), 1U);
  EXPECT_EQ(journal[0].state, LeaseState::kReturned);
  EXPECT_EQ(journal[0].returned, 10U);
  EXPECT_EQ(h_.store.next_id("orders"), 1U);
}

// Regression: only the end of a lease was checked, so a stop waited for its whole timeout.
TEST_F(TagServiceTest, ShutdownEndsWhenALookUpUnderWayDoes) {
  for (const bool known : {true, false}) {
    WorkerHarness h;
    TagService service(h.loop, h.worker, h.handover(), kDefaultLeasesPerSecond);
    h.Start();
    if (known) h.store.AddTag("orders", 10);
    h.store.script.Hold("FindTag");
    service.Attach("orders", {.owner = 1, .deadline = Deadline::After(kLong)},
                   [](const Result<AttachGrant>&) {});
    ASSERT_TRUE(h.RunUntil([&] { return h.store.script.Count("FindTag") == 1; }));
    int done = 0;
    service.Shutdown([&] { ++done; });
    h.store.script.Release();
    h.Settle();
    EXPECT_EQ(done, 1) << (known ? "a known tag" : "an unknown tag");
  }
}

TEST_F(TagServiceTest, ShutdownEndsThoughTheStoreRefusesTheTails) {
  h_.store.AddTag("orders", 10);
  AttachedClient("orders");
  h_.store.script.FailAll({Code::kUnavailable, "gone"});
  ASSERT_TRUE(ShutsDown());
  EXPECT_EQ(h_.store.leases()[0].state, LeaseState::kActive) << "the next start abandons it";
  EXPECT_EQ(service_.LiveLeases().size(), 1U) << "until then this host owns it";
}

// Regression: a stop took the failure of a moment for its last word. The next idd then journalled
// the leases as abandoned, with nothing claimed.
TEST_F(TagServiceTest, ShutdownTriesAgainWhatAStoreThatFailedForAMomentDidNotTake) {
  for (const char* tag : {"cities", "orders", "users"}) {
    h_.store.AddTag(tag, 10);
    ASSERT_EQ(AttachedClient(tag).Claim(tag[0] == 'u' ? 10 : 4).size(), tag[0] == 'u' ? 10U : 4U);
  }
  h_.store.script.Fail("ReturnTail", {Code::kUnavailable, "became smaller"});
  ASSERT_TRUE(ShutsDown());
  std::uint64_t claimed = 0;
  for (const LeaseRecord& lease : h_.store.leases()) {
    ExpectAccounted(lease);
    EXPECT_EQ(lease.abandoned, 0U);
    claimed += lease.claimed;
  }
  EXPECT_EQ(claimed, 18U);
  EXPECT_TRUE(service_.LiveLeases().empty());
  h_.Settle();
  EXPECT_EQ(shutdowns_, 1);
}

TEST_F(TagServiceTest, ShutdownDoesNotWaitForAStoreThatIsKnownToBeDown) {
  h_.store.AddTag("orders", 10);
  ASSERT_TRUE(Await(Claim("orders", 4)));
  h_.store.script.FailAll({Code::kUnavailable, "gone"});
  ASSERT_TRUE(Await(Attach("cities", std::chrono::milliseconds(1))));
  h_.Settle();
  Shutdown();
  h_.Settle();
  EXPECT_EQ(shutdowns_, 1);
}

TEST_F(TagServiceTest, StaleHandBackLeavesTheMarkAboveWhatWasClaimed) {
  ClientOfNewTag("orders", 10, 4);
  ASSERT_TRUE(h_.store.AbandonActive({}).ok());  // another program closed our lease
  ASSERT_TRUE(ShutsDown());
  EXPECT_GE(h_.marks.mark("orders"), 5U);
  EXPECT_EQ(h_.store.leases()[0].returned, 0U);
}

TEST_F(TagServiceTest, TailBelowAnotherHostsLeaseIsListedAndTheMarkFollows) {
  ClientOfNewTag("orders", 10, 4);
  h_.store.LeaseElsewhere("orders", 100);
  ASSERT_TRUE(ShutsDown());
  ASSERT_EQ(h_.store.returned_ranges().size(), 1U);
  EXPECT_EQ(h_.store.returned_ranges()[0].ids, (IdRange{5, 11}));
  EXPECT_EQ(h_.marks.mark("orders"), 5U) << "otherwise the host could never take its tail again";
}

// Regression: closures that had failed once waited for a poll that never came.
TEST_F(TagServiceTest, ShutdownJournalsClosuresThatFailedBefore) {
  ClientOfNewTag("orders", 10, 10);
  h_.store.script.Fail("CloseLeases", {Code::kInvalid, "busy"});
  PollAndSettle();
  ASSERT_EQ(h_.store.leases()[0].state, LeaseState::kActive);
  ASSERT_TRUE(ShutsDown());
  h_.Settle();
  EXPECT_EQ(h_.store.leases()[0].state, LeaseState::kExhausted);
  EXPECT_EQ(h_.store.leases()[0].claimed, 10U);
}

}  // namespace
}  // namespace idd::daemon
