// SPDX-License-Identifier: Apache-2.0
//
// The contract of every allocator, however it stores its rows: leases, hand-backs and their ends. A
// test file instantiates it with its fixture, a StoreCase that has
//   OpenStore(host)   a pointer to an open store of that host; all are on one database
//   MaxId()           leaf_alloc.max_id of "orders", as text
//   Journal()         "state claimed/returned/abandoned" of every lease, in order, joined with ","
//   Execute(sql)      runs a statement as another program would; Ask(sql) returns its answer
//   AdvanceAsLeaf()   takes a step of "orders" as a Leaf server does, and returns max_id
//   TakeWhenUnlocked(store, request)   as Take(), where a busy disk may lock others out for long
#ifndef IDD_TESTS_SUPPORT_STORE_CONTRACT_H_
#define IDD_TESTS_SUPPORT_STORE_CONTRACT_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "store/store.h"
#include "store_history.h"
#include "support/store_case.h"

namespace idd::daemon {

using shm::IdRange;
using shm::kMaxLimit;

template <typename Fixture>
class StoreContract : public Fixture {};
TYPED_TEST_SUITE_P(StoreContract);

TYPED_TEST_P(StoreContract, LeasesAreContiguousAndJournalled) {
  const auto store = this->OpenWithOrders("a");
  EXPECT_EQ(this->Take(*store, Request(1)), (IdRange{1, 1001}));
  EXPECT_EQ(this->Take(*store, Request(2, 1001, 5)), (IdRange{1001, 1006}));
  EXPECT_EQ(this->MaxId(), "1006");
  const auto leases = store->ListLeases({});
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  ASSERT_EQ(leases.value().size(), 2U);
  const LeaseRecord& second = leases.value()[1];
  EXPECT_EQ(second.token, TestToken(2));
  EXPECT_EQ(second.tag, "orders");
  EXPECT_EQ(second.host, "a");
  EXPECT_EQ(second.ids, (IdRange{1001, 1006}));
  EXPECT_EQ(second.state, LeaseState::kActive);
  EXPECT_EQ(second.leased_at.size(), std::string("YYYY-MM-DD HH:MM:SS").size());
  EXPECT_EQ(second.closed_at, "");
}

TYPED_TEST_P(StoreContract, TokenUsedTwiceLeasesNothing) {
  const auto store = this->OpenWithLease("a");
  EXPECT_FALSE(store->TakeLease(Request(1)).ok());
  EXPECT_EQ(this->MaxId(), "1001");
  EXPECT_EQ(this->Take(*store, Request(2)), (IdRange{1001, 2001}));
}

TYPED_TEST_P(StoreContract, ThreadsOfSeveralHostsAndALeafServerNeverGetTheSameIds) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kLeases = 100;
  StoreCase::CreateOrders(*this->OpenStore("setup"));
  std::vector<std::vector<IdRange>> taken(kThreads + 1);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto store = this->OpenStore("host-" + std::to_string(t));
      for (std::uint64_t i = 0; i < kLeases; ++i) {
        taken[t].push_back(
            this->TakeWhenUnlocked(*store, Request(1 + t * kLeases + i, 0, 1 + i % 7)));
      }
    });
  }
  threads.emplace_back([&] {
    for (std::uint64_t i = 0; i < kLeases; ++i) {
      const std::uint64_t max_id = this->AdvanceAsLeaf();
      taken[kThreads].push_back({max_id - 1000, max_id});
    }
  });
  for (std::thread& thread : threads) thread.join();
  std::vector<IdRange> all;
  std::uint64_t ids = 0;
  for (const auto& ranges : taken) {
    for (const IdRange& range : ranges) {
      all.push_back(range);
      ids += range.size();
    }
  }
  ASSERT_EQ(all.size(), (kThreads + 1) * kLeases);
  ExpectDisjoint(all);
  EXPECT_EQ(this->MaxId(), std::to_string(ids + 1)) << "there is a gap without a reason";
}

TYPED_TEST_P(StoreContract, MaxIdBelowTheMarkIsLifted) {
  const auto store = this->OpenWithOrders("a");
  const auto lease = store->TakeLease(Request(1, 50000));
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(lease.value().ids, (IdRange{50000, 51000}));
  EXPECT_EQ(lease.value().lifted_from, 1U);
  const auto next = store->TakeLease(Request(2, 51000));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next.value().ids, (IdRange{51000, 52000}));
  EXPECT_FALSE(next.value().lifted_from.has_value());
}

TYPED_TEST_P(StoreContract, MaxIdLoweredByHandIsLiftedAboveEveryHostsLeases) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(2));
  this->Execute("UPDATE leaf_alloc SET max_id = 1");
  const auto lease = b->TakeLease(Request(3));  // b has no mark
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(lease.value().ids, (IdRange{2001, 3001}));
  EXPECT_EQ(lease.value().lifted_from, 1U);
}

TYPED_TEST_P(StoreContract, LeasesEndAtTheLargestAllowedId) {
  const auto store = this->OpenStore("a");
  NewTag tag;
  tag.tag = "orders";
  tag.start = 0;
  tag.max_id = 1200;
  ASSERT_TRUE(store->CreateTag(tag).ok());
  EXPECT_EQ(this->Take(*store, Request(1)), (IdRange{0, 1000}));
  EXPECT_EQ(this->Take(*store, Request(2)), (IdRange{1000, 1201}));
  const Status status = store->TakeLease(Request(3)).status();
  EXPECT_EQ(status.code(), Code::kOutOfIds);
  EXPECT_NE(status.message().find("1200"), std::string::npos) << status.message();
}

TYPED_TEST_P(StoreContract, LastLeaseBelowTwoToThe63IsShortAndThenNothingIsLeft) {
  const auto store = this->OpenWithOrders("a");
  this->Execute("UPDATE leaf_alloc SET max_id = " + std::to_string(kMaxLimit - 1500));
  EXPECT_EQ(this->Take(*store, Request(1)), (IdRange{kMaxLimit - 1500, kMaxLimit - 500}));
  EXPECT_EQ(this->Take(*store, Request(2)), (IdRange{kMaxLimit - 500, kMaxLimit}));
  for (std::uint64_t token = 3; token < 6; ++token) {
    EXPECT_EQ(store->TakeLease(Request(token)).status().code(), Code::kOutOfIds);
  }
  EXPECT_EQ(this->MaxId(), std::to_string(kMaxLimit));
  // The short lease goes back like any other.
  this->Return(*store, 2, 499, ReturnOutcome::kLowered);
  EXPECT_EQ(this->Take(*store, Request(6)), (IdRange{kMaxLimit - 1, kMaxLimit}));
}

TYPED_TEST_P(StoreContract, RowDeletedByHandIsNoSuchTagAndItsNamesakeStartsAboveTheJournal) {
  const auto store = this->OpenWithLease("a");
  this->Execute("DELETE FROM leaf_alloc");
  EXPECT_EQ(store->TakeLease(Request(2, 1001)).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(this->Ask("SELECT COUNT(*) FROM leaf_alloc"), "0") << "never made again from 1";
  this->CreateOrders(*store);
  EXPECT_EQ(this->Take(*store, Request(3)), (IdRange{1001, 2001}));
}

TYPED_TEST_P(StoreContract, TailGoesBackIntoMaxIdWhenNobodyLeasedAfter) {
  const auto store = this->OpenWithLease("a");
  this->Return(*store, 1, 400, ReturnOutcome::kLowered);
  EXPECT_EQ(this->MaxId(), "401");
  EXPECT_EQ(this->Journal(), "returned 400/600/0");
  const auto lease = store->TakeLease(Request(2, 401));
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease.value().ids, (IdRange{401, 1401}));
  EXPECT_FALSE(lease.value().from_returned);
  EXPECT_FALSE(lease.value().lifted_from.has_value());
}

// Regression: the journal counted the base of a lease that was handed back whole as used, and
// lifted max_id back to it: a gap, and an alarm about a store that had not gone backwards.
TYPED_TEST_P(StoreContract, WholeLeasesOfTwoHostsGoBackInTurnWithoutAGap) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*b, Request(2));
  this->Return(*b, 2, 0, ReturnOutcome::kLowered);
  this->Return(*a, 1, 0, ReturnOutcome::kLowered);
  const auto lease = b->TakeLease(Request(3));
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease.value().ids, (IdRange{1, 1001}));
  EXPECT_FALSE(lease.value().lifted_from.has_value());
}

TYPED_TEST_P(StoreContract, TailIsListedWhenSomebodyLeasedAfter) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*b, Request(2));
  this->Return(*a, 1, 400, ReturnOutcome::kListed);
  EXPECT_EQ(this->MaxId(), "2001");
  EXPECT_EQ(this->Journal(), "returned 400/600/0,active 0/0/0");
  const auto ranges = b->ListReturned("orders");
  ASSERT_TRUE(ranges.ok());
  ASSERT_EQ(ranges.value().size(), 1U);
  EXPECT_EQ(ranges.value()[0].host, "a");
  EXPECT_EQ(ranges.value()[0].tag, "orders");
  EXPECT_EQ(ranges.value()[0].ids, (IdRange{401, 1001}));
  EXPECT_TRUE(b->ListReturned("other").value().empty());
}

TYPED_TEST_P(StoreContract, OwnReturnedRangesAreTakenBackFirstAndInOrder) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(2));
  this->Take(*b, Request(3));
  this->Return(*a, 2, 0, ReturnOutcome::kListed);
  this->Return(*a, 1, 400, ReturnOutcome::kListed);
  // The ranges are a's: b leases new ids.
  EXPECT_EQ(this->Take(*b, Request(4)), (IdRange{3001, 4001}));
  const auto first = a->TakeLease(Request(5, 401));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.value().ids, (IdRange{401, 1001}));
  EXPECT_TRUE(first.value().from_returned);
  EXPECT_EQ(first.value().token, TestToken(5));
  EXPECT_EQ(this->Take(*a, Request(6, 1001)), (IdRange{1001, 2001}));
  EXPECT_EQ(this->Take(*a, Request(7, 2001)), (IdRange{4001, 5001}));
  EXPECT_TRUE(a->ListReturned(std::nullopt).value().empty());
  // A range that was taken back can go back again.
  this->Return(*a, 5, 100, ReturnOutcome::kListed);
  EXPECT_EQ(a->ListReturned("orders").value()[0].ids, (IdRange{501, 1001}));
}

TYPED_TEST_P(StoreContract, LeaseThatMustRiseTakesNoReturnedRange) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*b, Request(2));
  this->Return(*a, 1, 0, ReturnOutcome::kListed);
  LeaseRequest rising = Request(3);
  rising.rises = true;
  const auto lease = a->TakeLease(rising);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(lease.value().ids, (IdRange{2001, 3001}));
  EXPECT_EQ(this->Take(*a, Request(4)), (IdRange{1, 1001})) << "the range is still listed";
}

TYPED_TEST_P(StoreContract, ReturnedRangeBelowFloorOrMarkIsLeftAlone) {
  const auto a = this->OpenWithLease("a");
  this->Take(*this->OpenStore("b"), Request(2));
  this->Return(*a, 1, 400, ReturnOutcome::kListed);
  LeaseRequest above_floor = Request(3);
  above_floor.floor = 402;
  EXPECT_EQ(this->Take(*a, above_floor), (IdRange{2001, 3001}));
  EXPECT_EQ(this->Take(*a, Request(4, 402)), (IdRange{3001, 4001}));
  EXPECT_EQ(this->Take(*a, Request(5, 401)), (IdRange{401, 1001}));
}

TYPED_TEST_P(StoreContract, ReturnIsStaleUnlessTheLeaseIsActiveAndOurs) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Return(*b, 1, 0, ReturnOutcome::kStale);
  this->Return(*a, 99, 0, ReturnOutcome::kStale);
  ASSERT_TRUE(a->CloseLeases({Closure(1, LeaseState::kAbandoned, 10)}).ok());
  this->Return(*a, 1, 10, ReturnOutcome::kStale);
  EXPECT_EQ(this->MaxId(), "1001");
  EXPECT_EQ(this->Journal(), "abandoned 10/0/990");
}

TYPED_TEST_P(StoreContract, ReturnOfNothingOrOfMoreThanThereIsIsInvalid) {
  const auto store = this->OpenWithLease("a");
  for (const std::uint64_t claimed :
       {std::uint64_t{1000}, std::uint64_t{1001}, std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_EQ(store->ReturnTail(Closure(1, LeaseState::kReturned, claimed)).status().code(),
              Code::kInvalid);
  }
  EXPECT_EQ(store->ReturnTail(Closure(1, LeaseState::kAbandoned, 0)).status().code(),
            Code::kInvalid);
  EXPECT_EQ(this->Journal(), "active 0/0/0");
}

TYPED_TEST_P(StoreContract, LeasesAreClosedOnceAndOnlyTheirOwners) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(2));
  this->Take(*b, Request(3));
  const std::vector<LeaseClosure> closures = {
      Closure(1, LeaseState::kExhausted, 1000), Closure(3, LeaseState::kAbandoned, 0),
      Closure(77, LeaseState::kExhausted, 5), Closure(2, LeaseState::kAbandoned, 300)};
  EXPECT_TRUE(a->CloseLeases(closures).ok());
  const std::string once = "exhausted 1000/0/0,abandoned 300/0/700,active 0/0/0";
  EXPECT_EQ(this->Journal(), once);
  EXPECT_TRUE(a->CloseLeases(closures).ok());
  EXPECT_TRUE(a->CloseLeases({Closure(1, LeaseState::kAbandoned, 0)}).ok());
  EXPECT_EQ(this->Journal(), once);
}

TYPED_TEST_P(StoreContract, ClosureThatCannotBeTrueJournalsNothing) {
  const auto store = this->OpenWithLease("a");
  this->Take(*store, Request(2));
  const LeaseClosure good = Closure(1, LeaseState::kExhausted, 1000);
  for (const LeaseClosure& bad :
       {Closure(2, LeaseState::kExhausted, 999), Closure(2, LeaseState::kAbandoned, 1001),
        Closure(2, LeaseState::kReturned, 0), Closure(2, LeaseState::kActive, 0)}) {
    EXPECT_EQ(store->CloseLeases({good, bad}).code(), Code::kInvalid);
  }
  EXPECT_EQ(this->Journal(), "active 0/0/0,active 0/0/0");
}

TYPED_TEST_P(StoreContract, ActiveLeasesOfThisHostAreAbandonedExceptThoseNamed) {
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  for (std::uint64_t token = 1; token <= 3; ++token) this->Take(*a, Request(token));
  this->Take(*b, Request(4));
  ASSERT_TRUE(a->CloseLeases({Closure(1, LeaseState::kExhausted, 1000)}).ok());
  const auto abandoned = a->AbandonActive({TestToken(3)});
  ASSERT_TRUE(abandoned.ok()) << abandoned.status().message();
  ASSERT_EQ(abandoned.value().size(), 1U);
  EXPECT_EQ(abandoned.value()[0].token, TestToken(2));
  EXPECT_EQ(abandoned.value()[0].state, LeaseState::kAbandoned);
  EXPECT_EQ(abandoned.value()[0].abandoned, 1000U);
  EXPECT_EQ(this->Journal(), "exhausted 1000/0/0,abandoned 0/0/1000,active 0/0/0,active 0/0/0");
  EXPECT_TRUE(a->AbandonActive({TestToken(3)}).value().empty());
}

TYPED_TEST_P(StoreContract, NamesakeOfADeletedTagStartsWhereItEnded) {
  const auto store = this->OpenWithLease("a");
  ASSERT_TRUE(store->DeleteTag("orders").ok());
  EXPECT_EQ(store->DeleteTag("orders").code(), Code::kNoSuchTag);
  EXPECT_EQ(store->TakeLease(Request(2)).status().code(), Code::kNoSuchTag);
  NewTag tag;
  tag.tag = "orders";
  tag.start = 1000;
  const Status status = store->CreateTag(tag).status();
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("1000"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("1001"), std::string::npos) << status.message();
  this->CreateOrders(*store);
  EXPECT_EQ(this->Take(*store, Request(3)), (IdRange{1001, 2001}));
  // The greatest end is kept over several deletions.
  ASSERT_TRUE(store->DeleteTag("orders").ok());
  this->CreateOrders(*store);
  EXPECT_EQ(this->Take(*store, Request(4)), (IdRange{2001, 3001}));
}

TYPED_TEST_P(StoreContract, DeletionGivesListedRangesUpAndTheSumsStayTrue) {
  const auto a = this->OpenWithLease("a");
  this->Take(*this->OpenStore("b"), Request(2));
  this->Return(*a, 1, 400, ReturnOutcome::kListed);
  ASSERT_TRUE(a->DeleteTag("orders").ok());
  EXPECT_TRUE(a->ListReturned(std::nullopt).value().empty());
  EXPECT_EQ(this->Journal(), "abandoned 400/0/600,active 0/0/0");
  this->CreateOrders(*a);
  EXPECT_EQ(this->Take(*a, Request(3)), (IdRange{2001, 3001}));
}

TYPED_TEST_P(StoreContract, LiftedTagLeasesNothingBelowAgain) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*b, Request(2));
  this->Take(*a, Request(3));
  this->Return(*a, 1, 10, ReturnOutcome::kListed);
  const Result<TagRecord> lifted = a->LiftTag("orders", 5000);
  ASSERT_TRUE(lifted.ok()) << lifted.status().message();
  EXPECT_EQ(lifted.value().next_id, 5000U);
  EXPECT_TRUE(a->ListReturned("orders").value().empty());
  // The rest of a lease below the lift is not taken back, and does not lower max_id.
  EXPECT_EQ(a->ReturnTail(Closure(3, LeaseState::kReturned, 5)).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(this->Journal(), "abandoned 10/0/990,active 0/0/0,abandoned 5/0/995");
  EXPECT_EQ(this->MaxId(), "5000");
  EXPECT_EQ(a->UsedLimit("orders").value(), 5000U);
  EXPECT_EQ(this->Take(*a, Request(4)), (IdRange{5000, 6000}));
  EXPECT_EQ(a->LiftTag("orders", 100).value().next_id, 6000U) << "never lowered";
  this->Return(*a, 4, 0, ReturnOutcome::kLowered);
  EXPECT_EQ(this->MaxId(), "5000");
  EXPECT_EQ(a->LiftTag("nobody", 100).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(a->UsedLimit("nobody").value(), 0U);
}

// A lease from before the lift that reaches above it: other hosts may own its ids below.
TYPED_TEST_P(StoreContract, TailThatReachesOverALiftIsAbandoned) {
  const auto a = this->OpenWithLease("a");
  ASSERT_TRUE(a->LiftTag("orders", 501).ok());
  EXPECT_EQ(a->ReturnTail(Closure(1, LeaseState::kReturned, 100)).status().code(),
            Code::kNoSuchTag);
  EXPECT_EQ(this->Journal(), "abandoned 100/0/900");
  EXPECT_EQ(this->Take(*a, Request(2)), (IdRange{1001, 2001}));
  this->Return(*a, 2, 0, ReturnOutcome::kLowered);
  EXPECT_EQ(this->MaxId(), "1001");
}

TYPED_TEST_P(StoreContract, TailOfADeletedTagIsAbandoned) {
  const auto store = this->OpenWithLease("a");
  this->Take(*store, Request(2));
  ASSERT_TRUE(store->DeleteTag("orders").ok());
  const LeaseClosure last = Closure(2, LeaseState::kReturned, 5);
  EXPECT_EQ(store->ReturnTail(last).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(this->Journal(), "active 0/0/0,abandoned 5/0/995");
  this->Return(*store, 2, 5, ReturnOutcome::kStale);
  // The namesake began at the deleted tag's end; a hand-back must not lower it below that.
  this->CreateOrders(*store);
  EXPECT_EQ(this->MaxId(), "2001");
  EXPECT_EQ(store->ReturnTail(Closure(1, LeaseState::kReturned, 0)).status().code(),
            Code::kNoSuchTag);
  EXPECT_EQ(this->MaxId(), "2001");
  this->Take(*store, Request(3));
  this->Return(*store, 3, 0, ReturnOutcome::kLowered);
  EXPECT_EQ(this->MaxId(), "2001");
}

TYPED_TEST_P(StoreContract, DataSetThatKnowsItAllIsNotChangedByAReminder) {
  const auto store = this->OpenWithOrders("a");
  const IdRange ids = this->Take(*store, Request(1));
  const auto reconciliation =
      store->Reconcile({.marks = {{"orders", 1001}, {"orders", 7}}, .held = {Held(1, ids)}});
  ASSERT_TRUE(reconciliation.ok()) << reconciliation.status().message();
  EXPECT_TRUE(reconciliation.value().lifted.empty());
  EXPECT_TRUE(reconciliation.value().restored.empty());
  EXPECT_FALSE(reconciliation.value().forgot_leases);
  EXPECT_EQ(this->MaxId(), "1001");
  EXPECT_EQ(this->Journal(), "active 0/0/0");
  this->Execute("UPDATE leaf_alloc SET max_id = 7");
  const auto lifted = store->Reconcile({.marks = {{"orders", 1001}}, .held = {}});
  ASSERT_EQ(lifted.value().lifted.size(), 1U);
  EXPECT_EQ(lifted.value().lifted[0].from, 7U);
  EXPECT_EQ(lifted.value().lifted[0].to, 1001U);
  EXPECT_FALSE(lifted.value().forgot_leases) << "the journal is unchanged: only max_id was moved";
  EXPECT_EQ(this->MaxId(), "1001");
}

TYPED_TEST_P(StoreContract, OneHostsMarksKeepTheOthersFromItsIds) {
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  const HostMemory memory{.marks = {{"orders", 5001}, {"users", 9001}, {"gone", 700}}, .held = {}};
  const auto reconciliation = a->Reconcile(memory);
  ASSERT_TRUE(reconciliation.ok()) << reconciliation.status().message();
  EXPECT_TRUE(reconciliation.value().forgot_leases);
  EXPECT_EQ(reconciliation.value().lifted.size(), 3U);
  EXPECT_EQ(this->Take(*b, Request(1, 11)), (IdRange{5001, 6001}));
  // Also for a tag that is created later, and with a lower start.
  NewTag tag;
  tag.tag = "users";
  tag.start = 1;
  EXPECT_EQ(b->CreateTag(tag).status().code(), Code::kInvalid);
  this->Execute("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('users', 1, 10)");
  LeaseRequest request = Request(2, 0, 10);
  request.tag = "users";
  EXPECT_EQ(this->Take(*b, request), (IdRange{9001, 9011}));
  this->CreateTag(*b, "gone");
  EXPECT_EQ(b->FindTag("gone").value().next_id, 700U);
  const auto again = a->Reconcile(memory);
  EXPECT_TRUE(again.value().lifted.empty()) << "a second time changes nothing";
  EXPECT_FALSE(again.value().forgot_leases);
}

TYPED_TEST_P(StoreContract, HeldLeaseIsJournalledAgainAndNeverHandedBack) {
  const auto store = this->OpenWithOrders("a");
  const auto reconciliation =
      store->Reconcile({.marks = {{"orders", 3001}}, .held = {Held(7, {2001, 3001})}});
  ASSERT_TRUE(reconciliation.ok()) << reconciliation.status().message();
  ASSERT_EQ(reconciliation.value().restored.size(), 1U);
  EXPECT_TRUE(reconciliation.value().forgot_leases);
  EXPECT_EQ(this->Journal(), "active 0/0/0");
  EXPECT_TRUE(store->AbandonActive({TestToken(7)}).value().empty());
  // Another host may have leased these ids from this data set.
  this->Return(*store, 7, 400, ReturnOutcome::kAbandoned);
  EXPECT_EQ(this->MaxId(), "3001");
  EXPECT_EQ(this->Journal(), "abandoned 400/0/600");
}

// Regression: SqliteStore did not look at them, so that a host that had noted ceilings on MySQL and
// moved to a file left the file below ids that other hosts had been granted.
TYPED_TEST_P(StoreContract, CeilingsLiftTheTagAsMarksDo) {
  const auto store = this->OpenWithOrders("a");
  HostMemory memory;
  memory.ceilings = {{.tag = "orders", .mark = 5001}};
  const auto reconciliation = store->Reconcile(memory);
  ASSERT_TRUE(reconciliation.ok()) << reconciliation.status().message();
  EXPECT_TRUE(reconciliation.value().lifted.empty());
  EXPECT_EQ(reconciliation.value().lifted_to_ceilings, 1U);
  EXPECT_EQ(this->MaxId(), "5001");
  EXPECT_EQ(this->Take(*store, Request(1)), (IdRange{5001, 6001}));
}

TYPED_TEST_P(StoreContract, TagIsChangedWithinWhatWasLeasedAndWholeOrNotAtAll) {
  const auto store = this->OpenWithLease("a");
  TagChange change{.tag = "orders", .step = 500, .max_id = 1000};
  change.description = "it's a \"test\"; DROP TABLE leaf_alloc; -- \\";
  change.access = TagAccess::kSocket;
  change.refill = {.rule = RefillRule::kLeaf,
                   .max_step = 5000,
                   .max_prefetch = 20000,
                   .outage_tolerance = std::chrono::seconds(60)};
  const auto changed = store->ChangeTag(change);
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(changed.value().step, 500U);
  EXPECT_EQ(changed.value().description, change.description);
  EXPECT_EQ(changed.value().max_id, 1000U);
  EXPECT_EQ(changed.value().access, TagAccess::kSocket);
  EXPECT_EQ(changed.value().refill.rule, RefillRule::kLeaf);
  EXPECT_EQ(changed.value().refill.max_prefetch, 20000U);
  EXPECT_EQ(store->TakeLease(Request(2)).status().code(), Code::kOutOfIds);
  const std::vector<TagChange> wrong = {
      {.tag = "orders", .step = 60, .max_id = 999},
      {.tag = "orders", .step = 60, .max_id = kMaxLimit},
      {.tag = "orders", .step = 15000, .refill = {.max_prefetch = 20000}},  // less than two steps
      {.tag = "orders", .step = 0}};
  for (const TagChange& bad : wrong) {
    EXPECT_EQ(store->ChangeTag(bad).status().code(), Code::kInvalid);
    EXPECT_EQ(store->FindTag("orders").value().step, 500U) << "half a change was kept";
  }
  change = {.tag = "other", .step = 5, .max_id = 10};
  EXPECT_EQ(store->ChangeTag(change).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(store->ListTags().value().size(), 1U);
  EXPECT_EQ(this->Ask("SELECT COUNT(*) FROM idd_tag"), "1") << "policy of a tag that is not there";
}

TYPED_TEST_P(StoreContract, OrderIsHostUnlessItIsSet) {
  const auto store = this->OpenWithOrders("a");
  EXPECT_EQ(store->FindTag("orders").value().order, TagOrder::kHost);
  EXPECT_EQ(store->FindTag("orders").value().lane_block, 0U);
  NewTag tag;
  tag.tag = "lanes";
  tag.order = TagOrder::kCpu;
  tag.lane_block = 64;
  const auto created = store->CreateTag(tag);
  ASSERT_TRUE(created.ok()) << created.status().message();
  EXPECT_EQ(created.value().order, TagOrder::kCpu);
  EXPECT_EQ(created.value().lane_block, 64U);
  EXPECT_EQ(store->ListTags().value().front().order, TagOrder::kCpu);
  const auto lease = store->TakeLease(Request(1, 0, 1000, "lanes"));
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  // Each is changed alone, and kept by other changes.
  TagChange change{.tag = "lanes", .lane_block = 0};
  EXPECT_EQ(store->ChangeTag(change).value().lane_block, 0U);
  EXPECT_EQ(store->FindTag("lanes").value().order, TagOrder::kCpu);
  change = {.tag = "orders", .order = TagOrder::kCpu};
  EXPECT_EQ(store->ChangeTag(change).value().order, TagOrder::kCpu);
  change = {.tag = "orders", .step = 5};
  EXPECT_EQ(store->ChangeTag(change).value().order, TagOrder::kCpu);
  // A namesake of a deleted tag has its own order.
  ASSERT_TRUE(store->DeleteTag("lanes").ok());
  tag.order = TagOrder::kHost;
  tag.lane_block = 0;
  EXPECT_EQ(store->CreateTag(tag).value().order, TagOrder::kHost);
  for (const std::uint64_t block : {std::uint64_t{1}, shm::kMaxLaneBlock + 1}) {
    change = {.tag = "lanes", .lane_block = block};
    EXPECT_EQ(store->ChangeTag(change).status().code(), Code::kInvalid) << block;
  }
  NewTag ticket;
  ticket.tag = "tickets";
  ticket.mode = TagMode::kTicket;
  ticket.order = TagOrder::kCpu;
  EXPECT_EQ(store->CreateTag(ticket).status().code(), Code::kInvalid);
}

// The simulator's model of a store (tests/simulation) must do what the real ones do.
TYPED_TEST_P(StoreContract, RandomHistoriesGoAsTheModelSays) {
  const auto a = this->OpenStore("a");
  const auto b = this->OpenStore("b");
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    StoreHistory history(seed, {a.get(), b.get()});
    history.Run(80);
    if (::testing::Test::HasFailure()) return;
  }
}

REGISTER_TYPED_TEST_SUITE_P(
    StoreContract, LeasesAreContiguousAndJournalled, TokenUsedTwiceLeasesNothing,
    ThreadsOfSeveralHostsAndALeafServerNeverGetTheSameIds, MaxIdBelowTheMarkIsLifted,
    MaxIdLoweredByHandIsLiftedAboveEveryHostsLeases, LeasesEndAtTheLargestAllowedId,
    LastLeaseBelowTwoToThe63IsShortAndThenNothingIsLeft,
    RowDeletedByHandIsNoSuchTagAndItsNamesakeStartsAboveTheJournal,
    TailGoesBackIntoMaxIdWhenNobodyLeasedAfter, WholeLeasesOfTwoHostsGoBackInTurnWithoutAGap,
    TailIsListedWhenSomebodyLeasedAfter, OwnReturnedRangesAreTakenBackFirstAndInOrder,
    LeaseThatMustRiseTakesNoReturnedRange, ReturnedRangeBelowFloorOrMarkIsLeftAlone,
    ReturnIsStaleUnlessTheLeaseIsActiveAndOurs, ReturnOfNothingOrOfMoreThanThereIsIsInvalid,
    LeasesAreClosedOnceAndOnlyTheirOwners, ClosureThatCannotBeTrueJournalsNothing,
    ActiveLeasesOfThisHostAreAbandonedExceptThoseNamed, NamesakeOfADeletedTagStartsWhereItEnded,
    DeletionGivesListedRangesUpAndTheSumsStayTrue, LiftedTagLeasesNothingBelowAgain,
    TailThatReachesOverALiftIsAbandoned, TailOfADeletedTagIsAbandoned,
    DataSetThatKnowsItAllIsNotChangedByAReminder, OneHostsMarksKeepTheOthersFromItsIds,
    HeldLeaseIsJournalledAgainAndNeverHandedBack, CeilingsLiftTheTagAsMarksDo,
    TagIsChangedWithinWhatWasLeasedAndWholeOrNotAtAll, OrderIsHostUnlessItIsSet,
    RandomHistoriesGoAsTheModelSays);

}  // namespace idd::daemon

#endif  // IDD_TESTS_SUPPORT_STORE_CONTRACT_H_
