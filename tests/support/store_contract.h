// SPDX-License-Identifier: Apache-2.0
//
// The contract of every allocator, however it stores its rows: leases, hand-backs and their ends. A
// test file instantiates it with its fixture, a StoreCase that has
//   OpenStore(host)   a pointer to an open store of that host; all are on one database
//   MaxId()           leaf_alloc.max_id of "orders", as text
//   Journal()         "state claimed/returned/abandoned" of every lease, in order, joined with ","
#ifndef IDD_TESTS_SUPPORT_STORE_CONTRACT_H_
#define IDD_TESTS_SUPPORT_STORE_CONTRACT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "store/store.h"
#include "store_history.h"
#include "support/store_case.h"

namespace idd::daemon {

using shm::IdRange;

template <typename Fixture>
class StoreContract : public Fixture {
 protected:
  [[nodiscard]] auto OpenWithOrders(const std::string& host) {
    auto store = this->OpenStore(host);
    StoreCase::CreateOrders(*store);
    return store;
  }
};
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
  const auto store = this->OpenWithOrders("a");
  this->Take(*store, Request(1));
  EXPECT_FALSE(store->TakeLease(Request(1)).ok());
  EXPECT_EQ(this->MaxId(), "1001");
  EXPECT_EQ(this->Take(*store, Request(2)), (IdRange{1001, 2001}));
}

TYPED_TEST_P(StoreContract, TailGoesBackIntoMaxIdWhenNobodyLeasedAfter) {
  const auto store = this->OpenWithOrders("a");
  this->Take(*store, Request(1));
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
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(1));
  this->Take(*b, Request(2));
  this->Return(*b, 2, 0, ReturnOutcome::kLowered);
  this->Return(*a, 1, 0, ReturnOutcome::kLowered);
  const auto lease = b->TakeLease(Request(3));
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease.value().ids, (IdRange{1, 1001}));
  EXPECT_FALSE(lease.value().lifted_from.has_value());
}

TYPED_TEST_P(StoreContract, TailIsListedWhenSomebodyLeasedAfter) {
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(1));
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
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(1));
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
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(1));
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
  const auto a = this->OpenWithOrders("a");
  this->Take(*a, Request(1));
  this->Take(*this->OpenStore("b"), Request(2));
  this->Return(*a, 1, 400, ReturnOutcome::kListed);
  LeaseRequest above_floor = Request(3);
  above_floor.floor = 402;
  EXPECT_EQ(this->Take(*a, above_floor), (IdRange{2001, 3001}));
  EXPECT_EQ(this->Take(*a, Request(4, 402)), (IdRange{3001, 4001}));
  EXPECT_EQ(this->Take(*a, Request(5, 401)), (IdRange{401, 1001}));
}

TYPED_TEST_P(StoreContract, ReturnIsStaleUnlessTheLeaseIsActiveAndOurs) {
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(1));
  this->Return(*b, 1, 0, ReturnOutcome::kStale);
  this->Return(*a, 99, 0, ReturnOutcome::kStale);
  ASSERT_TRUE(a->CloseLeases({Closure(1, LeaseState::kAbandoned, 10)}).ok());
  this->Return(*a, 1, 10, ReturnOutcome::kStale);
  EXPECT_EQ(this->MaxId(), "1001");
  EXPECT_EQ(this->Journal(), "abandoned 10/0/990");
}

TYPED_TEST_P(StoreContract, ReturnOfNothingOrOfMoreThanThereIsIsInvalid) {
  const auto store = this->OpenWithOrders("a");
  this->Take(*store, Request(1));
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
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(1));
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
  const auto store = this->OpenWithOrders("a");
  this->Take(*store, Request(1));
  this->Take(*store, Request(2));
  const LeaseClosure good = Closure(1, LeaseState::kExhausted, 1000);
  for (const LeaseClosure& bad :
       {Closure(2, LeaseState::kExhausted, 999), Closure(2, LeaseState::kAbandoned, 1001),
        Closure(2, LeaseState::kReturned, 0), Closure(2, LeaseState::kActive, 0)}) {
    EXPECT_EQ(store->CloseLeases({good, bad}).code(), Code::kInvalid);
  }
  EXPECT_EQ(this->Journal(), "active 0/0/0,active 0/0/0");
}

TYPED_TEST_P(StoreContract, NamesakeOfADeletedTagStartsWhereItEnded) {
  const auto store = this->OpenWithOrders("a");
  this->Take(*store, Request(1));
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
  const auto a = this->OpenWithOrders("a");
  this->Take(*a, Request(1));
  this->Take(*this->OpenStore("b"), Request(2));
  this->Return(*a, 1, 400, ReturnOutcome::kListed);
  ASSERT_TRUE(a->DeleteTag("orders").ok());
  EXPECT_TRUE(a->ListReturned(std::nullopt).value().empty());
  EXPECT_EQ(this->Journal(), "abandoned 400/0/600,active 0/0/0");
  this->CreateOrders(*a);
  EXPECT_EQ(this->Take(*a, Request(3)), (IdRange{2001, 3001}));
}

TYPED_TEST_P(StoreContract, LiftedTagLeasesNothingBelowAgain) {
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->Take(*a, Request(1));
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
  const auto a = this->OpenWithOrders("a");
  this->Take(*a, Request(1));
  ASSERT_TRUE(a->LiftTag("orders", 501).ok());
  EXPECT_EQ(a->ReturnTail(Closure(1, LeaseState::kReturned, 100)).status().code(),
            Code::kNoSuchTag);
  EXPECT_EQ(this->Journal(), "abandoned 100/0/900");
  EXPECT_EQ(this->Take(*a, Request(2)), (IdRange{1001, 2001}));
  this->Return(*a, 2, 0, ReturnOutcome::kLowered);
  EXPECT_EQ(this->MaxId(), "1001");
}

TYPED_TEST_P(StoreContract, TailOfADeletedTagIsAbandoned) {
  const auto store = this->OpenWithOrders("a");
  this->Take(*store, Request(1));
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
    TailGoesBackIntoMaxIdWhenNobodyLeasedAfter, WholeLeasesOfTwoHostsGoBackInTurnWithoutAGap,
    TailIsListedWhenSomebodyLeasedAfter, OwnReturnedRangesAreTakenBackFirstAndInOrder,
    LeaseThatMustRiseTakesNoReturnedRange, ReturnedRangeBelowFloorOrMarkIsLeftAlone,
    ReturnIsStaleUnlessTheLeaseIsActiveAndOurs, ReturnOfNothingOrOfMoreThanThereIsIsInvalid,
    LeasesAreClosedOnceAndOnlyTheirOwners, ClosureThatCannotBeTrueJournalsNothing,
    NamesakeOfADeletedTagStartsWhereItEnded, DeletionGivesListedRangesUpAndTheSumsStayTrue,
    LiftedTagLeasesNothingBelowAgain, TailThatReachesOverALiftIsAbandoned,
    TailOfADeletedTagIsAbandoned, CeilingsLiftTheTagAsMarksDo, OrderIsHostUnlessItIsSet,
    RandomHistoriesGoAsTheModelSays);

}  // namespace idd::daemon

#endif  // IDD_TESTS_SUPPORT_STORE_CONTRACT_H_
