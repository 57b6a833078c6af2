// SPDX-License-Identifier: Apache-2.0
//
// When a tag leases, and what happens to its leases. Claimers reach the rings as clients do:
// through the descriptors of an attach.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "support/tag_service_fixture.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono::milliseconds;

// --- leasing

TEST_F(TagServiceTest, OneLoaderPerTagWhateverAsks) {
  Client& client = ClientOfNewTag("orders", 10);
  ASSERT_EQ(Leases(), 1);
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  for (int i = 0; i < 20; ++i) {
    Claim("orders", 1);
    service_.Refill("orders");
    service_.Poll();
    Attach("orders");
  }
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 2; }));
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return answered_ == 41; }));
  h_.Settle();
  // On a slow machine these claims are a load that goes on, and its next refill is due already.
  EXPECT_GE(Leases(), 4) << "ten waiters each, and one ahead";
  EXPECT_LE(Leases(), 5);
}

TEST_F(TagServiceTest, NextSegmentIsPrefetchedWhenATenthIsUsed) {
  Client& client = ClientOfNewTag("orders", 1000);
  ASSERT_EQ(Leases(), 1);
  ASSERT_EQ(client.Claim(100).size(), 100U);
  RefillAndSettle("orders");
  EXPECT_EQ(Leases(), 1) << "the mark has not been claimed";
  const shm::SlotClaim marked = client.claimer.Claim(1);
  EXPECT_TRUE(marked.wakes_daemon);
  RefillAndSettle("orders");
  EXPECT_EQ(Leases(), 2);
  ASSERT_EQ(client.Claim(800).size(), 800U);
  service_.Refill("orders");
  PollAndSettle();
  EXPECT_EQ(Leases(), 2) << "one segment ahead and no more";
  EXPECT_EQ(SnapshotOf("orders").leases.size(), 2U);
}

TEST_F(TagServiceTest, PollSeesToAWakeUpThatNeverCame) {
  ClientOfNewTag("orders", 1000, 500);
  PollAndSettle();
  EXPECT_EQ(Leases(), 2);
}

TEST_F(TagServiceTest, MarkTakenByWaitersIsNoticedWithoutAWakeUp) {
  h_.store.AddTag("orders", 100);
  ASSERT_TRUE(Await(Claim("orders", 50)));
  h_.Settle();
  EXPECT_EQ(Leases(), 2);
}

TEST_F(TagServiceTest, ChangedStepIsUsedByTheNextLease) {
  Client& client = ClientOfNewTag("orders", 10);
  h_.store.SetStep("orders", 500);
  ASSERT_EQ(client.Claim(10).size(), 10U);
  RefillAndSettle("orders");
  EXPECT_EQ(h_.store.requests().back().count, 500U);
  EXPECT_EQ(client.Claim(1000), (IdRange{11, 511}));
  EXPECT_EQ(SnapshotOf("orders").step, 500U);
}

TEST_F(TagServiceTest, ChangeIsShownBeforeTheNextLease) {
  h_.store.AddTag("orders", 10);
  AttachedClient("orders");
  TagRecord record;
  record.tag = "orders";
  record.step = 77;
  service_.OnTagChanged(record);
  EXPECT_EQ(SnapshotOf("orders").step, 77U);
  record.tag = "unknown";
  service_.OnTagChanged(record);
  EXPECT_EQ(service_.Snapshot().size(), 1U);
}

TEST_F(TagServiceTest, UnavailableStoreIsTriedAgainWhileWaitersWait) {
  h_.store.AddTag("orders", 10);
  h_.store.script.Fail("TakeLease", {Code::kUnavailable, "busy"}, 2);
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_EQ(Leases(), 3);
}

TEST_F(TagServiceTest, UnavailableStoreAtTheLookUpIsTriedAgainWhileWaitersWait) {
  h_.store.AddTag("orders", 10);
  h_.store.script.Fail("FindTag", {Code::kUnavailable, "busy"}, 2);
  const Answer& attach = Attach("orders");
  const Answer& claim = Claim("orders", 1);
  ASSERT_TRUE(Await(attach) && Await(claim));
  EXPECT_TRUE(attach.status.ok()) << attach.status.message();
  EXPECT_TRUE(claim.status.ok()) << claim.status.message();
}

TEST_F(TagServiceTest, RefusalFailsTheWaitersAtOnceWithTheStoresSentence) {
  h_.store.AddTag("orders", 10);
  h_.store.script.Fail("TakeLease", {Code::kInvalid, "column step is 0"});
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_EQ(answer.status.code(), Code::kInvalid);
  EXPECT_EQ(answer.status.message(), "column step is 0");
  EXPECT_EQ(SnapshotOf("orders").last_error, "column step is 0");
  for (int i = 0; i < 20; ++i) {
    service_.Poll();
    service_.Refill("orders");
  }
  h_.Settle();
  EXPECT_EQ(Leases(), 1) << "a refused lease must not be retried at once";
}

TEST_F(TagServiceTest, LastIdsAreServedAndThenTheTagIsOutOfIds) {
  h_.store.AddTag("orders", 100, 1, 15);
  const Answer& all = Awaited(Claim("orders", 100));
  EXPECT_EQ(all.grant.ids, (IdRange{1, 16}));
  const Answer& none = Awaited(Claim("orders", 1));
  EXPECT_EQ(none.status.code(), Code::kOutOfIds);
}

// Regression: in the pause after a refusal a claim waited for its deadline and got TIMEOUT.
TEST_F(TagServiceTest, EveryClaimOnAUsedUpTagGetsOutOfIds) {
  h_.store.AddTag("orders", 100, 1, 15);
  ASSERT_TRUE(Await(Claim("orders", 100)));
  const Answer& first = Awaited(Claim("orders", 1));
  ASSERT_EQ(first.status.code(), Code::kOutOfIds);
  const Answer& second = Awaited(Claim("orders", 1));
  EXPECT_EQ(second.status.code(), Code::kOutOfIds) << second.status.message();
}

// Regression: for a second after a refusal every claim got the same answer, though another host had
// made it false. OUT_OF_IDS makes clients give up.
TEST_F(TagServiceTest, ClaimAfterARefusalGetsWhatTheStoreSaysNow) {
  h_.store.AddTag("orders", 100, 1, 15);
  ASSERT_TRUE(Await(Claim("orders", 100)));
  const Answer& before = Awaited(Claim("orders", 1));
  ASSERT_EQ(before.status.code(), Code::kOutOfIds);
  h_.store.SetMaxId("orders", 100);
  const Answer& after = Awaited(Claim("orders", 1));
  EXPECT_EQ(after.grant.ids, (IdRange{16, 17})) << after.status.message();
}

// The answer to a lease that was asked for before the tag was changed is no answer to a claim that
// came after the change.
TEST_F(TagServiceTest, RefusalUnderWayIsNoAnswerToALaterClaim) {
  h_.store.AddTag("orders", 100, 1, 15);
  ASSERT_TRUE(Await(Claim("orders", 100)));
  h_.Settle();
  h_.store.script.Fail("TakeLease", {Code::kOutOfIds, "used up"});
  h_.store.script.Hold("TakeLease");
  const int leases = Leases();
  const Answer& before = Claim("orders", 1);
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() > leases; }));
  h_.store.SetMaxId("orders", 100);
  const Answer& after = Claim("orders", 1);
  h_.store.script.Release();
  ASSERT_TRUE(Await(before) && Await(after));
  EXPECT_EQ(before.status.code(), Code::kOutOfIds);
  EXPECT_EQ(after.grant.ids, (IdRange{16, 17})) << after.status.message();
}

// The same for a tag that is created while the store looks for it.
TEST_F(TagServiceTest, LookUpUnderWayIsNoAnswerToALaterClaim) {
  h_.store.script.Fail("FindTag", {Code::kNoSuchTag, "there is no tag 'orders'"});
  h_.store.script.Hold("FindTag");
  const Answer& before = Claim("orders", 1);
  ASSERT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("FindTag") == 1; }));
  h_.store.AddTag("orders", 10);
  const Answer& after = Claim("orders", 1);
  h_.store.script.Release();
  ASSERT_TRUE(Await(before) && Await(after));
  EXPECT_EQ(before.status.code(), Code::kNoSuchTag);
  EXPECT_TRUE(after.status.ok()) << after.status.message();
}

// Clients that ask a used-up tag in a loop must not make a storm of questions.
TEST_F(TagServiceTest, ClaimsAfterARefusalShareFewQuestions) {
  h_.store.AddTag("orders", 100, 1, 15);
  ASSERT_TRUE(Await(Claim("orders", 100)));
  const int leases = Leases();
  const MonotonicTime began = MonotonicClock::now();
  for (int i = 0; i < 4; ++i) {
    const Answer& one = Claim("orders", 1, kLong, 1);
    const Answer& other = Claim("orders", 1, kLong, 2);
    ASSERT_TRUE(Await(one) && Await(other));
    EXPECT_EQ(other.status.code(), Code::kOutOfIds) << other.status.message();
  }
  const auto ms = std::chrono::duration_cast<milliseconds>(MonotonicClock::now() - began).count();
  EXPECT_LE(Leases() - leases, ms / 100 + 2);
}

TEST_F(TagServiceTest, RefusedPrefetchLeavesTheRingsIdsClaimable) {
  h_.store.AddTag("orders", 100, 1, 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  RefillAndSettle("orders");
  EXPECT_EQ(Leases(), 2);
  EXPECT_EQ(Claim("orders", 10, milliseconds(0)).grant.ids, (IdRange{51, 61}));
  EXPECT_EQ(client.Claim(100), (IdRange{61, 101}));
}

TEST_F(TagServiceTest, LeaseBelowTheFloorIsNeverPublished) {
  Client& client = ClientOfNewTag("orders", 10, 0, 1000);
  ASSERT_EQ(client.Claim(10), (IdRange{1000, 1010}));
  h_.store.LieOnce({1, 11});
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_EQ(answer.grant.ids, (IdRange{1010, 1011})) << answer.status.message();
  service_.Poll();  // journals the ends that wait for others
  h_.Settle();
  const auto journal = h_.store.leases();
  ASSERT_GE(journal.size(), 3U);
  EXPECT_EQ(journal[1].ids, (IdRange{1, 11}));
  EXPECT_EQ(journal[1].state, LeaseState::kAbandoned);
  EXPECT_EQ(journal[1].abandoned, 10U);
}

TEST_F(TagServiceTest, RequestCarriesTheMarkAndTheFloor) {
  h_.store.AddTag("orders", 10);
  ASSERT_TRUE(h_.marks.Raise("orders", 5000).ok());
  Client& client = AttachedClient("orders");
  EXPECT_EQ(h_.store.requests()[0].high_water_mark, 5000U);
  EXPECT_EQ(h_.store.requests()[0].floor, 0U);
  EXPECT_EQ(client.Claim(100), (IdRange{5000, 5010}));
  RefillAndSettle("orders");
  EXPECT_EQ(h_.store.requests()[1].floor, 5010U);
  EXPECT_EQ(h_.store.requests()[1].high_water_mark, 5010U);
  EXPECT_NE(h_.store.requests()[0].token, h_.store.requests()[1].token);
}

TEST_F(TagServiceTest, MarkIsRaisedBeforeTheSegmentIsPublished) {
  h_.store.AddTag("orders", 10);
  h_.marks.script.Hold("Raise");
  const Answer& attach = Attach("orders");
  const Answer& claim = Claim("orders", 1);
  ASSERT_TRUE(Await(attach));
  ASSERT_TRUE(h_.RunUntil([&] { return h_.marks.script.Count("Raise") == 1; }));
  EXPECT_EQ(Leases(), 1);
  EXPECT_TRUE(clients_.back()->Claim(1).empty());
  EXPECT_FALSE(claim.done());
  h_.marks.script.Release();
  ASSERT_TRUE(Await(claim));
  EXPECT_EQ(h_.marks.mark("orders"), 11U);
}

TEST_F(TagServiceTest, LeaseWhoseMarkCannotBeKeptGoesBackWholeAndIsNeverServed) {
  h_.store.AddTag("orders", 10);
  h_.marks.script.Fail("Raise", {Code::kUnavailable, "state dir is full"});
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_TRUE(answer.status.ok()) << "the next try succeeds";
  const auto journal = h_.store.leases();
  ASSERT_EQ(journal.size(), 2U);
  EXPECT_EQ(journal[0].state, LeaseState::kReturned);
  EXPECT_EQ(journal[0].returned, 10U);
  EXPECT_EQ(h_.store.returned_tails()[0].claimed, 0U);
  EXPECT_EQ(answer.grant.ids, (IdRange{1, 2})) << "no gap either: no host had them";
}

TEST_F(TagServiceTest, MarkThatCannotBeKeptIsTheWaitersReason) {
  h_.store.AddTag("orders", 10);
  h_.marks.script.Fail("Raise", {Code::kUnavailable, "state dir is full"}, 100);
  const Answer& answer = Awaited(Claim("orders", 1, milliseconds(1000)));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_NE(answer.status.message().find("state dir is full"), std::string::npos)
      << answer.status.message();
}

TEST_F(TagServiceTest, NothingIsLeasedWhileTheMarkCannotBeRead) {
  h_.store.AddTag("orders", 10);
  h_.marks.script.Fail("Get", {Code::kUnavailable, "state dir is gone"});
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(Leases(), 1) << "the first try ended before the store was asked";
}

TEST_F(TagServiceTest, ReturnedRangesAreServedLikeAnyLease) {
  h_.store.AddTag("orders", 10);
  h_.marks.script.Fail("Raise", {Code::kUnavailable, "full"});
  h_.store.script.Hold("ReturnTail");
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("ReturnTail") == 1; }));
  h_.store.LeaseElsewhere("orders", 100);  // so that the tail can only be listed
  h_.store.script.Release();
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.grant.ids, (IdRange{1, 2}));
  EXPECT_TRUE(h_.store.returned_ranges().empty());
}

// --- closing

TEST_F(TagServiceTest, ExhaustedLeaseIsClosedInTheJournal) {
  ClientOfNewTag("orders", 10, 10);
  PollAndSettle();
  const LeaseRecord lease = h_.store.leases()[0];
  EXPECT_EQ(lease.state, LeaseState::kExhausted);
  EXPECT_EQ(lease.claimed, 10U);
  EXPECT_FALSE(service_.LiveLeases().contains(lease.token));
}

TEST_F(TagServiceTest, ClosureThatFailedIsTriedAgainAndStaysLiveUntilThen) {
  ClientOfNewTag("orders", 10, 10);
  h_.store.script.Fail("CloseLeases", {Code::kUnavailable, "busy"});
  PollAndSettle();
  const LeaseRecord lease = h_.store.leases()[0];
  EXPECT_EQ(lease.state, LeaseState::kActive);
  ASSERT_TRUE(service_.LiveLeases().contains(lease.token));
  EXPECT_EQ(service_.LiveLeases()[lease.token].state, LeaseState::kExhausted);
  EXPECT_EQ(service_.LiveLeases()[lease.token].claimed, 10U);
  ASSERT_TRUE(h_.RunUntil([&] {
    service_.Poll();
    return h_.store.leases()[0].state == LeaseState::kExhausted;
  }));
}

// --- a store that is replaced under the daemon

class ReplacedStoreTest : public TagServiceTest {
 protected:
  ReplacedStoreTest() : TagServiceTest(Recover) {}

  // The active leases of the journal and of the service, which must be the same.
  void ExpectJournalKnowsTheRings() {
    std::vector<std::string> active;
    for (const LeaseRecord& lease : h_.store.leases()) {
      if (lease.state == LeaseState::kActive) active.push_back(lease.token);
    }
    std::vector<std::string> live;
    for (const auto& [token, closure] : service_.LiveLeases()) live.push_back(token);
    std::sort(active.begin(), active.end());
    EXPECT_EQ(active, live);
  }
};

// The tag is not deleted: this is another database.
TEST_F(ReplacedStoreTest, RingGoesOnWhenItsTagIsNotInTheOtherDatabase) {
  Client& client = ClientOfNewTag("orders", 10, 5);
  h_.store.RemoveTag("orders");
  h_.store.ForgetLeases();
  h_.store.Replace("fedcba9876543210");
  RefillAndSettle("orders");
  EXPECT_EQ(client.claimer.state(), shm::RingState::kActive);
  EXPECT_EQ(client.Claim(5), (IdRange{6, 11}));
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_EQ(answer.status.code(), Code::kNoSuchTag);
  EXPECT_NE(answer.status.message().find("not the database"), std::string::npos)
      << answer.status.message();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kActive);
}

// The refusal outlived the creation, so that programs got NO_SUCH_TAG, which they do not try again.
TEST_F(ReplacedStoreTest, TagThatIsCreatedInTheOtherDatabaseIsRefusedNoLonger) {
  ClientOfNewTag("orders", 10, 10);
  h_.store.RemoveTag("orders");
  h_.store.ForgetLeases();
  h_.store.Replace("fedcba9876543210");
  const Answer& refused = Awaited(Claim("orders", 1));
  ASSERT_EQ(refused.status.code(), Code::kNoSuchTag);
  h_.store.AddTag("orders", 10, 1000);
  service_.OnTagsCreated({"orders"});
  EXPECT_EQ(SnapshotOf("orders").last_error, "");
  const Answer& next = Awaited(Claim("orders", 1));
  EXPECT_TRUE(next.status.ok()) << next.status.message();
  EXPECT_EQ(next.grant.ids, (IdRange{1000, 1001}));
}

TEST_F(ReplacedStoreTest, NothingIsLeasedBeforeTheOtherHostsHavePushedTheirMarks) {
  Client& client = ClientOfNewTag("orders", 10);
  h_.store.Replace("0123456789abcdef");
  const MonotonicTime began = MonotonicClock::now();
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const Answer& early = Claim("orders", 1, milliseconds(500));
  const Answer& patient = Claim("orders", 1);
  ASSERT_TRUE(Await(early));
  EXPECT_NE(early.status.message().find("replaced"), std::string::npos) << early.status.message();
  EXPECT_EQ(Leases(), 1);
  // Leases that another host takes meanwhile.
  h_.store.LeaseElsewhere("orders", 5000);
  ASSERT_TRUE(Await(patient));
  EXPECT_TRUE(patient.status.ok()) << patient.status.message();
  EXPECT_EQ(patient.grant.ids, (IdRange{5011, 5012}));
  EXPECT_GE(MonotonicClock::now() - began, h_.store.reconcile_window());
}

TEST_F(ReplacedStoreTest, LeasesInUseAreJournalledInAnOlderCopy) {
  Client& client = ClientOfNewTag("orders", 10, 5);
  RefillAndSettle("orders");
  ASSERT_EQ(service_.LiveLeases().size(), 2U);
  h_.store.ForgetLeases();
  h_.store.AddTag("orders", 10, 1);
  h_.store.Replace("0123456789abcdef");
  PollAndSettle();
  EXPECT_EQ(h_.store.next_id("orders"), 21U) << "it must be noticed without a request for ids";
  ExpectJournalKnowsTheRings();
  ASSERT_EQ(client.Claim(5).size(), 5U);
  RefillAndSettle("orders");
  EXPECT_EQ(h_.store.leases()[0].ids.size() + h_.store.leases()[1].ids.size(), 20U);
  ExpectJournalKnowsTheRings();
}

TEST_F(ReplacedStoreTest, LeasesThatEndedSinceAreAbandonedInAnOlderCopy) {
  Client& client = ClientOfNewTag("orders", 10);
  const simulation::DataSet copy = h_.store.data();
  ASSERT_EQ(client.Claim(10).size(), 10U);
  PollAndSettle();
  ASSERT_EQ(h_.store.leases().front().state, LeaseState::kExhausted);
  h_.store.Replace(copy);
  PollAndSettle();
  EXPECT_EQ(h_.store.leases().front().state, LeaseState::kAbandoned);
  ExpectJournalKnowsTheRings();
}

}  // namespace
}  // namespace idd::daemon
