// SPDX-License-Identifier: Apache-2.0
//
// Faults that a restart must not cause; each case failed until its fault was fixed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "idd/shm/left_ring.h"
#include "idd/shm/ring_memory.h"
#include "leasing/lease_closer.h"
#include "restart/descriptor_names.h"
#include "restart/inheritance.h"
#include "sqlite_test_support.h"
#include "support/leases.h"
#include "support/service_harness.h"

namespace idd::daemon {
namespace {

TagRecord Orders() {
  TagRecord record;
  record.tag = "orders";
  record.step = 1000;
  record.max_id = shm::kMaxLimit - 1;
  record.refill = FixedStep(1000);
  return record;
}

class UnfinishedBusiness : public ::testing::Test {
 protected:
  Lease Take(WorkerHarness& h, char digit, std::uint64_t count = 1000) {
    const Result<Lease> lease = h.store.TakeLease({.tag = "orders",
                                                   .count = count,
                                                   .high_water_mark = h.marks.mark("orders"),
                                                   .floor = 0,
                                                   .token = Token(digit)});
    EXPECT_TRUE(lease.ok());
    Lease taken = lease.value();
    taken.previous_mark = h.marks.mark("orders");
    EXPECT_TRUE(h.marks.RaiseAll({{.tag = "orders", .mark = taken.ids.limit}}).ok());
    return taken;
  }
  static void AwaitStore(WorkerHarness& h) {
    ASSERT_TRUE(h.RunUntil([&] {
      bool up = false;
      bool answered = false;
      h.worker.Submit<bool>([](Store&, HighWaterMarks&) -> Result<bool> { return true; },
                            [&](const Result<bool>& done) {
                              up = done.ok();
                              answered = true;
                            });
      return h.RunUntil([&] { return answered; }) && up;
    }));
  }
  static LeaseState StateOf(WorkerHarness& h, const std::string& token) {
    for (const LeaseRecord& lease : h.store.leases()) {
      if (lease.token == token) return lease.state;
    }
    return LeaseState::kAbandoned;
  }
};

// An idd that was killed after the commit of a hand-back leaves the lease recorded as returning.
// The next idd finds the store down for a moment, so the record stays; it leases the same ids again
// and is restarted. The hand-back is then retried while the ids are in use under another lease.
TEST_F(UnfinishedBusiness, HandBackThatWasDoneLongAgoLeavesTheMarkOfALaterLease) {
  WorkerHarness h;
  h.store.AddTag("orders", 1000);
  const Lease first = Take(h, 'a');
  ASSERT_EQ(first.ids, (shm::IdRange{1, 1001}));
  // The first idd's hand-back, whose result it never got: max_id and mark are lowered.
  ASSERT_TRUE(h.marks.Lower("orders", first.previous_mark).ok());
  ASSERT_TRUE(
      h.store
          .ReturnTail(
              {.token = first.token, .tag = "orders", .state = LeaseState::kReturned, .claimed = 0})
          .ok());
  ASSERT_EQ(h.store.next_id("orders"), 1U);
  h.Start();
  {
    LeaseCloser second_idd(h.worker, *h.held, [] {});
    h.store.script.FailAll({Code::kUnavailable, "down"});
    second_idd.HandBack({.lease = first, .claimed = 0});
    h.Settle();
    ASSERT_TRUE(h.RunUntil([&] { return second_idd.idle(); }));
    h.store.script.FailAll(Status::Ok());
    AwaitStore(h);
    second_idd.Flush();
    h.Settle();
  }
  const Lease again = Take(h, 'b');
  ASSERT_EQ(again.ids, first.ids) << "the same ids, handed out from here on";
  ASSERT_EQ(h.marks.mark("orders"), 1001U);
  LeaseCloser third_idd(h.worker, *h.held, [] {});
  third_idd.HandBack({.lease = first, .claimed = 0});
  ASSERT_TRUE(h.RunUntil([&] { return third_idd.idle(); }));
  EXPECT_EQ(h.marks.mark("orders"), 1001U)
      << "the mark must not fall below ids that are handed out";
  // Then the store is set back to before all of this; only the mark prevents duplicates.
  h.store.ForgetLeases();
  h.store.AddTag("orders", 1000);
  EXPECT_GE(Take(h, 'c').ids.first, again.ids.limit) << "ids that were handed out already";
}

// Both leases are held when the store turns out to be an older copy: the one that is being returned
// (and was returned long ago) and the one that has the same ids now.
TEST_F(UnfinishedBusiness, LiveLeaseIsNotJournalledAsReturnedForOneThatIsOnItsWayBack) {
  const TempDir dir;
  SqliteStore store({dir.File("idd.db"), "host-a", {}});
  ASSERT_TRUE(store.Open().ok());
  NewTag tag;
  tag.tag = "orders";
  tag.step = 1000;
  ASSERT_TRUE(store.CreateTag(tag).ok());
  HostMemory memory;
  memory.marks = {{.tag = "orders", .mark = 1001}};
  memory.held = {{.token = Token('a'), .tag = "orders", .ids = {1, 1001}, .previous_mark = 1},
                 {.token = Token('b'), .tag = "orders", .ids = {1, 1001}, .previous_mark = 1}};
  ASSERT_TRUE(store.Reconcile(memory).ok());
  const auto leases = store.ListLeases({});
  ASSERT_TRUE(leases.ok());
  for (const LeaseRecord& lease : leases.value()) {
    if (lease.token == Token('b')) {
      EXPECT_EQ(LeaseStateName(lease.state), LeaseStateName(LeaseState::kActive));
    }
  }
}

TEST_F(UnfinishedBusiness, HandBackThatFoundTheStoreDownIsTriedAgainOrAbandoned) {
  WorkerHarness h;
  h.store.AddTag("orders", 1000);
  const Lease lease = Take(h, 'a');
  StoreSession session;  // as Engine::Inherit() does
  session.held[lease.token] = lease;
  h.worker.Assume(std::move(session));
  h.store.script.Fail("Open", {Code::kUnavailable, "down"});
  LeaseCloser closer(h.worker, *h.held, [] {});
  closer.HandBack({.lease = lease, .claimed = 10});
  h.Start();
  ASSERT_TRUE(h.RunUntil([&] { return closer.idle(); }));
  AwaitStore(h);
  closer.Flush();
  h.Settle();
  closer.Flush();
  h.Settle();
  bool is_held = true;
  h.worker.SubmitWithSession<bool>(
      [token = lease.token](Store&, HighWaterMarks&, StoreSession& held_session) {
        return Result<bool>(held_session.held.contains(token));
      },
      [&is_held](const Result<bool>& held) { is_held = !held.ok() || held.value(); });
  h.Settle();
  EXPECT_TRUE(StateOf(h, lease.token) != LeaseState::kActive || !is_held)
      << "active in the journal, in no ring, and never ended in this run";
}

// P2 is stored, P3 is not: the process may die at the first store to the cursors' page.
TEST_F(UnfinishedBusiness, DeathBetweenBaseAndCursorIsNoForgery) {
  auto ring = shm::RingMemory::Create({.tag = "orders", .ring_id = 7}).value();
  shm::RingWriter writer(ring->writable_table(), ring->cursors());
  static_cast<void>(writer.Publish({1, 1001}, 0, shm::kNoMark));
  ring->writable_table().slots[2].base.store(1001);  // P2 of the next segment
  auto left = shm::LeftRing::Open(ScopedFd(::dup(ring->table_fd())),
                                  ScopedFd(::dup(ring->cursors_fd())), "orders")
                  .value();
  left->Close();
  EXPECT_EQ(left->NextOf({1, 1001}), 1U);
  EXPECT_TRUE(left->StaysClosed());
}

TEST_F(UnfinishedBusiness, LeaseThatIsTooLongToPublishMakesNoSense) {
  auto held = HeldLeases::Create("host-a").value();
  const Lease lease{
      .token = Token('a'), .tag = "orders", .ids = {1, shm::kMaxLimit - 1}, .previous_mark = 1};
  held->RecordAsked(lease.token, lease.tag);
  held->RecordGranted(lease, Orders());
  for (const HeldLease& left :
       HeldLeases::Adopt(ScopedFd(::dup(held->fd())), "host-a").value()->All()) {
    EXPECT_LE(left.lease.ids.size(), shm::kClosingStep / 2) << "RingWriter::Publish() would abort";
  }
}

// The stop has waited long enough for a stalled store.
TEST_F(UnfinishedBusiness, StopThatGivesUpKeepsTheTailsForTheNext) {
  WorkerHarness h;
  h.descriptors.is_there = true;
  h.store.AddTag("orders", 1000);
  auto service = std::make_unique<TagService>(h.loop, h.worker, h.handover(), 1000);
  h.Start([&](const StoreHealth& health) {
    if (service) service->OnStoreHealth(health);
  });
  bool answered = false;
  const auto claim = [&](std::uint64_t count) {
    answered = false;
    service->Claim("orders", 0, count,
                   {.owner = 1, .deadline = Deadline::After(std::chrono::minutes(1))},
                   [&](const Result<ClaimGrant>&) { answered = true; });
  };
  claim(10);
  ASSERT_TRUE(h.RunUntil([&] { return answered; }));
  h.Settle();
  h.store.script.Hold("TakeLease");
  const int before = h.store.script.Count("TakeLease");
  for (int i = 0; i < 20 && h.store.script.Count("TakeLease") == before; ++i) {
    claim(100);
    ASSERT_TRUE(h.RunUntil([&] { return answered; }));
    const Deadline soon = Deadline::After(std::chrono::milliseconds(100));
    ASSERT_TRUE(
        h.RunUntil([&] { return soon.passed() || h.store.script.Count("TakeLease") > before; }));
  }
  ASSERT_GT(h.store.script.Count("TakeLease"), before) << "a lease is under way";
  bool stopped = false;
  service->Shutdown([&] { stopped = true; });
  for (int i = 0; i < 20; ++i) h.loop.RunOne(std::chrono::milliseconds(5));
  ASSERT_FALSE(stopped);
  h.worker.DropQueued();  // as Engine::Stop() after its timeout
  service.reset();
  std::size_t lost = 0;
  for (const HeldLease& left :
       HeldLeases::Adopt(ScopedFd(::dup(h.held->fd())), "host-a").value()->All()) {
    if (left.state != HeldState::kHeld || left.ring_id == 0) continue;
    if (!h.descriptors.names.contains(TableName(left.ring_id))) ++lost;
  }
  EXPECT_EQ(lost, 0U) << "a lease is recorded for a ring whose descriptors were dropped: a gap";
  h.store.script.Release();
}

// An idd was killed while a lease was in progress; the store is unavailable when the next one
// starts.
TEST_F(UnfinishedBusiness, WaiterIsServedOnceUnansweredLeasesWereLookedUp) {
  WorkerHarness h;
  h.store.AddTag("orders", 1000);
  h.held->RecordAsked(Token('a'), "orders");
  TagService service(h.loop, h.worker, h.handover(), 1000);
  Inheritance inheritance;
  inheritance.asked[Token('a')] = "orders";
  h.store.script.FailAll({Code::kUnavailable, "down"});
  service.Inherit(inheritance);
  h.Start([&](const StoreHealth& health) { service.OnStoreHealth(health); });
  h.Settle();
  bool answered = false;
  Status status;
  service.Claim("orders", 0, 1, {.owner = 1, .deadline = Deadline::After(std::chrono::minutes(1))},
                [&](const Result<ClaimGrant>& grant) {
                  status = grant.status();
                  answered = true;
                });
  h.Settle();
  h.store.script.FailAll(Status::Ok());
  MonotonicTime next_poll = MonotonicClock::now() + std::chrono::seconds(1);
  EXPECT_TRUE(h.RunUntil([&] {
    if (MonotonicClock::now() >= next_poll) {
      service.Poll();
      next_poll += std::chrono::seconds(1);
    }
    return answered;
  }));
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace idd::daemon
