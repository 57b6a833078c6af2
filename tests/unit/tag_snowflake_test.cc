// SPDX-License-Identifier: Apache-2.0
//
// Tags of mode `snowflake`: windows of time in the ring, two ways to know the time, clocks that
// jump, and worker ids that change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idd/shm/snowflake_claimer.h"
#include "restart/descriptor_names.h"
#include "restart/inheritance.h"
#include "support/tag_service_fixture.h"
#include "support/test_wall_clock.h"

namespace idd::daemon {
namespace {

using shm::SnowflakeClaim;
using shm::SnowflakeClaimer;
using ::testing::HasSubstr;

constexpr std::int64_t kNow = 1'800'000'000'000;
constexpr std::chrono::milliseconds kShort(30);
constexpr const char* kTag = "flakes";

class SnowflakeTest : public TagServiceTest {
 protected:
  SnowflakeTest() { h_.store.AddSnowflake(kTag, layout_); }

  // A client with the tag's present ring.
  SnowflakeClaimer& Claimer() {
    const Client& client = AttachedClient(kTag);
    claimers_.push_back(
        std::make_unique<SnowflakeClaimer>(client.memory->table(), client.memory->cursors()));
    return *claimers_.back();
  }
  static std::uint64_t One(SnowflakeClaimer& claimer) {
    const SnowflakeClaim claim = claimer.Claim(1);
    EXPECT_FALSE(claim.is_early);
    EXPECT_EQ(claim.ids.size(), 1U);
    return claim.ids.first;
  }
  std::uint64_t OneBySocket() {
    const Answer& answer = Awaited(Claim(kTag, 1));
    EXPECT_TRUE(answer.status.ok()) << answer.status.message();
    return answer.grant.ids.first;
  }
  [[nodiscard]] std::int64_t TimeOf(std::uint64_t id) const {
    return layout_.UnixMsOf(layout_.PartsOf(id)->time);
  }
  [[nodiscard]] std::uint32_t WorkerOf(std::uint64_t id) const {
    return layout_.PartsOf(id)->worker;
  }
  [[nodiscard]] std::uint64_t At(std::int64_t unix_ms) const {
    return layout_.FirstOf(layout_.TimeAt(unix_ms));
  }

  TestWallClock clock_{kNow};
  const SnowflakeLayout layout_{};
  std::vector<std::unique_ptr<SnowflakeClaimer>> claimers_;
};

TEST_F(SnowflakeTest, IdsHaveTheTimeOfTheClockAndTheWorkerId) {
  SnowflakeClaimer& claimer = Claimer();
  const std::uint64_t first = One(claimer);
  EXPECT_EQ(TimeOf(first), kNow);
  EXPECT_EQ(WorkerOf(first), 0U);
  EXPECT_EQ(One(claimer), first + 1);
  clock_.Advance(5);
  const std::uint64_t later = One(claimer);
  EXPECT_EQ(TimeOf(later), kNow + 5);
  const std::uint64_t by_socket = OneBySocket();
  EXPECT_EQ(by_socket, later + 1) << "requests claim from the same ring";
  EXPECT_EQ(h_.store.next_id("flakes#0"), At(kNow + 600'000)) << "one window was leased";
}

TEST_F(SnowflakeTest, ClaimOverTheSocketGetsIdsOfOneTime) {
  const Answer& answer = Awaited(Claim(kTag, 10'000));
  EXPECT_EQ(answer.grant.ids.size(), 4096U);
}

TEST_F(SnowflakeTest, BurstBorrowsMaxAheadAndThenWaitsForTheClock) {
  SnowflakeClaimer& claimer = Claimer();
  std::uint64_t ids = 0;
  while (true) {
    const SnowflakeClaim claim = claimer.Claim(4096);
    if (claim.ids.empty()) {
      EXPECT_TRUE(claim.is_early);
      break;
    }
    ids += claim.ids.size();
    ASSERT_LE(TimeOf(claim.ids.first), kNow + layout_.max_ahead_ms);
  }
  EXPECT_EQ(ids, 4096U * 1001);
  const Answer& late = Awaited(Claim(kTag, 1, kShort));
  EXPECT_EQ(late.status.code(), Code::kTimeout);
  EXPECT_THAT(late.status.message(), HasSubstr("1001 ms ahead of this host's clock"));
  EXPECT_THAT(late.status.message(), HasSubstr("4096 ids in 1 ms"));
  const Answer& waits = Claim(kTag, 1);
  h_.Settle();
  EXPECT_FALSE(waits.done());
  clock_.Advance(1);
  ASSERT_TRUE(Await(waits));
  EXPECT_EQ(TimeOf(waits.grant.ids.first), kNow + 1001);
}

TEST_F(SnowflakeTest, ClockThatIsSetBackALittleIsBorrowedFromAndFarBackIsWaitedFor) {
  SnowflakeClaimer& claimer = Claimer();
  const std::uint64_t first = One(claimer);
  clock_.Set(kNow - 1000);
  EXPECT_EQ(One(claimer), first + 1);
  EXPECT_EQ(OneBySocket(), first + 2);
  clock_.Set(kNow - 3'600'000);
  EXPECT_TRUE(claimer.Claim(1).is_early);
  const Answer& refused = Awaited(Claim(kTag, 1, kShort));
  EXPECT_THAT(refused.status.message(), HasSubstr("3600000 ms ahead of this host's clock"));
  const int leases = Leases();
  PollAndSettle();
  EXPECT_THAT(SnapshotOf(kTag).last_error, HasSubstr("3600000 ms ahead of this host's clock"));
  EXPECT_EQ(Leases(), leases) << "there is time enough";
  clock_.Set(kNow - 1000);
  EXPECT_EQ(One(claimer), first + 3);
  PollAndSettle();
  EXPECT_EQ(SnapshotOf(kTag).last_error, "");
}

TEST_F(SnowflakeTest, ClockThatJumpsBeyondTheWindowGetsAnotherWindowOfTheSameWorkerId) {
  SnowflakeClaimer& claimer = Claimer();
  const std::uint64_t first = One(claimer);
  clock_.Advance(86'400'000);
  EXPECT_TRUE(claimer.Claim(1).ids.empty());
  const std::uint64_t later = OneBySocket();
  EXPECT_EQ(TimeOf(later), kNow + 86'400'000);
  EXPECT_EQ(WorkerOf(later), WorkerOf(first));
  EXPECT_EQ(One(claimer), later + 1) << "the ring goes on";
  h_.Settle();
  for (const LeaseRecord& lease : h_.store.leases()) {
    if (lease.state != LeaseState::kActive) ExpectAccounted(lease);
  }
}

TEST_F(SnowflakeTest, WindowIsRenewedWhileTheTagIsUsedAndNotAfterwards) {
  SnowflakeClaimer& claimer = Claimer();
  EXPECT_EQ(Leases(), 1);
  One(claimer);
  PollAndSettle();
  EXPECT_EQ(Leases(), 1);
  clock_.Advance(150'001);
  One(claimer);
  PollAndSettle();
  EXPECT_EQ(Leases(), 2);
  EXPECT_EQ(h_.store.next_id("flakes#0"), At(kNow + 750'001));
  // The claims go on while the store is down.
  h_.store.script.Fail("TakeLease", {Code::kUnavailable, "down"}, 1000);
  clock_.Advance(599'000);
  One(claimer);
}

TEST_F(SnowflakeTest, WindowOfATagThatIsNotUsedEndsAndTheNextClaimLeasesAgain) {
  static_cast<void>(Claimer());
  const Deadline unused = Deadline::After(std::chrono::milliseconds(2100));
  ASSERT_TRUE(h_.RunUntil([&] { return unused.passed(); }));
  clock_.Advance(600'000);
  PollAndSettle();
  EXPECT_EQ(Leases(), 1);
  const auto journal = h_.store.leases();
  ASSERT_EQ(journal.size(), 1U);
  clock_.Advance(7);
  EXPECT_EQ(TimeOf(OneBySocket()), kNow + 600'007);
  EXPECT_EQ(Leases(), 2);
}

TEST_F(SnowflakeTest, DrainHandsTheTimeBackAndResumeRises) {
  SnowflakeClaimer& claimer = Claimer();
  const std::uint64_t first = One(claimer);
  service_.Drain(kTag);
  h_.Settle();
  EXPECT_TRUE(claimer.Claim(1).ids.empty());
  EXPECT_EQ(h_.store.next_id("flakes#0"), At(kNow) + 1) << "the counter is where it was used";
  EXPECT_EQ(service_.ProgressOf(kTag).count.ids_returned, At(kNow + 600'000) - At(kNow) - 1);
  EXPECT_TRUE(service_.ProgressOf(kTag).done());
  service_.Resume(kTag);
  const std::uint64_t next = OneBySocket();
  EXPECT_GT(next, first);
  EXPECT_EQ(WorkerOf(next), 0U);
}

TEST_F(SnowflakeTest, StopHandsTheTimeBack) {
  SnowflakeClaimer& claimer = Claimer();
  One(claimer);
  ASSERT_TRUE(ShutsDown());
  EXPECT_EQ(h_.store.next_id("flakes#0"), At(kNow) + 1);
  for (const LeaseRecord& lease : h_.store.leases()) ExpectAccounted(lease);
}

TEST_F(SnowflakeTest, LiftedCounterMovesTheHostToAnotherWorkerIdWithRisingIds) {
  SnowflakeClaimer& claimer = Claimer();
  std::uint64_t last = One(claimer);
  h_.store.LeaseElsewhere("flakes#0", layout_.FirstOf(86'400'000));
  // The window is claimed to its end first, also with the clock.
  clock_.Set(kNow + 599'500);
  last = std::max(last, One(claimer));
  EXPECT_EQ(WorkerOf(last), 0U);
  PollAndSettle();
  ASSERT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("TakeWorker") == 2; }));
  h_.Settle();
  clock_.Set(kNow + 600'000);
  const std::uint64_t next = OneBySocket();
  EXPECT_EQ(WorkerOf(next), 1U);
  EXPECT_GT(TimeOf(next), TimeOf(last));
  SnowflakeClaimer& again = Claimer();
  EXPECT_EQ(One(again), next + 1);
  EXPECT_TRUE(claimer.Claim(1).ids.empty()) << "the old ring is closed";
}

TEST_F(SnowflakeTest, AllWorkerIdsInUseIsAnErrorWithTheTimeAtTheDeadline) {
  SnowflakeLayout narrow;
  narrow.worker_bits = 1;
  h_.store.AddSnowflake("narrow", narrow);
  h_.store.OwnWorker("narrow", 0, "other", At(kNow + 5000));
  h_.store.OwnWorker("narrow", 1, "other", At(kNow + 6000));
  const Answer& refused = Awaited(Claim("narrow", 1, std::chrono::milliseconds(300)));
  EXPECT_EQ(refused.status.code(), Code::kTimeout);
  EXPECT_THAT(refused.status.message(), HasSubstr("all 2 worker ids are in use; the first is free "
                                                  "at 2027-01-15T08:00:05.000Z"));
  const Answer& waits = Claim("narrow", 1);
  clock_.Advance(5000);
  ASSERT_TRUE(Await(waits));
  EXPECT_TRUE(waits.status.ok()) << waits.status.message();
}

// Hosts that are short of worker ids take them from each other. A host that waited for its next
// turn between taking one and its first lease might lose each of them.
TEST_F(SnowflakeTest, FirstLeaseFollowsAWorkerIdAtOnceAlsoIfItIsTheSameAgain) {
  SnowflakeLayout narrow;
  narrow.worker_bits = 1;
  h_.store.AddSnowflake("narrow", narrow);
  h_.store.OwnWorker("narrow", 0, "other", At(kNow - 1000));
  h_.store.OwnWorker("narrow", 1, "other", At(kNow + 86'400'000));
  service_.SetLeaseLimit(1);
  const Answer& first = Claim("narrow", 1);
  h_.Settle();  // waits for no timer
  ASSERT_TRUE(first.done());
  ASSERT_TRUE(first.status.ok()) << first.status.message();

  clock_.Set(kNow + 3'600'000);
  h_.store.OwnWorker("narrow", 0, "other", At(kNow + 1'800'000));
  service_.SetLeaseLimit(1);  // with a new budget
  const Answer& next = Claim("narrow", 1);
  h_.Settle();
  ASSERT_TRUE(next.done());
  EXPECT_TRUE(next.status.ok()) << next.status.message();
  EXPECT_EQ(h_.store.script.Count("TakeWorker"), 2);
}

TEST_F(SnowflakeTest, CounterIsNotServedAsATag) {
  OneBySocket();
  const Answer& answer = Awaited(Attach("flakes#0"));
  EXPECT_EQ(answer.status.code(), Code::kInvalid);
  EXPECT_THAT(answer.status.message(), HasSubstr("worker ids of snowflake tags"));
}

TEST_F(SnowflakeTest, AccessSocketGivesNoRing) {
  h_.store.SetAccess(kTag, TagAccess::kSocket);
  const Answer& answer = Awaited(Attach(kTag));
  EXPECT_EQ(answer.attached.ring_id, 0U);
  EXPECT_EQ(TimeOf(OneBySocket()), kNow);
}

TEST_F(SnowflakeTest, ForgedCursorLosesTheWindowAndRepeatsNothing) {
  const Client& client = AttachedClient(kTag);
  SnowflakeClaimer claimer(client.memory->table(), client.memory->cursors());
  const std::uint64_t first = One(claimer);
  OneBySocket();
  // Back by two: both ids were handed out.
  client.memory->cursors().slots[1].next.fetch_sub(2);
  PollAndSettle();
  const Answer& answer = Claim(kTag, 1);
  h_.Settle();
  clock_.Advance(1);
  ASSERT_TRUE(Await(answer));
  const std::uint64_t next = answer.grant.ids.first;
  EXPECT_GT(next, first + 1);
  EXPECT_EQ(WorkerOf(next), 1U) << "what is left of the window is not used";
  EXPECT_EQ(TimeOf(next), kNow + 1001) << "above all that a claimer may have accepted";
  EXPECT_EQ(SnapshotOf(kTag).state, TagState::kQuarantined);
}

// Otherwise every claim would wait until the window is over.
TEST_F(SnowflakeTest, CursorThatWasForgedFarAheadCostsTheWorkerIdAndNoTime) {
  const Client& client = AttachedClient(kTag);
  SnowflakeClaimer claimer(client.memory->table(), client.memory->cursors());
  One(claimer);
  client.memory->cursors().slots[1].next.fetch_add(layout_.FirstOf(500'000));
  const Answer& answer = Claim(kTag, 1);
  h_.Settle();
  clock_.Advance(1);
  ASSERT_TRUE(Await(answer));
  EXPECT_EQ(WorkerOf(answer.grant.ids.first), 1U);
  EXPECT_EQ(TimeOf(answer.grant.ids.first), kNow + 1001);
}

TEST_F(SnowflakeTest, RingsThatAreForgedAgainAndAgainCostFewWorkerIds) {
  const auto forge = [&] {
    AttachedClient(kTag).memory->cursors().slots[1].next.store(0);
    service_.Poll();
  };
  OneBySocket();
  forge();
  clock_.Advance(2000);
  OneBySocket();
  EXPECT_EQ(h_.store.script.Count("TakeWorker"), 2) << "an honest client need not wait";
  forge();
  clock_.Advance(2000);
  const Answer& waits = Awaited(Claim(kTag, 1, std::chrono::milliseconds(300)));
  EXPECT_EQ(waits.status.code(), Code::kTimeout);
  EXPECT_THAT(waits.status.message(), HasSubstr("quarantined"));
  EXPECT_EQ(h_.store.script.Count("TakeWorker"), 2);
}

TEST_F(SnowflakeTest, ClockThatWasAheadAndSetBackForgesNothing) {
  SnowflakeClaimer& claimer = Claimer();
  clock_.Advance(300'000);
  const std::uint64_t first = One(claimer);
  service_.Poll();
  clock_.Set(kNow);
  PollAndSettle();
  EXPECT_NE(SnapshotOf(kTag).state, TagState::kQuarantined);
  EXPECT_TRUE(claimer.Claim(1).is_early);
  clock_.Set(kNow + 300'000);
  EXPECT_EQ(One(claimer), first + 1);
}

TEST_F(SnowflakeTest, ClaimsOfTheTimeThatIddDidNotRunForgeNothingAlsoIfTheClockWasSetBackThen) {
  SnowflakeClaimer& claimer = Claimer();
  One(claimer);
  PollAndSettle();
  clock_.Advance(60'000);
  const MonotonicClockAhead later(std::chrono::minutes(1));
  const std::uint64_t first = One(claimer);
  clock_.Set(kNow - 3'600'000);
  PollAndSettle();
  EXPECT_NE(SnapshotOf(kTag).state, TagState::kQuarantined);
  EXPECT_EQ(h_.store.script.Count("TakeWorker"), 1);
  clock_.Set(kNow + 60'000);
  EXPECT_EQ(One(claimer), first + 1);
}

// --- the clock of the daemon

class DaemonClockTest : public SnowflakeTest {
 protected:
  DaemonClockTest() {
    SnowflakeLayout layout;
    layout.clock = shm::TagClock::kDaemon;
    h_.store.AddSnowflake(kTag, layout);
  }
};

TEST_F(DaemonClockTest, RingMovesWithTheTimeWhileTheTagIsUsed) {
  SnowflakeClaimer& claimer = Claimer();
  EXPECT_EQ(TimeOf(One(claimer)), kNow);
  clock_.Advance(25);
  ASSERT_TRUE(h_.RunUntil([&] { return TimeOf(One(claimer)) == kNow + 25; }));
}

TEST_F(DaemonClockTest, ClaimsWithoutADaemonStopAtMaxAhead) {
  SnowflakeClaimer& claimer = Claimer();
  std::uint64_t ids = 0;
  for (SnowflakeClaim claim = claimer.Claim(4096); !claim.ids.empty();
       claim = claimer.Claim(4096)) {
    ids += claim.ids.size();
  }
  EXPECT_EQ(ids, 4096U * 1001);
  EXPECT_TRUE(claimer.Claim(1).is_early);
  EXPECT_FALSE(claimer.reads_clock());
}

TEST_F(DaemonClockTest, TagThatIsNotUsedSendsItsClaimersToTheDaemonForThePresentTime) {
  SnowflakeClaimer& claimer = Claimer();
  One(claimer);
  // Two seconds without a claim.
  const shm::RingLive& live = clients_.back()->memory->table().live;
  ASSERT_TRUE(h_.RunUntil([&] { return live.frontier.load(std::memory_order_acquire) == 0; }));
  clock_.Advance(20'000);
  EXPECT_TRUE(claimer.Claim(1).is_early);
  EXPECT_EQ(TimeOf(OneBySocket()), kNow + 20'000);
  EXPECT_EQ(TimeOf(One(claimer)), kNow + 20'000);
}

// --- restart

class SnowflakeRestartTest : public ::testing::Test {
 protected:
  SnowflakeRestartTest() {
    h_.store.AddSnowflake(kTag, layout_);
    h_.store.OwnWorker(kTag, 5, FakeStore::kHost, At(kNow));
  }
  // An idd that has published a window, from which `claimed` numbers were claimed.
  void Leave(const std::string& counter, char digit, std::uint64_t claimed) {
    const std::string token(32, digit);
    const Lease lease = h_.store
                            .TakeLease({.tag = counter,
                                        .count = layout_.FirstOf(600'000),
                                        .floor = At(kNow),
                                        .token = token,
                                        .rises = true,
                                        .is_of_worker = true})
                            .value();
    h_.held->RecordAsked(token, counter);
    h_.held->RecordGranted(lease, h_.store.FindTag(kTag).value());
    old_ = TagRing::Create(kTag, 0, h_.descriptors, {.layout = layout_}).value();
    h_.held->RecordUsed(token, lease.ids.first, old_->ring_id());
    old_->Publish(lease, 0, shm::kNoMark, h_.held->NextOf(token));
    EXPECT_EQ(old_->Claim(claimed).size(), claimed);
  }
  Inheritance Find() {
    std::vector<PassedDescriptor> passed;
    passed.push_back({kHeldLeasesName, ScopedFd(::dup(h_.held->fd()))});
    passed.push_back({TableName(old_->ring_id()), ScopedFd(::dup(old_->table_fd()))});
    passed.push_back({CursorsName(old_->ring_id()), ScopedFd(::dup(old_->cursors_fd()))});
    return Inherit(passed, "host-a", h_.held->id()).value();
  }
  [[nodiscard]] std::uint64_t At(std::int64_t unix_ms) const {
    return layout_.FirstOf(layout_.TimeAt(unix_ms));
  }

  TestWallClock clock_{kNow};
  const SnowflakeLayout layout_{};
  WorkerHarness h_;
  std::unique_ptr<HeldLeases> old_held_;
  std::unique_ptr<TagRing> old_;
};

TEST_F(SnowflakeRestartTest, InheritedWindowGoesOnWithoutTheStoreAndWithAClockThatIsBehind) {
  Leave("flakes#5", 'a', 10);
  Inheritance inheritance = Find();
  old_held_ = std::exchange(h_.held, std::move(inheritance.held));
  TagService service(h_.loop, h_.worker, h_.handover(), 1000);
  clock_.Set(kNow - 900);  // within max_ahead
  service.Inherit(inheritance);
  std::optional<Result<ClaimGrant>> grant;
  service.Claim(kTag, 0, 3, {.owner = 1, .deadline = Deadline::After(std::chrono::seconds(10))},
                [&grant](const Result<ClaimGrant>& result) { grant = result; });
  ASSERT_TRUE(h_.RunUntil([&] { return grant.has_value(); }));
  ASSERT_TRUE(grant->ok()) << grant->status().message();
  const std::uint64_t id = grant->value().ids.first;
  EXPECT_EQ(layout_.PartsOf(id)->worker, 5U);
  EXPECT_EQ(layout_.NumberOf(*layout_.PartsOf(id)), At(kNow) + 10) << "above all that were used";
  EXPECT_EQ(h_.store.script.Count("TakeLease"), 1) << "the store was not asked";
}

TEST_F(SnowflakeRestartTest, WindowOfAnEarlierWorkerIdGoesBack) {
  Leave("flakes#5", 'a', 10);
  h_.store.OwnWorker(kTag, 6, FakeStore::kHost, At(kNow + 600'000));
  const std::string token(32, 'b');
  const Lease lease = h_.store
                          .TakeLease({.tag = "flakes#6",
                                      .count = layout_.FirstOf(100),
                                      .floor = At(kNow + 600'000),
                                      .token = token,
                                      .rises = true,
                                      .is_of_worker = true})
                          .value();
  h_.held->RecordAsked(token, "flakes#6");
  h_.held->RecordGranted(lease, h_.store.FindTag(kTag).value());
  Inheritance inheritance = Find();
  old_held_ = std::exchange(h_.held, std::move(inheritance.held));
  TagService service(h_.loop, h_.worker, h_.handover(), 1000);
  h_.Start([&service](const StoreHealth& health) { service.OnStoreHealth(health); });
  service.Inherit(inheritance);
  ASSERT_TRUE(h_.RunUntil([&] { return h_.store.next_id("flakes#5") == At(kNow) + 10; }));
  ASSERT_EQ(service.Snapshot().size(), 1U);
  EXPECT_EQ(service.Snapshot().front().leases.front().lease.tag, "flakes#6");
}

}  // namespace
}  // namespace idd::daemon
