// SPDX-License-Identifier: Apache-2.0
//
// Rings, waiters and refills over a store in memory. Claimers reach the rings as clients do:
// through the descriptors of an attach.
#include "tags/tag_service.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "config/options.h"
#include "idd/shm/ring_memory.h"
#include "support/ring_client.h"
#include "support/service_harness.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono::milliseconds;

class TagServiceTest : public ::testing::Test {
 protected:
  explicit TagServiceTest(LeaseWorker::Recovery recovery =
                              [](Store&, HighWaterMarks&, StoreSession&) { return Status::Ok(); }) {
    h_.Start([this](const StoreHealth& health) { service_.OnStoreHealth(health); },
             std::move(recovery));
  }
  ~TagServiceTest() override { h_.store.script.Release(); }

  Answer& Claim(const std::string& tag, std::uint64_t count, milliseconds timeout = kLong,
                std::uint64_t owner = 1, std::uint64_t ring_id = 0) {
    Answer& answer = answers_.emplace_back();
    service_.Claim(tag, ring_id, count, {.owner = owner, .deadline = Deadline::After(timeout)},
                   [this, &answer](const Result<ClaimGrant>& grant) {
                     Note(answer, grant.status());
                     if (grant.ok()) answer.grant = grant.value();
                   });
    return answer;
  }
  Answer& Attach(const std::string& tag, milliseconds timeout = kLong, std::uint64_t owner = 1) {
    Answer& answer = answers_.emplace_back();
    service_.Attach(tag, {.owner = owner, .deadline = Deadline::After(timeout)},
                    [this, &answer, tag](const Result<AttachGrant>& grant) {
                      Note(answer, grant.status());
                      if (!grant.ok()) return;
                      answer.attached = grant.value();
                      if (grant.value().ring_id != 0) Map(tag, grant.value());
                    });
    return answer;
  }
  // As an administrator changes it, here.
  void ChangeAccess(const std::string& tag, TagAccess access) {
    h_.store.SetAccess(tag, access);
    const Result<std::vector<TagRecord>> all = h_.store.ListTags();
    for (const TagRecord& record : all.value()) {
      if (record.tag == tag) service_.OnTagChanged(record);
    }
  }
  // What a claim is answered at once.
  ClaimGrant Granted(const std::string& tag, std::uint64_t count, std::uint64_t ring_id = 0) {
    const Answer& answer = Claim(tag, count, kLong, 1, ring_id);
    EXPECT_TRUE(answer.done() && answer.status.ok()) << answer.status.message();
    return answer.grant;
  }
  // Attaches and returns the client, whose ring has its first segment.
  Client& AttachedClient(const std::string& tag) {
    const Answer& answer = Attach(tag);
    EXPECT_TRUE(h_.RunUntil([&] { return answer.done(); }));
    EXPECT_TRUE(answer.status.ok()) << answer.status.message();
    h_.Settle();
    return *clients_.back();
  }
  [[nodiscard]] bool Await(const Answer& answer) {
    return h_.RunUntil([&] { return answer.done(); });
  }
  [[nodiscard]] TagSnapshot SnapshotOf(const std::string& tag) const {
    for (const TagSnapshot& snapshot : service_.Snapshot()) {
      if (snapshot.tag == tag) return snapshot;
    }
    return {};
  }
  [[nodiscard]] int Leases() const { return h_.store.script.Count("TakeLease"); }
  void Shutdown() {
    service_.Shutdown([this] { ++shutdowns_; });
  }

  static void ExpectAccounted(const LeaseRecord& lease) {
    EXPECT_EQ(lease.claimed + lease.returned + lease.abandoned, lease.ids.size()) << lease.token;
  }

  WorkerHarness h_;
  TagService service_{h_.loop, h_.worker, h_.handover(), kDefaultLeasesPerSecond};
  std::deque<Answer> answers_;
  std::vector<std::unique_ptr<Client>> clients_;
  int answered_ = 0;
  int shutdowns_ = 0;

 private:
  void Note(Answer& answer, const Status& status) {
    ++answer.times;
    answer.order = ++answered_;
    answer.status = status;
  }
  void Map(const std::string& tag, const AttachGrant& grant) {
    auto memory =
        shm::RingMemory::Attach(ScopedFd(::fcntl(grant.table_fd, F_DUPFD_CLOEXEC, 0)),
                                ScopedFd(::fcntl(grant.cursors_fd, F_DUPFD_CLOEXEC, 0)), tag);
    ASSERT_TRUE(memory.ok()) << memory.status().message();
    EXPECT_EQ(memory.value()->ring_id(), grant.ring_id);
    clients_.push_back(std::make_unique<Client>(std::move(memory).value()));
  }
};

// --- looking tags up

TEST_F(TagServiceTest, AttachGivesARingThatIsThenFilled) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
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
  // Nothing of it was kept: created meanwhile, it is found.
  h_.store.AddTag("nobody", 10);
  const Answer& again = Attach("nobody");
  ASSERT_TRUE(Await(again));
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

TEST_F(TagServiceTest, ModeThatThisVersionDoesNotServeIsRefused) {
  h_.store.AddTag("orders", 100);
  h_.store.SetMode("orders", "snowflake");
  const Answer& answer = Attach("orders");
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kInvalid);
  EXPECT_NE(answer.status.message().find("snowflake"), std::string::npos);
  EXPECT_EQ(Leases(), 0);
}

TEST_F(TagServiceTest, RefillOfATagNobodyUsesDoesNothing) {
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(Leases(), 0);
  EXPECT_TRUE(service_.Snapshot().empty());
}

TEST_F(TagServiceTest, ShutdownIsDoneOnlyWhenEveryTagHasHandedBack) {
  h_.store.AddTag("a-used-up", 100, 101, 100);
  h_.store.AddTag("orders", 100);
  const Answer& refused = Claim("a-used-up", 1);
  ASSERT_TRUE(Await(refused));
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

TEST_F(TagServiceTest, WarmedTagsAreLeasedBeforeAnybodyAsks) {
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
  EXPECT_TRUE(service_.Snapshot().empty()) << "nothing is kept of what could not be looked up";
}

TEST_F(TagServiceTest, WarmingTellsOfNothingThatIsNotThere) {
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
  service_.Poll();
  h_.Settle();
  EXPECT_FALSE(SnapshotOf("orders").exhausted_in_days.has_value()) << "nobody claims";
  ASSERT_EQ(client.Claim(50).size(), 50U);
  std::this_thread::sleep_for(milliseconds(20));
  service_.Poll();
  h_.Settle();
  const TagSnapshot snapshot = SnapshotOf("orders");
  ASSERT_TRUE(snapshot.exhausted_in_days.has_value());
  // Of 100,000 ids 50 are claimed.
  EXPECT_NEAR(*snapshot.exhausted_in_days * snapshot.rate_per_s * 86'400, 99'950, 200);
}

// --- waiters

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

TEST_F(TagServiceTest, ThoseWhomALeaseDoesNotReachWaitForTheNextInTheirOrder) {
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
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10), (IdRange{1, 11}));
  const Answer& answer = Claim("orders", 5, milliseconds(0));
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(answer.grant.ids, (IdRange{11, 16}));
  EXPECT_EQ(client.Claim(1), (IdRange{16, 17}));
}

TEST_F(TagServiceTest, GrantTellsAClientWithAnotherRingToAttachAgain) {
  h_.store.AddTag("orders", 100);
  const Client& client = AttachedClient("orders");
  EXPECT_FALSE(Claim("orders", 1, kLong, 1, client.ring_id()).grant.attach_again);
  EXPECT_TRUE(Claim("orders", 1, kLong, 1, client.ring_id() + 1).grant.attach_again);
  EXPECT_TRUE(Claim("orders", 1, kLong, 1, 0).grant.attach_again);
}

TEST_F(TagServiceTest, WaiterLeavesAtItsDeadlineWithTheReason) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const MonotonicTime began = MonotonicClock::now();
  const Answer& answer = Claim("orders", 1, milliseconds(30));
  const Answer& patient = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_NE(answer.status.message().find("orders"), std::string::npos);
  // A busy machine may make it a store that has not answered for long.
  EXPECT_THAT(answer.status.message(), ::testing::ContainsRegex("on its way|has not answered for"));
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(30));
  EXPECT_FALSE(patient.done()) << "another's deadline is another's";
  h_.store.script.Release();
  ASSERT_TRUE(Await(patient));
  EXPECT_EQ(patient.grant.ids, (IdRange{11, 12})) << "who left is not served";
}

TEST_F(TagServiceTest, TimeoutWhileTheStoreDoesNotAnswerSaysSo) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const Answer& answer = Claim("orders", 1, milliseconds(200));
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_NE(answer.status.message().find("has not answered for"), std::string::npos)
      << answer.status.message();
  EXPECT_NE(answer.status.message().find("locked or slow"), std::string::npos);
}

TEST_F(TagServiceTest, ZeroTimeoutOnADryRingIsAnsweredAtOnce) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const Answer& answer = Claim("orders", 1, milliseconds(0));
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
}

TEST_F(TagServiceTest, TimeoutWhileTheStoreIsDownSaysSoWithItsError) {
  h_.store.AddTag("orders", 10);
  h_.store.script.FailAll({Code::kUnavailable, "disk full"});
  const Answer& attach = Attach("orders", milliseconds(1000));
  ASSERT_TRUE(Await(attach));
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
  const Answer& slow = Claim("slow", 100);  // answered from the ring, which is then dry
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

TEST_F(TagServiceTest, DroppedOwnerOfAnUnknownTagLeavesNothingBehind) {
  h_.store.script.Hold("FindTag");
  const Answer& gone = Attach("nobody", kLong, 7);
  service_.DropOwner(7);
  h_.store.script.Release();
  h_.Settle();
  EXPECT_FALSE(gone.done());
  EXPECT_TRUE(service_.Snapshot().empty());
}

// --- leasing

TEST_F(TagServiceTest, OneLoaderPerTagWhateverAsks) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
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
  EXPECT_EQ(Leases(), 4) << "ten waiters each, and one ahead";
}

TEST_F(TagServiceTest, NextSegmentIsPrefetchedWhenATenthIsUsed) {
  h_.store.AddTag("orders", 1000);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(Leases(), 1);
  ASSERT_EQ(client.Claim(100).size(), 100U);
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(Leases(), 1) << "the mark has not been claimed";
  const shm::SlotClaim marked = client.claimer.Claim(1);
  EXPECT_TRUE(marked.wakes_daemon);
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(Leases(), 2);
  ASSERT_EQ(client.Claim(800).size(), 800U);
  service_.Refill("orders");
  service_.Poll();
  h_.Settle();
  EXPECT_EQ(Leases(), 2) << "one segment ahead and no more";
  EXPECT_EQ(SnapshotOf("orders").leases.size(), 2U);
}

TEST_F(TagServiceTest, PollSeesToAWakeUpThatNeverCame) {
  h_.store.AddTag("orders", 1000);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(500).size(), 500U);
  service_.Poll();
  h_.Settle();
  EXPECT_EQ(Leases(), 2);
}

TEST_F(TagServiceTest, MarkTakenByWaitersIsNoticedWithoutAWakeUp) {
  h_.store.AddTag("orders", 100);
  const Answer& answer = Claim("orders", 50);
  ASSERT_TRUE(Await(answer));
  h_.Settle();
  EXPECT_EQ(Leases(), 2);
}

TEST_F(TagServiceTest, ChangedStepIsUsedByTheNextLease) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  h_.store.SetStep("orders", 500);
  ASSERT_EQ(client.Claim(10).size(), 10U);
  service_.Refill("orders");
  h_.Settle();
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
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
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
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kInvalid);
  EXPECT_EQ(answer.status.message(), "column step is 0");
  EXPECT_EQ(SnapshotOf("orders").last_error, "column step is 0");
  for (int i = 0; i < 20; ++i) {
    service_.Poll();
    service_.Refill("orders");
  }
  h_.Settle();
  EXPECT_EQ(Leases(), 1) << "a refusal is not asked again at once";
}

TEST_F(TagServiceTest, LastIdsAreServedAndThenTheTagIsOutOfIds) {
  h_.store.AddTag("orders", 100, 1, 15);
  const Answer& all = Claim("orders", 100);
  ASSERT_TRUE(Await(all));
  EXPECT_EQ(all.grant.ids, (IdRange{1, 16}));
  const Answer& none = Claim("orders", 1);
  ASSERT_TRUE(Await(none));
  EXPECT_EQ(none.status.code(), Code::kOutOfIds);
}

// Regression: in the pause after a refusal a claim waited out its deadline and was told TIMEOUT.
TEST_F(TagServiceTest, EveryClaimOnAUsedUpTagIsToldOutOfIds) {
  h_.store.AddTag("orders", 100, 1, 15);
  ASSERT_TRUE(Await(Claim("orders", 100)));
  const Answer& first = Claim("orders", 1);
  ASSERT_TRUE(Await(first));
  ASSERT_EQ(first.status.code(), Code::kOutOfIds);
  const Answer& second = Claim("orders", 1);
  ASSERT_TRUE(second.done()) << "it waits for the pause to end";
  EXPECT_EQ(second.status.code(), Code::kOutOfIds) << second.status.message();
}

TEST_F(TagServiceTest, RefusedPrefetchLeavesTheRingsIdsClaimable) {
  h_.store.AddTag("orders", 100, 1, 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(Leases(), 2);
  EXPECT_EQ(Claim("orders", 10, milliseconds(0)).grant.ids, (IdRange{51, 61}));
  EXPECT_EQ(client.Claim(100), (IdRange{61, 101}));
}

TEST_F(TagServiceTest, LeaseBelowTheFloorIsNeverPublished) {
  h_.store.AddTag("orders", 10, 1000);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10), (IdRange{1000, 1010}));
  h_.store.LieOnce({1, 11});
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.grant.ids, (IdRange{1010, 1011})) << answer.status.message();
  service_.Poll();  // which journals the ends that wait for others
  h_.Settle();
  const auto journal = h_.store.journal();
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
  service_.Refill("orders");
  h_.Settle();
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
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_TRUE(answer.status.ok()) << "the next try succeeds";
  const auto journal = h_.store.journal();
  ASSERT_EQ(journal.size(), 2U);
  EXPECT_EQ(journal[0].state, LeaseState::kReturned);
  EXPECT_EQ(journal[0].returned, 10U);
  EXPECT_EQ(h_.store.returned_tails()[0].claimed, 0U);
  EXPECT_EQ(answer.grant.ids, (IdRange{1, 2})) << "no gap either: nobody had them";
}

TEST_F(TagServiceTest, MarkThatCannotBeKeptIsTheWaitersReason) {
  h_.store.AddTag("orders", 10);
  h_.marks.script.Fail("Raise", {Code::kUnavailable, "state dir is full"}, 100);
  const Answer& answer = Claim("orders", 1, milliseconds(1000));
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_NE(answer.status.message().find("state dir is full"), std::string::npos)
      << answer.status.message();
}

TEST_F(TagServiceTest, NothingIsLeasedWhileTheMarkCannotBeRead) {
  h_.store.AddTag("orders", 10);
  h_.marks.script.Fail("Get", {Code::kUnavailable, "state dir is gone"});
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
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
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  service_.Poll();
  h_.Settle();
  const LeaseRecord lease = h_.store.journal()[0];
  EXPECT_EQ(lease.state, LeaseState::kExhausted);
  EXPECT_EQ(lease.claimed, 10U);
  EXPECT_FALSE(service_.LiveLeases().contains(lease.token));
}

TEST_F(TagServiceTest, ClosureThatFailedIsTriedAgainAndStaysLiveUntilThen) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  h_.store.script.Fail("CloseLeases", {Code::kUnavailable, "busy"});
  service_.Poll();
  h_.Settle();
  const LeaseRecord lease = h_.store.journal()[0];
  EXPECT_EQ(lease.state, LeaseState::kActive);
  ASSERT_TRUE(service_.LiveLeases().contains(lease.token));
  EXPECT_EQ(service_.LiveLeases()[lease.token].state, LeaseState::kExhausted);
  EXPECT_EQ(service_.LiveLeases()[lease.token].claimed, 10U);
  ASSERT_TRUE(h_.RunUntil([&] {
    service_.Poll();
    return h_.store.journal()[0].state == LeaseState::kExhausted;
  }));
}

TEST_F(TagServiceTest, LiveLeasesTellHowFarTheRingIs) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(42).size(), 42U);
  const auto live = service_.LiveLeases();
  const auto use = live.find(h_.store.journal()[0].token);
  ASSERT_NE(use, live.end());
  EXPECT_EQ(use->second.state, LeaseState::kActive);
  EXPECT_EQ(use->second.claimed, 42U);
}

TEST_F(TagServiceTest, SnapshotCountsClaimsOfAllPathsAndLeases) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  ASSERT_TRUE(Await(Claim("orders", 4)));
  h_.Settle();
  const TagSnapshot snapshot = SnapshotOf("orders");
  EXPECT_EQ(snapshot.claimed, 14U);
  EXPECT_EQ(snapshot.fallbacks, 1U);
  EXPECT_EQ(snapshot.leases_taken, static_cast<std::uint64_t>(Leases()));
  EXPECT_EQ(snapshot.state, TagState::kOk);
  EXPECT_EQ(snapshot.mode, "segment");
}

TEST_F(TagServiceTest, SnapshotShowsADryRing) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  h_.store.script.Hold("TakeLease");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kDry);
}

// --- hostile clients

TEST_F(TagServiceTest, ForgedOvershootIsClosedAsUsedNotHandedBack) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  client.memory->cursors().slots[1].next = std::numeric_limits<std::uint64_t>::max();
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  const LeaseRecord lease = h_.store.journal()[0];
  EXPECT_EQ(lease.returned, 0U);
  EXPECT_EQ(lease.claimed, 100U);
}

TEST_F(TagServiceTest, CursorForgedBelowBaseIsClosedAsUsedNotHandedBack) {
  h_.store.AddTag("orders", 100, 1000);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(5).size(), 5U);
  client.memory->cursors().slots[1].next = 0;
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_EQ(h_.store.journal()[0].returned, 0U);
}

// Regression: a cursor that was moved back made the difference of two looks wrap round.
TEST_F(TagServiceTest, RateStaysFiniteWhenAClientMovesTheCursorBack) {
  h_.store.AddTag("orders", 1000);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
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
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.grant.ids, (IdRange{1100, 1101})) << answer.status.message();
  EXPECT_EQ(other.Claim(1), (IdRange{1, 2}));
}

TEST_F(TagServiceTest, ForgedRingIsReplacedAndNothingOfItIsHandedBack) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  service_.Poll();
  client.memory->cursors().slots[1].next = 10;
  service_.Poll();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kQuarantined);
  h_.Settle();
  EXPECT_EQ(h_.store.journal()[0].state, LeaseState::kAbandoned);
  EXPECT_EQ(h_.store.journal()[0].returned, 0U);
  Client& next = AttachedClient("orders");
  EXPECT_NE(next.ring_id(), client.ring_id());
  const IdRange ids = next.Claim(1);
  EXPECT_GE(ids.first, 101U) << "above all of the spoilt ring";
}

TEST_F(TagServiceTest, LeaseThatArrivesWhileNoRingCanBeMadeEndsNothing) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  h_.store.script.Hold("TakeLease");
  service_.Poll();
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 2; }));
  client.memory->cursors().slots[1].next = 10;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  // UBSan looks at an object's type through a pipe, once for each place: here while there is one.
  ASSERT_FALSE(Status::FromErrno(EMFILE, "warming up").ok());
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  service_.Poll();
  h_.store.script.Release();
  h_.Settle();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_GE(answer.grant.ids.first, 101U);
}

// Regression: the request that showed the daemon the forged cursor was answered from that cursor.
TEST_F(TagServiceTest, RequestThatFindsACursorSetBackIsServedFromAFreshSegment) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  EXPECT_EQ(Granted("orders", 50).ids, (IdRange{1, 51}));
  client.memory->cursors().slots[1].next = 1;
  const Answer& answer = Claim("orders", 50);
  ASSERT_TRUE(Await(answer));
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_GE(answer.grant.ids.first, 101U) << "ids of the forged ring";
  EXPECT_TRUE(answer.grant.attach_again);
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kQuarantined);
}

TEST_F(TagServiceTest, RequestThatFindsOneOfTwoCursorsSetBackIsServedFromNeither) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(20).size(), 20U);
  service_.Refill("orders");
  h_.Settle();
  ASSERT_GE(SnapshotOf("orders").leases.size(), 2U);
  const std::uint64_t reached = SnapshotOf("orders").leases.back().lease.ids.limit;
  client.memory->cursors().slots[2].next = 1;
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_GE(answer.grant.ids.first, reached);
}

TEST_F(TagServiceTest, RequestThatFindsAForgedCursorFailsWithTheReasonWhenThereIsNoLease) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  service_.Poll();
  h_.Settle();
  h_.store.script.Hold("CloseLeases");  // and the lease behind it
  client.memory->cursors().slots[1].next = 10;
  const Answer& answer = Claim("orders", 1, milliseconds(0));
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_THAT(answer.status.message(),
              ::testing::ContainsRegex("its ring was quarantined [0-9]+ s ago"));
}

TEST_F(TagServiceTest, AttachThatFindsAForgedCursorGetsAnotherRing) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  service_.Poll();
  client.memory->cursors().slots[1].next = 10;
  Client& next = AttachedClient("orders");
  EXPECT_NE(next.ring_id(), client.ring_id());
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
}

TEST_F(TagServiceTest, LeaseThatArrivesAfterAForgeryIsNotPublishedInThatRing) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  h_.store.script.Hold("TakeLease");
  service_.Poll();
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 2; }));
  client.memory->cursors().slots[1].next = 10;
  h_.store.script.Release();
  h_.Settle();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_EQ(h_.store.journal()[0].state, LeaseState::kAbandoned);
  EXPECT_EQ(h_.store.journal()[1].state, LeaseState::kActive) << "no client could spoil it";
  EXPECT_EQ(Granted("orders", 1).ids.first, h_.store.journal()[1].ids.first);
}

// Regression: what was claimed by the socket was noted once a second, if at all. A daemon that was
// killed before left a ring whose cursor a client could set back to what the last poll had seen.
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

// The same for what was seen: by a wake-up, a request or a report.
TEST_F(TagServiceTest, WhatWasSeenOfACursorIsNotedForTheNextDaemonAtOnce) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(5).size(), 5U);
  static_cast<void>(service_.Snapshot());
  auto next = HeldLeases::Adopt(ScopedFd(::fcntl(h_.held->fd(), F_DUPFD_CLOEXEC, 0)), "host-a");
  EXPECT_EQ(next.value()->All().at(0).next, 6U);
}

// --- claims by the socket alone

TEST_F(TagServiceTest, TagClaimedByTheSocketPassesItsRingToNobody) {
  h_.store.AddTag("orders", 100);
  h_.store.SetAccess("orders", TagAccess::kSocket);
  const Answer& attach = Attach("orders");
  ASSERT_TRUE(Await(attach));
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

TEST_F(TagServiceTest, ClaimByTheSocketIsAFallbackOnlyWhenTheRingIsDry) {
  h_.store.AddTag("orders", 10);
  h_.store.SetAccess("orders", TagAccess::kSocket);
  ASSERT_TRUE(Await(Attach("orders")));
  h_.Settle();
  h_.store.script.Hold("TakeLease");
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Granted("orders", 1).ids.empty());
  EXPECT_EQ(SnapshotOf("orders").fallbacks, 0U);
  const Answer& waits = Claim("orders", 1);
  EXPECT_EQ(SnapshotOf("orders").fallbacks, 1U);
  h_.store.script.Release();
  ASSERT_TRUE(Await(waits));
  EXPECT_EQ(SnapshotOf("orders").claimed, 11U);
}

TEST_F(TagServiceTest, ChangeToTheSocketClosesTheRingAndLosesNoId) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(30), (IdRange{1, 31}));
  service_.Refill("orders");
  h_.Settle();
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
  EXPECT_EQ(h_.store.journal()[0].state, LeaseState::kExhausted);
  EXPECT_EQ(SnapshotOf("orders").claimed, 150U);
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_EQ(h_.store.next_id("orders"), 151U) << "the rest goes back as from any ring";
  for (const LeaseRecord& lease : h_.store.journal()) ExpectAccounted(lease);
}

TEST_F(TagServiceTest, WithdrawnRingIsClosedAndWhatIsLeftGoesOnInAnother) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(30).size(), 30U);
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
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_TRUE(service_.Withdraw("orders", again.ring_id())) << "too late, and no harm";
  for (const LeaseRecord& lease : h_.store.journal()) ExpectAccounted(lease);
}

TEST_F(TagServiceTest, ChangeToTheSocketClosesWhatWasUsedUpAndKeepsTheFloor) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(100).size(), 100U);
  ChangeAccess("orders", TagAccess::kSocket);
  h_.Settle();
  EXPECT_EQ(h_.store.journal()[0].state, LeaseState::kExhausted);
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
    EXPECT_TRUE(mapped.Claim(1).empty()) << "the old ring is no ring again";
    next += 6;
  }
  EXPECT_EQ(SnapshotOf("orders").claimed, next - 1);
}

TEST_F(TagServiceTest, WaitersPresentAtAChangeAreServedInOrderAndToldToAttach) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  h_.store.script.Hold("FindTag");  // so that the lease brings the changed record
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
  // The other way.
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

TEST_F(TagServiceTest, WhoWaitsForTheRingAfterAQuarantineIsToldOfIt) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  service_.Poll();
  h_.Settle();
  h_.store.script.Hold("CloseLeases");  // and the lease behind it
  client.memory->cursors().slots[1].next = 10;
  service_.Poll();
  const Answer& answer = Claim("orders", 1, milliseconds(50));
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kTimeout);
  EXPECT_THAT(answer.status.message(),
              ::testing::ContainsRegex("its ring was quarantined [0-9]+ s ago"));
}

TEST_F(TagServiceTest, RingThatIsForgedAtTheChangeIsQuarantined) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  service_.Poll();
  h_.Settle();
  const std::size_t leases = h_.store.journal().size();
  client.memory->cursors().slots[1].next = 10;
  ChangeAccess("orders", TagAccess::kSocket);
  EXPECT_EQ(client.claimer.state(), shm::RingState::kQuarantined);
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(SnapshotOf("orders").state, TagState::kQuarantined);
  EXPECT_EQ(Attach("orders").attached.ring_id, 0U);
  h_.Settle();
  for (std::size_t i = 0; i < leases; ++i) {
    const LeaseRecord lease = h_.store.journal()[i];
    EXPECT_EQ(lease.state, LeaseState::kAbandoned);
    EXPECT_EQ(lease.returned, 0U);
    EXPECT_LT(lease.ids.limit, Granted("orders", 1).ids.limit);
  }
  ASSERT_GE(leases, 1U);
}

TEST_F(TagServiceTest, RingThatIsForgedAtTheChangeLeavesNoDescriptors) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(50).size(), 50U);
  service_.Poll();
  h_.Settle();
  client.memory->cursors().slots[1].next = 10;
  ChangeAccess("orders", TagAccess::kSocket);
  EXPECT_EQ(h_.descriptors.names.size(), 2U) << "those of the one ring that there is";
}

TEST_F(TagServiceTest, ChangeByAnotherHostIsNoticedAtTheNextLease) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  h_.store.SetAccess("orders", TagAccess::kSocket);
  ASSERT_EQ(client.Claim(20), (IdRange{1, 21})) << "not known yet";
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_EQ(Granted("orders", 1000).ids, (IdRange{21, 101}));
  EXPECT_EQ(Granted("orders", 1000).ids, (IdRange{101, 201}));
}

TEST_F(TagServiceTest, LeaseUnderWayAtTheChangeIsPublishedInTheNewRing) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(20).size(), 20U);
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
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  // UBSan looks at an object's type through a pipe, once for each place: here while there is one.
  ASSERT_FALSE(Status::FromErrno(EMFILE, "warming up").ok());
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  ChangeAccess("orders", TagAccess::kSocket);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(client.Claim(10), (IdRange{11, 21})) << "clients are not left without ids";
  EXPECT_EQ(Attach("orders").attached.ring_id, 0U) << "and nobody else gets the ring";
  service_.Poll();
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_EQ(Granted("orders", 1).ids, (IdRange{21, 22}));
}

// --- deletion

TEST_F(TagServiceTest, DeletionDrainsTheRingAndClosesItsLeases) {
  h_.store.AddTag("orders", 100);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(30).size(), 30U);
  service_.OnTagDeleted("orders");
  h_.Settle();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  EXPECT_TRUE(service_.Snapshot().empty());
  const LeaseRecord lease = h_.store.journal()[0];
  EXPECT_EQ(lease.state, LeaseState::kAbandoned);
  EXPECT_EQ(lease.claimed, 30U);
  EXPECT_EQ(lease.abandoned, 70U);
}

TEST_F(TagServiceTest, DeletionFailsTheWaiters) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  h_.store.script.Hold("TakeLease");
  const Answer& waiter = Claim("orders", 1);
  service_.OnTagDeleted("orders");
  EXPECT_TRUE(waiter.done());
  EXPECT_EQ(waiter.status.code(), Code::kNoSuchTag);
}

TEST_F(TagServiceTest, LeaseThatArrivesAfterTheDeletionGoesBackWhole) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  h_.store.script.Hold("TakeLease");
  service_.Poll();
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() == 2; }));
  service_.OnTagDeleted("orders");
  h_.store.script.Release();
  h_.Settle();
  const auto journal = h_.store.journal();
  ASSERT_EQ(journal.size(), 2U);
  EXPECT_EQ(journal[1].state, LeaseState::kReturned);
  EXPECT_EQ(journal[1].returned, 10U);
  EXPECT_TRUE(service_.Snapshot().empty()) << "the tag is not revived";
}

TEST_F(TagServiceTest, DeletionByAnotherHostIsNoticedAtTheNextLease) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(5).size(), 5U);
  h_.store.RemoveTag("orders");
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kNoSuchTag);
}

// --- a store that is replaced under the daemon

class ReplacedStoreTest : public TagServiceTest {
 protected:
  ReplacedStoreTest() : TagServiceTest(Recover) {}

  // The journal's leases that are active and the service's, which have to be the same.
  void ExpectJournalKnowsTheRings() {
    std::vector<std::string> active;
    for (const LeaseRecord& lease : h_.store.journal()) {
      if (lease.state == LeaseState::kActive) active.push_back(lease.token);
    }
    std::vector<std::string> live;
    for (const auto& [token, closure] : service_.LiveLeases()) live.push_back(token);
    std::sort(active.begin(), active.end());
    EXPECT_EQ(active, live);
  }
};

// The tag is not deleted: it is another database.
TEST_F(ReplacedStoreTest, RingGoesOnWhenItsTagIsNotInTheOtherDatabase) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(5).size(), 5U);
  h_.store.RemoveTag("orders");
  h_.store.ForgetLeases();
  h_.store.Replace("fedcba9876543210");
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kActive);
  EXPECT_EQ(client.Claim(5), (IdRange{6, 11}));
  const Answer& answer = Claim("orders", 1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(answer.status.code(), Code::kNoSuchTag);
  EXPECT_NE(answer.status.message().find("not the database"), std::string::npos)
      << answer.status.message();
  EXPECT_EQ(client.claimer.state(), shm::RingState::kActive);
}

TEST_F(ReplacedStoreTest, NothingIsLeasedBeforeTheOtherHostsHavePushedTheirMarks) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  h_.store.Replace("0123456789abcdef");
  const MonotonicTime began = MonotonicClock::now();
  ASSERT_EQ(client.Claim(10).size(), 10U);
  const Answer& early = Claim("orders", 1, milliseconds(500));
  const Answer& patient = Claim("orders", 1);
  ASSERT_TRUE(Await(early));
  EXPECT_NE(early.status.message().find("replaced"), std::string::npos) << early.status.message();
  EXPECT_EQ(Leases(), 1);
  // What another host pushes in the meantime.
  h_.store.LeaseElsewhere("orders", 5000);
  ASSERT_TRUE(Await(patient));
  EXPECT_TRUE(patient.status.ok()) << patient.status.message();
  EXPECT_EQ(patient.grant.ids, (IdRange{5011, 5012}));
  EXPECT_GE(MonotonicClock::now() - began, h_.store.reconcile_window());
}

TEST_F(ReplacedStoreTest, LeasesInUseAreJournalledInAnOlderCopy) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(5).size(), 5U);
  service_.Refill("orders");
  h_.Settle();
  ASSERT_EQ(service_.LiveLeases().size(), 2U);
  h_.store.ForgetLeases();
  h_.store.AddTag("orders", 10, 1);
  h_.store.Replace("0123456789abcdef");
  service_.Poll();
  h_.Settle();
  EXPECT_EQ(h_.store.next_id("orders"), 21U) << "noticed without anybody asking for ids";
  ExpectJournalKnowsTheRings();
  ASSERT_EQ(client.Claim(5).size(), 5U);
  service_.Refill("orders");
  h_.Settle();
  EXPECT_EQ(h_.store.journal()[0].ids.size() + h_.store.journal()[1].ids.size(), 20U);
  ExpectJournalKnowsTheRings();
}

TEST_F(ReplacedStoreTest, LeasesThatEndedSinceAreAbandonedInAnOlderCopy) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  service_.Poll();
  h_.Settle();
  ASSERT_EQ(h_.store.journal().front().state, LeaseState::kExhausted);
  h_.store.ReopenLease(h_.store.journal().front().token);
  h_.store.Replace("0123456789abcdef");
  service_.Poll();
  h_.Settle();
  EXPECT_EQ(h_.store.journal().front().state, LeaseState::kAbandoned);
  ExpectJournalKnowsTheRings();
}

TEST_F(TagServiceTest, NamesakeOfADeletedTagGetsARingOfItsOwn) {
  h_.store.AddTag("orders", 10);
  const std::uint64_t old_ring = AttachedClient("orders").ring_id();
  service_.OnTagDeleted("orders");
  h_.store.AddTag("orders", 10, 500);
  Client& client = AttachedClient("orders");
  EXPECT_NE(client.ring_id(), old_ring);
  EXPECT_EQ(client.Claim(1), (IdRange{500, 501}));
}

// --- shutdown

TEST_F(TagServiceTest, ShutdownHandsTailsBackNewestFirst) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(4).size(), 4U);
  service_.Refill("orders");
  h_.Settle();
  ASSERT_EQ(SnapshotOf("orders").leases.size(), 2U);
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  const auto tails = h_.store.returned_tails();
  ASSERT_EQ(tails.size(), 2U);
  EXPECT_EQ(tails[0].claimed, 0U) << "the newest";
  EXPECT_EQ(tails[1].claimed, 4U);
  EXPECT_EQ(h_.store.next_id("orders"), 5U) << "each lowers max_id to where the next one ends";
  EXPECT_EQ(h_.marks.mark("orders"), 5U);
  EXPECT_EQ(client.claimer.state(), shm::RingState::kRetired);
  EXPECT_TRUE(client.Claim(1).empty());
  for (const LeaseRecord& lease : h_.store.journal()) ExpectAccounted(lease);
  EXPECT_TRUE(service_.LiveLeases().empty());
}

TEST_F(TagServiceTest, ShutdownWithNothingToHandBackEndsAtOnce) {
  Shutdown();
  EXPECT_EQ(shutdowns_, 1);
}

TEST_F(TagServiceTest, ShutdownClosesWhatWasUsedUp) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_EQ(h_.store.journal()[0].state, LeaseState::kExhausted);
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
  const auto journal = h_.store.journal();
  ASSERT_EQ(journal.size(), 1U);
  EXPECT_EQ(journal[0].state, LeaseState::kReturned);
  EXPECT_EQ(journal[0].returned, 10U);
  EXPECT_EQ(h_.store.next_id("orders"), 1U);
}

// Regression: only the end of a lease was looked at, so that a stop waited out its patience.
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
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_EQ(h_.store.journal()[0].state, LeaseState::kActive) << "the next start abandons it";
  EXPECT_EQ(service_.LiveLeases().size(), 1U) << "and until then it is this host's, not back";
}

TEST_F(TagServiceTest, StaleHandBackLeavesTheMarkAboveWhatWasClaimed) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(4).size(), 4U);
  ASSERT_TRUE(h_.store.AbandonActive({}).ok());  // another program closed our lease
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  EXPECT_GE(h_.marks.mark("orders"), 5U);
  EXPECT_EQ(h_.store.journal()[0].returned, 0U);
}

TEST_F(TagServiceTest, TailBelowAnotherHostsLeaseIsListedAndTheMarkFollows) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(4).size(), 4U);
  h_.store.LeaseElsewhere("orders", 100);
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  ASSERT_EQ(h_.store.returned_ranges().size(), 1U);
  EXPECT_EQ(h_.store.returned_ranges()[0].ids, (IdRange{5, 11}));
  EXPECT_EQ(h_.marks.mark("orders"), 5U) << "else the own tail could never be taken again";
}

// Regression: closures that had failed once waited for a poll that no longer comes.
TEST_F(TagServiceTest, ShutdownJournalsClosuresThatFailedBefore) {
  h_.store.AddTag("orders", 10);
  Client& client = AttachedClient("orders");
  ASSERT_EQ(client.Claim(10).size(), 10U);
  h_.store.script.Fail("CloseLeases", {Code::kInvalid, "busy"});
  service_.Poll();
  h_.Settle();
  ASSERT_EQ(h_.store.journal()[0].state, LeaseState::kActive);
  Shutdown();
  ASSERT_TRUE(h_.RunUntil([&] { return shutdowns_ == 1; }));
  h_.Settle();
  EXPECT_EQ(h_.store.journal()[0].state, LeaseState::kExhausted);
  EXPECT_EQ(h_.store.journal()[0].claimed, 10U);
}

}  // namespace
}  // namespace idd::daemon
