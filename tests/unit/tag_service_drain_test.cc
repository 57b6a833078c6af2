// SPDX-License-Identifier: Apache-2.0
//
// Tags that an operator takes out of use and returns to use, over an in-memory store. Claimers
// reach the rings as clients do: through the descriptors of an attach.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "access/access_rules.h"
#include "admin/admin.h"
#include "support/tag_service_fixture.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using shm::RingState;

class DrainTest : public TagServiceTest {
 protected:
  DrainTest() {
    h_.store.AddTag("orders", 100);
    h_.store.AddTag("users", 100);
  }

  std::uint64_t ClaimOne(const std::string& tag) {
    const Answer& answer = Awaited(Claim(tag, 1));
    EXPECT_TRUE(answer.status.ok()) << answer.status.message();
    return answer.grant.ids.first;
  }
  // Half of the ring is claimed, and the store holds up the next lease.
  void BeginLease() {
    Client& client = AttachedClient("orders");
    h_.store.script.Hold("TakeLease");
    const int leases = Leases();
    (void)client.Claim(50);
    service_.Refill("orders");
    ASSERT_TRUE(h_.RunUntil([&] { return Leases() > leases; }));
  }
  void Drain(const std::string& scope) {
    service_.Drain(scope);
    h_.Settle();
  }
  void Resume(const std::string& scope) {
    service_.Resume(scope);
    h_.Settle();
  }
  [[nodiscard]] std::string StateOf(const std::string& tag) const {
    const TagSnapshot snapshot = SnapshotOf(tag);
    return snapshot.tag == tag ? TagStateName(snapshot.state) : "";
  }
  // The base of the store's next lease.
  [[nodiscard]] std::uint64_t NextId(const std::string& tag) {
    return h_.store.FindTag(tag).value().next_id;
  }
  [[nodiscard]] DrainCount CountOf(const std::string& scope) const {
    return service_.ProgressOf(scope).count;
  }
  // The host has nothing open, and every lease adds up.
  void ExpectAllClosed() {
    PollAndSettle();  // journals the ends that wait for others
    for (const LeaseRecord& lease : h_.store.leases()) {
      EXPECT_NE(lease.state, LeaseState::kActive) << lease.ids.first;
      ExpectAccounted(lease);
    }
    EXPECT_TRUE(service_.LiveLeases().empty());
  }
};

TEST_F(DrainTest, RefusesAtOnceWithAReasonThatSaysWhatToDo) {
  Client& client = AttachedClient("orders");
  Drain("orders");
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(client.state(), RingState::kDrained);
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(answer.done()) << "it must not wait";
  EXPECT_EQ(answer.status.code(), Code::kUnavailable);
  EXPECT_NE(answer.status.message().find("idctl resume orders"), std::string::npos);
  EXPECT_EQ(StateOf("orders"), "drained");
  EXPECT_NE(ClaimOne("users"), 0U) << "another tag notices nothing";
}

TEST_F(DrainTest, FailsWhoWaits) {
  h_.store.script.Hold("TakeLease");
  const Answer& waiter = Claim("orders", 1);
  ASSERT_TRUE(h_.RunUntil([this] { return Leases() == 1; }));
  service_.Drain("orders");
  ASSERT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status.code(), Code::kUnavailable);
  h_.store.script.Release();
  h_.Settle();
  ExpectAllClosed();
  EXPECT_EQ(NextId("orders"), 1U);
}

TEST_F(DrainTest, FailsWhoWaitsForATagToBeLookedUp) {
  h_.store.script.Hold("FindTag");
  const Answer& waiter = Claim("orders", 1);
  service_.Drain(kWholeHost);
  EXPECT_TRUE(waiter.done());
  h_.store.script.Release();
  h_.Settle();
  EXPECT_EQ(Leases(), 0);
  EXPECT_EQ(StateOf("orders"), "drained");
}

TEST_F(DrainTest, HandsBackNewestFirstDownToTheFirstUnclaimedId) {
  Client& client = AttachedClient("orders");
  EXPECT_EQ(client.Claim(37), (IdRange{1, 38}));
  RefillAndSettle("orders");
  ASSERT_GE(h_.store.leases().size(), 2U) << "one is prefetched";
  const int leases = Leases();
  Drain("orders");
  EXPECT_EQ(NextId("orders"), 38U);
  EXPECT_EQ(h_.marks.mark("orders"), 38U);
  const DrainCount count = CountOf("orders");
  EXPECT_EQ(count.ids_returned, static_cast<std::uint64_t>(leases) * 100 - 37);
  EXPECT_EQ(count.ids_pending + count.ids_abandoned + count.leases_pending, 0U);
  ExpectAllClosed();
  for (int i = 0; i < 3; ++i) {
    service_.Refill("orders");
    PollAndSettle();
  }
  EXPECT_EQ(Leases(), leases) << "nothing is leased";
}

TEST_F(DrainTest, ResumedTagGoesOnWithoutAGapInANewRing) {
  Client& before = AttachedClient("orders");
  (void)before.Claim(37);
  Drain("orders");
  Resume("orders");
  EXPECT_EQ(before.state(), RingState::kRetired) << "its clients must attach again";
  Client& after = AttachedClient("orders");
  EXPECT_NE(after.memory->ring_id(), before.memory->ring_id());
  EXPECT_EQ(after.Claim(1), (IdRange{38, 39}));
  EXPECT_EQ(StateOf("orders"), "ok");
  EXPECT_EQ(CountOf("orders").ids_returned, 0U) << "of a drain that is over";
}

// Regression: near its end a tag is refused a prefetch each second. For a second after a resume its
// claims got OUT_OF_IDS, though the host had handed 40 ids back.
TEST_F(DrainTest, ResumedTagAtItsEndLeasesWhatWentBack) {
  h_.store.AddTag("last", 100, 1, 100);
  Client& client = AttachedClient("last");
  ASSERT_EQ(client.Claim(60).size(), 60U);
  RefillAndSettle("last");
  ASSERT_EQ(Leases(), 2) << "the second is refused";
  Drain("last");
  Resume("last");
  EXPECT_EQ(ClaimOne("last"), 61U);
}

TEST_F(DrainTest, BothAreIdempotent) {
  Client& client = AttachedClient("orders");
  (void)client.Claim(5);
  Resume("orders");
  EXPECT_EQ(client.state(), RingState::kActive) << "it was not drained";
  Drain("orders");
  const DrainCount once = CountOf("orders");
  Drain("orders");
  EXPECT_EQ(CountOf("orders").ids_returned, once.ids_returned);
  EXPECT_EQ(h_.store.returned_tails().size(), static_cast<std::size_t>(Leases()));
  Resume("orders");
  Resume("orders");
  EXPECT_EQ(AttachedClient("orders").Claim(1), (IdRange{6, 7}));
}

// The newest tail lowers max_id first, and a lease in progress is the newest.
TEST_F(DrainTest, LeaseUnderWayIsWaitedForAndGoesBackFirst) {
  ASSERT_NO_FATAL_FAILURE(BeginLease());
  service_.Drain("orders");
  EXPECT_TRUE(service_.ProgressOf("orders").is_leasing);
  EXPECT_FALSE(service_.ProgressOf("orders").done());
  EXPECT_EQ(h_.store.returned_tails().size(), 0U);
  h_.store.script.Release();
  h_.Settle();
  EXPECT_TRUE(service_.ProgressOf("orders").done());
  ExpectAllClosed();
  EXPECT_EQ(NextId("orders"), 51U);
  Resume("orders");
  EXPECT_EQ(ClaimOne("orders"), 51U) << "no gap";
}

// An operator who resumes while a lease is in progress loses no tail.
TEST_F(DrainTest, ResumedAndDrainedAgainWhileALeaseIsUnderWay) {
  ASSERT_NO_FATAL_FAILURE(BeginLease());
  service_.Drain("orders");
  service_.Resume("orders");
  service_.Drain("orders");
  h_.store.script.Release();
  h_.Settle();
  EXPECT_TRUE(service_.ProgressOf("orders").done());
  ExpectAllClosed();
  service_.Resume("orders");
  h_.Settle();
  EXPECT_EQ(ClaimOne("orders"), 51U);
}

TEST_F(DrainTest, WholeHostMeansTagsThatAreAskedForLaterToo) {
  (void)AttachedClient("orders");
  Drain(kWholeHost);
  const Answer& later = Claim("users", 1);
  ASSERT_TRUE(later.done());
  EXPECT_EQ(later.status.code(), Code::kUnavailable);
  EXPECT_NE(later.status.message().find("'idctl resume' ends it"), std::string::npos)
      << later.status.message();
  Drain("orders");
  Resume(kWholeHost);
  EXPECT_EQ(ClaimOne("users"), 1U);
  EXPECT_TRUE(Claim("orders", 1).done()) << "it was drained by its name as well";
  EXPECT_EQ(StateOf("orders"), "drained");
  Resume("orders");
  EXPECT_EQ(ClaimOne("orders"), 1U);
}

TEST_F(DrainTest, OfAHostThatIsResumedTagsThatAreAskedForGoFirst) {
  constexpr int kTags = 12;
  const auto tag = [](int i) { return "tag" + std::to_string(10 + i); };
  for (int i = 0; i < kTags; ++i) {
    h_.store.AddTag(tag(i), 100);
    (void)AttachedClient(tag(i));
  }
  Drain(kWholeHost);
  h_.store.script.Hold("TakeLease");
  const int before = Leases();
  service_.Resume(kWholeHost);
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == before + 1; }));
  const Answer& last = Claim(tag(kTags - 1), 1);
  h_.store.script.Release();
  ASSERT_TRUE(Await(last));
  EXPECT_TRUE(last.status.ok()) << last.status.message();
  EXPECT_LT(Leases(), before + kTags) << "it waited for all the others";
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() >= before + kTags; })) << "they come, too";
}

TEST_F(DrainTest, TailsThatTheStoreDoesNotTakeGoBackLater) {
  Client& client = AttachedClient("orders");
  (void)client.Claim(10);
  h_.store.script.FailAll({Code::kUnavailable, "gone"});
  Drain("orders");
  EXPECT_GT(CountOf("orders").ids_pending, 0U);
  EXPECT_EQ(CountOf("orders").ids_returned, 0U);
  EXPECT_TRUE(Claim("orders", 1).done()) << "it must still be refused";
  // Nothing is leased above tails that are not back.
  Resume("orders");
  const int leases = Leases();
  h_.store.script.FailAll(Status::Ok());
  ASSERT_TRUE(h_.RunUntil([this] {
    service_.Poll();
    return !service_.drains().IsReturning("orders");
  }));
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() > leases; }));
  EXPECT_EQ(ClaimOne("orders"), 11U);
}

TEST_F(DrainTest, ForgedRingGivesNothingBack) {
  Client& client = AttachedClient("orders");
  (void)client.Claim(50);
  PollAndSettle();
  client.memory->cursors().slots[1].next.store(3, std::memory_order_relaxed);
  const std::uint64_t next = NextId("orders");
  Drain("orders");
  EXPECT_EQ(NextId("orders"), next);
  EXPECT_GT(CountOf("orders").ids_abandoned, 0U);
  EXPECT_EQ(CountOf("orders").ids_returned, 0U);
  ExpectAllClosed();
  std::vector<TagSample> samples;
  static_cast<void>(service_.SampleTags("", 10, samples));
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].quarantines, 1U) << "it must be counted, and an alert raised";
  // Nor does looking at a drained tag bring another ring.
  service_.Refill("orders");
  PollAndSettle();
  EXPECT_EQ(StateOf("orders"), "drained");
  EXPECT_EQ(client.state(), RingState::kDrained);
  Resume("orders");
  EXPECT_EQ(ClaimOne("orders"), next);
  EXPECT_EQ(StateOf("orders"), "quarantined") << "as after any forged ring";
}

TEST_F(DrainTest, WhatAClientWritesIntoADrainedRingIsOfNoConsequence) {
  Client& client = AttachedClient("orders");
  (void)client.Claim(50);
  Drain("orders");
  for (auto& slot : client.memory->cursors().slots) slot.next.store(1, std::memory_order_relaxed);
  EXPECT_TRUE(client.Claim(5).empty());
  service_.OnForged("orders", {h_.store.leases().front().token});
  for (int i = 0; i < 3; ++i) service_.Poll();
  Resume("orders");
  EXPECT_TRUE(client.Claim(5).empty());
  EXPECT_EQ(ClaimOne("orders"), 51U);
}

TEST_F(DrainTest, ChangesOfTheTagAreKnownWhenItIsResumed) {
  Client& client = AttachedClient("orders");
  (void)client.Claim(50);
  Drain("orders");
  const int leases = Leases();
  h_.store.SetAccess("orders", TagAccess::kSocket);
  service_.OnTagChanged(h_.store.FindTag("orders").value());
  EXPECT_TRUE(service_.Withdraw("orders", client.memory->ring_id()));
  PollAndSettle();
  EXPECT_EQ(Leases(), leases);
  EXPECT_EQ(client.state(), RingState::kDrained) << "the same ring, closed";
  EXPECT_EQ(StateOf("orders"), "drained");
  Resume("orders");
  AttachGrant granted{.ring_id = 5};
  service_.Attach("orders", {.owner = 1, .deadline = Deadline::After(kLong)},
                  [&](const Result<AttachGrant>& grant) { granted = grant.value(); });
  EXPECT_EQ(granted.ring_id, 0U) << "its ids are now claimed over the socket";
  EXPECT_EQ(ClaimOne("orders"), 51U);
}

TEST_F(DrainTest, DeletedTagIsForgotten) {
  Client& client = AttachedClient("orders");
  (void)client.Claim(50);
  h_.store.script.Fail("ReturnTail", {Code::kUnavailable, "gone"}, 2);
  Drain("orders");
  ASSERT_TRUE(h_.store.DeleteTag("orders").ok());
  service_.OnTagDeleted("orders");
  EXPECT_FALSE(service_.drains().Has("orders"));
  EXPECT_EQ(client.state(), RingState::kRetired);
  const Answer& answer = Awaited(Claim("orders", 1));
  EXPECT_EQ(answer.status.code(), Code::kNoSuchTag);
  ASSERT_TRUE(h_.RunUntil([this] {
    service_.Poll();
    return service_.LiveLeases().empty();
  }));
  ExpectAllClosed();
}

TEST_F(DrainTest, DeletedWhileALeaseIsUnderWay) {
  ASSERT_NO_FATAL_FAILURE(BeginLease());
  service_.Drain("orders");
  service_.OnTagDeleted("orders");
  h_.store.script.Release();
  h_.Settle();
  ExpectAllClosed();
}

TEST_F(DrainTest, WarmUpLeasesNothingForIt) {
  service_.LoadDrained({"orders"});
  bool is_warm = false;
  service_.Warm({"orders", "users"}, [&is_warm] { is_warm = true; });
  ASSERT_TRUE(h_.RunUntil([&] { return is_warm; }));
  EXPECT_EQ(StateOf("orders"), "drained");
  EXPECT_EQ(NextId("orders"), 1U);
  EXPECT_GT(NextId("users"), 1U);
}

// Killed between the record of the drain and its end: the next idd finds both.
TEST_F(DrainTest, InheritedLeasesOfADrainedTagGoBack) {
  const Lease older = h_.store.TakeLease({.tag = "orders", .count = 100, .token = "a"}).value();
  const Lease newer = h_.store.TakeLease({.tag = "orders", .count = 100, .token = "b"}).value();
  const TagRecord record = h_.store.FindTag("orders").value();
  Inheritance inheritance;
  inheritance.tags.push_back({.tag = "orders", .leases = {}, .rings = {}});
  for (const Lease* lease : {&older, &newer}) {
    inheritance.tags.back().leases.push_back({.state = HeldState::kHeld,
                                              .lease = *lease,
                                              .next = lease->ids.first + (lease == &older ? 37 : 0),
                                              .record = record});
  }
  service_.LoadDrained({"orders"});
  service_.Inherit(inheritance);
  service_.TakeOverAll();
  EXPECT_GT(CountOf("orders").ids_pending, 0U);
  h_.Settle();
  EXPECT_EQ(NextId("orders"), 38U);
  EXPECT_EQ(CountOf("orders").ids_returned, 163U);
  EXPECT_EQ(StateOf("orders"), "drained");
  ExpectAllClosed();
  Resume("orders");
  EXPECT_EQ(ClaimOne("orders"), 38U);
}

TEST_F(DrainTest, StopWhileALeaseOfADrainedTagIsUnderWayHandsAllBack) {
  ASSERT_NO_FATAL_FAILURE(BeginLease());
  service_.Drain("orders");
  bool is_stopped = false;
  service_.Shutdown([&is_stopped] { is_stopped = true; });
  EXPECT_EQ(clients_.back()->state(), RingState::kRetired);
  h_.store.script.Release();
  ASSERT_TRUE(h_.RunUntil([&] { return is_stopped; }));
  ExpectAllClosed();
}

class DrainRequestTest : public DrainTest {
 protected:
  MetricsCollector metrics_{h_.loop, service_};
  const ClientLedger ledger_;
  Admin admin_{h_.loop,
               {},
               {.worker = h_.worker,
                .tags = service_,
                .metrics = metrics_,
                .clients = ledger_,
                .open_reader = h_.reader()}};
  const PeerRights root_{std::make_shared<const AccessRules>(), Peer{}};
};

// A drain that could not be recorded does not happen; its end is recorded anyway, as the record may
// exist.
TEST_F(DrainRequestTest, DrainThatCannotBeNotedClosesNothing) {
  const auto ask = [&](const std::string& request) {
    std::optional<Status> answer;
    admin_.Handle(request, root_,
                  [&answer](const Status& status, const std::string&) { answer = status; });
    EXPECT_TRUE(h_.RunUntil([&answer] { return answer.has_value(); }));
    return answer.value_or(Status(Code::kTimeout, "no answer"));
  };
  Client& client = AttachedClient("orders");
  h_.marks.script.Fail("SetDrained", {Code::kUnavailable, "no room"});
  const Status failed = ask(R"({"op":"drain","tag":"orders"})");
  EXPECT_NE(failed.message().find("no room"), std::string::npos) << failed.message();
  EXPECT_EQ(client.state(), RingState::kActive);
  EXPECT_EQ(ask(R"({"op":"resume","tag":"orders"})").message(), "");
  EXPECT_EQ(h_.marks.script.Count("SetDrained"), 2);
  // A known drain is not recorded again.
  EXPECT_EQ(ask(R"({"op":"resume","tag":"orders"})").message(), "");
  EXPECT_EQ(h_.marks.script.Count("SetDrained"), 2);
  EXPECT_EQ(ask(R"({"op":"drain","tag":"orders"})").message(), "");
  EXPECT_EQ(client.state(), RingState::kDrained);
  EXPECT_EQ(h_.marks.Drained().value(), std::vector<std::string>{"orders"});
}

// Concurrent requests: in whatever order they complete, a namesake is not drained, not even by the
// next idd.
TEST_F(DrainRequestTest, DeletionBesideADrainLeavesNothingNoted) {
  const std::string drain = R"({"op":"drain","tag":"orders"})";
  const std::string deletion = R"({"op":"tag.delete","tag":"orders","force":true})";
  for (const bool is_drained_first : {true, false}) {
    (void)AttachedClient("orders");
    int answers = 0;
    const auto count = [&answers](const Status&, const std::string&) { ++answers; };
    admin_.Handle(is_drained_first ? drain : deletion, root_, count);
    admin_.Handle(is_drained_first ? deletion : drain, root_, count);
    ASSERT_TRUE(h_.RunUntil([&answers] { return answers == 2; }));
    EXPECT_FALSE(service_.drains().Has("orders"));
    EXPECT_TRUE(h_.marks.Drained().value().empty());
    h_.store.AddTag("orders", 100, NextId("users") + 10'000);
    EXPECT_NE(ClaimOne("orders"), 0U);
  }
}

// A store that accepts one tail and refuses another, as when one row is locked for a moment.
TEST_F(DrainTest, TailsGoBackThoughTheNewestFailsOnce) {
  Client& client = AttachedClient("orders");
  (void)client.Claim(37);
  RefillAndSettle("orders");
  ASSERT_GE(h_.store.leases().size(), 2U) << "one is prefetched";
  h_.store.script.Fail("ReturnTail", {Code::kUnavailable, "locked"});
  Drain("orders");
  ASSERT_TRUE(h_.RunUntil([this] {
    service_.Poll();
    return service_.ProgressOf("orders").done();
  }));
  // The older tail may have come before it: then max_id is at its end, and it is listed.
  EXPECT_TRUE(NextId("orders") == 38U || NextId("orders") == 101U) << NextId("orders");
  ExpectAllClosed();
  Resume("orders");
  EXPECT_EQ(ClaimOne("orders"), 38U) << "no gap";
}

// Real claimers on their own threads, beside drains and resumes: no id twice, none lost.
TEST_F(DrainTest, ClaimersBesideManyDrainsGetEveryIdOnce) {
  constexpr int kRounds = 30;
  constexpr int kThreads = 3;
  std::set<std::uint64_t> all;
  for (int round = 0; round < kRounds; ++round) {
    Client& client = AttachedClient("orders");
    std::atomic<int> claiming{0};
    std::vector<std::vector<std::uint64_t>> claimed(kThreads);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (auto& mine : claimed) {
      threads.emplace_back([&client, &mine, &claiming] {
        ++claiming;
        while (client.state() == RingState::kActive) {
          const IdRange ids = client.Claim(3);
          for (std::uint64_t id = ids.first; id < ids.limit; ++id) mine.push_back(id);
        }
      });
    }
    ASSERT_TRUE(h_.RunUntil([&] { return claiming == kThreads; }));
    service_.Refill("orders");
    Drain("orders");
    for (std::thread& thread : threads) thread.join();
    for (const auto& mine : claimed) {
      for (const std::uint64_t id : mine) EXPECT_TRUE(all.insert(id).second) << id << " came twice";
    }
    const std::uint64_t next = NextId("orders");
    for (const std::uint64_t id : all) EXPECT_LT(id, next);
    // Ids that a claimer did not accept are a gap; nothing else is between the claimed ids and
    // max_id.
    EXPECT_TRUE(service_.ProgressOf("orders").done());
    ExpectAllClosed();
    Resume("orders");
  }
  EXPECT_FALSE(all.empty());
}

}  // namespace
}  // namespace idd::daemon
