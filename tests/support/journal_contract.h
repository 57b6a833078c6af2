// SPDX-License-Identifier: Apache-2.0
//
// The contract of every allocator's journal of ended leases (journal_store.h). A test file
// instantiates it with the fixture of StoreContract, which also has
//   Execute(sql)      runs a statement on the database
#ifndef IDD_TESTS_SUPPORT_JOURNAL_CONTRACT_H_
#define IDD_TESTS_SUPPORT_JOURNAL_CONTRACT_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "store/journal_store.h"
#include "store/store.h"
#include "support/store_case.h"

namespace idd::daemon {

template <typename Fixture>
class JournalContract : public Fixture {
 protected:
  using Seconds = std::chrono::seconds;

  // Runs a round: settles what has ended, and folds with a retention.
  static JournalOutcome Keep(Store& store, std::optional<Seconds> retention = std::nullopt,
                             std::size_t rows = 64) {
    JournalOrder order{.settle_after = Seconds(0), .retention = retention, .rows = rows};
    JournalOutcome all;
    while (true) {
      const Result<JournalOutcome> outcome = store.journal()->KeepJournal(order);
      EXPECT_TRUE(outcome.ok()) << outcome.status().message();
      if (!outcome.ok()) return all;
      all.is_keeper = outcome.value().is_keeper;
      all.settled += outcome.value().settled;
      all.folded += outcome.value().folded;
      if (!all.is_keeper || outcome.value().is_done) return all;
      order.settled_to = outcome.value().settled_to;
      order.folded_to = outcome.value().folded_to;
    }
  }
  static void Close(Store& store, std::uint64_t token, LeaseState state, std::uint64_t claimed) {
    const Status status = store.CloseLeases({Closure(token, state, claimed)});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  // The ended leases look as if they were years old.
  void Age() {
    this->Execute(
        "UPDATE idd_lease SET leased_at = '2020-01-15 00:00:00', closed_at = '2020-01-15 00:00:01'"
        " WHERE state <> 'active'");
  }
  // "host active_leases/active_ids ended_leases leased=claimed+returned+abandoned" of each host.
  static std::string Sums(StoreReader& store, const std::string& tag = "orders") {
    const auto sums = store.SumLeases(tag);
    EXPECT_TRUE(sums.ok()) << sums.status().message();
    std::string text;
    for (const LeaseSums& one : sums.value()) {
      const auto& ended = one.ended;
      text += (text.empty() ? "" : ", ") + one.host + " " + std::to_string(one.active_leases) +
              "/" + std::to_string(one.active_ids) + " " + std::to_string(ended.leases) + " " +
              std::to_string(ended.leased) + "=" + std::to_string(ended.claimed) + "+" +
              std::to_string(ended.returned) + "+" + std::to_string(ended.abandoned);
    }
    return text;
  }
  static std::vector<std::uint64_t> Bases(StoreReader& store, const LeaseFilter& filter) {
    const auto leases = store.ListLeases(filter);
    EXPECT_TRUE(leases.ok()) << leases.status().message();
    std::vector<std::uint64_t> bases;
    for (const LeaseRecord& lease : leases.value()) bases.push_back(lease.ids.first);
    return bases;
  }
  static void ExpectSumsFit(StoreReader& store) {
    const auto differences = store.CheckSums("orders");
    ASSERT_TRUE(differences.ok()) << differences.status().message();
    EXPECT_TRUE(differences.value().empty()) << differences.value().front();
  }
  // Three ended leases of "a", one of each kind, and an active one.
  [[nodiscard]] auto OpenWithEndedLeases() {
    auto store = this->OpenWithOrders("a");
    for (std::uint64_t token = 1; token <= 4; ++token) this->Take(*store, Request(token));
    Close(*store, 1, LeaseState::kExhausted, 1000);
    Close(*store, 2, LeaseState::kAbandoned, 300);
    Close(*store, 3, LeaseState::kAbandoned, 0);
    return store;
  }
};
TYPED_TEST_SUITE_P(JournalContract);

TYPED_TEST_P(JournalContract, SettledLeasesAreListedAndAddedUpAsBefore) {
  const auto store = this->OpenWithEndedLeases();
  const std::string sums = this->Sums(*store);
  EXPECT_EQ(sums, "a 1/1000 3 3000=1300+0+1700");
  EXPECT_EQ(this->Keep(*store).settled, 3U);
  EXPECT_EQ(this->Journal(), "active 0/0/0");
  EXPECT_EQ(this->Sums(*store), sums);
  this->ExpectSumsFit(*store);
  const auto leases = store->ListLeases({.tag = "orders"});
  ASSERT_EQ(leases.value().size(), 4U);
  const LeaseRecord& second = leases.value()[1];
  EXPECT_EQ(second.token, TestToken(2));
  EXPECT_EQ(second.ids, (shm::IdRange{1001, 2001}));
  EXPECT_EQ(second.state, LeaseState::kAbandoned);
  EXPECT_EQ(second.claimed, 300U);
  EXPECT_EQ(second.closed_at.size(), std::string("YYYY-MM-DD HH:MM:SS").size());
  // A round that finds nothing changes nothing.
  EXPECT_EQ(this->Keep(*store).settled, 0U);
  EXPECT_EQ(this->Sums(*store), sums);
}

TYPED_TEST_P(JournalContract, FoldedLeasesStayInTheSumsAndTheirIdsAreKnown) {
  const auto store = this->OpenWithEndedLeases();
  this->Age();
  const std::string sums = this->Sums(*store);
  const JournalOutcome kept = this->Keep(*store, std::chrono::hours(24));
  EXPECT_EQ(kept.settled, 3U);
  EXPECT_EQ(kept.folded, 2U) << "the host's newest one stays";
  EXPECT_EQ(this->Sums(*store), sums);
  this->ExpectSumsFit(*store);
  EXPECT_EQ(this->Bases(*store, {.tag = "orders"}), (std::vector<std::uint64_t>{2001, 3001}));
  for (const std::uint64_t id : {1U, 1000U, 1500U, 2000U}) {
    const auto folded = store->FindFolded("orders", id);
    ASSERT_TRUE(folded.ok()) << folded.status().message();
    ASSERT_EQ(folded.value().size(), 1U) << id;
    EXPECT_EQ(folded.value()[0].host, "a");
    EXPECT_EQ(folded.value()[0].month, "2020-01");
    EXPECT_TRUE(folded.value()[0].is_exact);
  }
  for (const std::uint64_t id : {0U, 2001U, 3500U}) {
    EXPECT_TRUE(store->FindFolded("orders", id).value().empty()) << id;
  }
  EXPECT_TRUE(store->FindFolded("other", 1).value().empty());
}

TYPED_TEST_P(JournalContract, IdsThatWereHandedBackAreNotTheFoldedLeases) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Return(*a, 1, 400, ReturnOutcome::kLowered);
  this->Take(*b, Request(2, 0, 500));
  this->Take(*a, Request(3));
  for (const std::uint64_t token : {2U}) this->Close(*b, token, LeaseState::kExhausted, 500);
  this->Close(*a, 3, LeaseState::kExhausted, 1000);
  this->Take(*a, Request(4));
  this->Take(*b, Request(5));
  this->Close(*a, 4, LeaseState::kExhausted, 1000);
  this->Close(*b, 5, LeaseState::kExhausted, 1000);
  this->Take(*b, Request(6));
  this->Age();
  this->Keep(*a, std::chrono::hours(24));
  const auto host_of = [&](std::uint64_t id) {
    const auto folded = a->FindFolded("orders", id);
    EXPECT_TRUE(folded.ok()) << folded.status().message();
    return folded.value().size() == 1 ? folded.value()[0].host
                                      : std::to_string(folded.value().size()) + " hosts";
  };
  EXPECT_EQ(host_of(400), "a");
  EXPECT_EQ(host_of(401), "b");
  EXPECT_EQ(host_of(900), "b");
  EXPECT_EQ(host_of(901), "a");
}

TYPED_TEST_P(JournalContract, WhatMayStillChangeIsNotSettled) {
  const auto a = this->OpenWithLease("a");
  const auto b = this->OpenStore("b");
  this->Take(*b, Request(2));
  this->Return(*a, 1, 400, ReturnOutcome::kListed);
  EXPECT_EQ(this->Keep(*b).settled, 0U) << "the tail is listed";
  this->Close(*b, 2, LeaseState::kExhausted, 1000);
  EXPECT_EQ(this->Keep(*b).settled, 0U) << "the journal's newest row";
  // The tail is given up with the tag, and the sums show that.
  ASSERT_TRUE(b->DeleteTag("orders").ok());
  this->CreateTag(*b, "others");
  this->Take(*b, Request(3, 0, 10, "others"));
  EXPECT_EQ(this->Keep(*b).settled, 2U);
  EXPECT_EQ(this->Sums(*b), "a 0/0 1 1000=400+0+600, b 0/0 1 1000=1000+0+0");
}

TYPED_TEST_P(JournalContract, NumbersOfSettledRowsAreNotUsedAgain) {
  const auto store = this->OpenWithEndedLeases();
  this->Close(*store, 4, LeaseState::kExhausted, 1000);
  this->Keep(*store);
  std::uint64_t last = 0;
  for (std::uint64_t token = 5; token <= 8; ++token) {
    this->Take(*store, Request(token));
    this->Close(*store, token, LeaseState::kExhausted, 1000);
    this->Keep(*store);
    const auto leases = store->ListLeases({.tag = "orders"});
    ASSERT_EQ(leases.value().size(), token);
    EXPECT_GT(leases.value().back().seq, last);
    last = leases.value().back().seq;
    EXPECT_EQ(leases.value().back().token, TestToken(token));
  }
}

// A batch folds leases of one tag and host.
TYPED_TEST_P(JournalContract, TagsAndHostsThatTakeTurnsAreFoldedApart) {
  const auto a = this->OpenWithOrders("a");
  const auto b = this->OpenStore("b");
  this->CreateTag(*a, "cities");
  constexpr std::uint64_t kLeases = 24;
  for (std::uint64_t i = 0; i < kLeases; ++i) {
    const auto& store = i % 2 == 0 ? a : b;
    LeaseClosure closure = Closure(i, LeaseState::kExhausted, 10);
    closure.tag = i % 3 == 0 ? "cities" : "orders";
    this->Take(*store, Request(i, 0, 10, closure.tag));
    ASSERT_TRUE(store->CloseLeases({closure}).ok());
  }
  this->Age();
  const std::string sums = this->Sums(*a) + this->Sums(*a, "cities");
  const JournalOutcome kept = this->Keep(*a, std::chrono::hours(24), 3);
  EXPECT_EQ(kept.settled, kLeases - 1) << "the newest one stays";
  EXPECT_EQ(kept.folded, kLeases - 3) << "and the newest settled one of each host";
  EXPECT_EQ(this->Sums(*a) + this->Sums(*a, "cities"), sums);
  this->ExpectSumsFit(*a);
  for (const auto& [tag, id, host] :
       {std::tuple("cities", 1, "a"), std::tuple("cities", 11, "b"), std::tuple("orders", 1, "b"),
        std::tuple("orders", 11, "a")}) {
    const auto folded = a->FindFolded(tag, static_cast<std::uint64_t>(id));
    ASSERT_TRUE(folded.ok()) << folded.status().message();
    ASSERT_EQ(folded.value().size(), 1U) << tag << id;
    EXPECT_EQ(folded.value()[0].host, host) << tag << id;
  }
}

// What was leased later need not be looked at, and that may be most of the journal.
TYPED_TEST_P(JournalContract, LooksNoFurtherThanALeaseThatIsTooYoung) {
  const auto store = this->OpenWithEndedLeases();
  const JournalOrder order{.settle_after = std::chrono::hours(1)};
  const Result<JournalOutcome> early = store->journal()->KeepJournal(order);
  ASSERT_TRUE(early.ok()) << early.status().message();
  EXPECT_TRUE(early.value().is_done);
  EXPECT_EQ(early.value().settled_to, 0U);
  // Not if its time is still to come, as after a time when the clock was ahead.
  this->Age();
  this->Execute(
      "UPDATE idd_lease SET leased_at = '2037-01-15 00:00:00', closed_at = '2037-01-15 00:00:00'"
      " WHERE token = '" +
      TestToken(1) + "'");
  EXPECT_EQ(this->Keep(*store, std::chrono::hours(24)).settled, 2U);
}

TYPED_TEST_P(JournalContract, ActiveLeasesInFrontHoldNoneUp) {
  const auto store = this->OpenWithOrders("a");
  constexpr std::uint64_t kActive = 20;
  for (std::uint64_t i = 0; i < kActive + 2; ++i) this->Take(*store, Request(i, 0, 10));
  this->Close(*store, kActive, LeaseState::kExhausted, 10);
  EXPECT_EQ(this->Keep(*store, std::nullopt, 1).settled, 1U);
}

TYPED_TEST_P(JournalContract, EndOfFoldedIdsStillProtectsTheTag) {
  const auto store = this->OpenWithEndedLeases();
  this->Close(*store, 4, LeaseState::kExhausted, 1000);
  this->CreateTag(*store, "others");
  this->Take(*store, Request(6, 0, 10, "others"));
  this->Age();
  EXPECT_EQ(this->Keep(*store, std::chrono::hours(24)).folded, 3U);
  this->Execute("DELETE FROM idd_ended");  // all but the sums
  EXPECT_EQ(store->UsedLimit("orders").value(), 4001U);
  this->Execute("UPDATE leaf_alloc SET max_id = 17 WHERE biz_tag = 'orders'");
  const auto next = this->OpenStore("b");
  EXPECT_EQ(this->Take(*next, Request(7)), (shm::IdRange{4001, 5001}));
  this->Execute("UPDATE leaf_alloc SET max_id = 17 WHERE biz_tag = 'orders'");
  ASSERT_TRUE(next->DeleteTag("orders").ok());
  this->CreateOrders(*next);
  EXPECT_EQ(this->Take(*next, Request(8)).first, 5001U);
}

TYPED_TEST_P(JournalContract, OneHostKeepsTheJournal) {
  const auto a = this->OpenWithEndedLeases();
  const auto b = this->OpenStore("b");
  EXPECT_TRUE(this->Keep(*b).is_keeper);
  EXPECT_FALSE(this->Keep(*a).is_keeper);
  EXPECT_EQ(this->Keep(*a).settled, 0U);
  // It has been silent for long.
  this->Execute("UPDATE idd_role SET since = '2020-01-15 00:00:00'");
  EXPECT_TRUE(this->Keep(*a).is_keeper);
  EXPECT_FALSE(this->Keep(*b).is_keeper);
  // It took over while a clock was years ahead, and went away.
  this->Execute("UPDATE idd_role SET since = '2037-01-15 00:00:00'");
  EXPECT_TRUE(this->Keep(*b).is_keeper);
  EXPECT_FALSE(this->Keep(*a).is_keeper);
}

// A host that holds a lease which the journal has as ended, and settled, does not enter it again.
TYPED_TEST_P(JournalContract, HeldLeaseThatIsSettledIsKnown) {
  const auto store = this->OpenWithEndedLeases();
  this->Keep(*store);
  HostMemory memory;
  memory.held = {{.token = TestToken(2), .tag = "orders", .ids = {1001, 2001}}};
  const auto reconciled = store->Reconcile(memory);
  ASSERT_TRUE(reconciled.ok()) << reconciled.status().message();
  EXPECT_TRUE(reconciled.value().restored.empty());
  EXPECT_EQ(this->Sums(*store), "a 1/1000 3 3000=1300+0+1700");
}

// idd_lease alone was restored from a backup.
TYPED_TEST_P(JournalContract, RowsThatCameBackAreNotCountedAgain) {
  const auto store = this->OpenWithEndedLeases();
  this->Keep(*store);
  this->Execute(
      "INSERT INTO idd_lease(seq, token, biz_tag, host, base, `limit`, state, claimed, returned,"
      " abandoned, leased_at, closed_at) SELECT seq, token, biz_tag, host, base, `limit`, state,"
      " claimed, returned, abandoned, leased_at, closed_at FROM idd_ended");
  EXPECT_EQ(this->Keep(*store).settled, 3U);
  EXPECT_EQ(this->Sums(*store), "a 1/1000 3 3000=1300+0+1700");
  this->ExpectSumsFit(*store);
  EXPECT_EQ(this->Journal(), "active 0/0/0");
}

TYPED_TEST_P(JournalContract, SumsThatDoNotFitTheirRowsAreNamed) {
  const auto store = this->OpenWithEndedLeases();
  this->Keep(*store);
  this->Execute("UPDATE idd_total SET claimed = claimed - 1, abandoned = abandoned + 1");
  const auto differences = store->CheckSums("orders");
  ASSERT_TRUE(differences.ok()) << differences.status().message();
  ASSERT_EQ(differences.value().size(), 1U);
  EXPECT_NE(differences.value()[0].find("idd_total.claimed of tag 'orders', host a"),
            std::string::npos)
      << differences.value()[0];
}

TYPED_TEST_P(JournalContract, ListsHavePagesOverBothTables) {
  const auto store = this->OpenWithOrders("a");
  constexpr std::uint64_t kLeases = 10;
  for (std::uint64_t token = 1; token <= kLeases; ++token) this->Take(*store, Request(token));
  for (std::uint64_t token = 2; token <= kLeases; token += 2) {
    this->Close(*store, token, LeaseState::kExhausted, 1000);
  }
  this->Keep(*store);
  LeaseFilter filter{.tag = "orders", .newest = 3};
  filter.before = std::numeric_limits<std::uint64_t>::max();  // clients send any number
  std::vector<std::uint64_t> bases;
  while (true) {
    const auto page = store->ListLeases(filter);
    ASSERT_TRUE(page.ok()) << page.status().message();
    if (page.value().empty()) break;
    for (auto it = page.value().rbegin(); it != page.value().rend(); ++it) {
      bases.push_back(it->ids.first);
    }
    filter.before = page.value().front().seq;
  }
  ASSERT_EQ(bases.size(), kLeases);
  for (std::uint64_t i = 0; i < kLeases; ++i) EXPECT_EQ(bases[i], (kLeases - 1 - i) * 1000 + 1);
  using List = std::vector<std::uint64_t>;
  EXPECT_EQ(this->Bases(*store, {.host = "a", .state = LeaseState::kExhausted, .newest = 2}),
            (List{7001, 9001}));
  EXPECT_EQ(this->Bases(*store, {.state = LeaseState::kExhausted, .newest = 1}), (List{9001}));
  EXPECT_EQ(this->Bases(*store, {.state = LeaseState::kActive, .newest = 2}), (List{6001, 8001}));
  EXPECT_EQ(this->Bases(*store, {.host = "b"}), List{});
  // The lease of an id, in either table.
  EXPECT_EQ(this->Bases(*store, {.tag = "orders", .containing = 1500}), (List{1001}));
  EXPECT_EQ(this->Bases(*store, {.tag = "orders", .containing = 2500}), (List{2001}));
  EXPECT_EQ(this->Bases(*store, {.tag = "orders", .containing = 20000}), List{});
}

TYPED_TEST_P(JournalContract, ListsBeginAtATime) {
  const auto store = this->OpenWithOrders("a");
  for (std::uint64_t token = 1; token <= 9; ++token) this->Take(*store, Request(token));
  for (std::uint64_t token = 1; token <= 9; ++token) {
    this->Execute("UPDATE idd_lease SET leased_at = '2020-01-0" + std::to_string(token) +
                  " 00:00:00' WHERE token = '" + TestToken(token) + "'");
  }
  for (std::uint64_t token = 1; token <= 6; ++token) {
    this->Close(*store, token, LeaseState::kExhausted, 1000);
  }
  this->Keep(*store);
  for (std::uint64_t day = 1; day <= 9; ++day) {
    LeaseFilter filter{.tag = "orders"};
    filter.since = "2020-01-0" + std::to_string(day) + " 00:00:00";
    const std::vector<std::uint64_t> bases = this->Bases(*store, filter);
    ASSERT_EQ(bases.size(), 10 - day);
    EXPECT_EQ(bases.front(), (day - 1) * 1000 + 1);
  }
  LeaseFilter later;
  later.since = "2020-01-09 00:00:01";
  EXPECT_TRUE(this->Bases(*store, later).empty());
}

// What an audit compares: the highest ids first, from both tables, without leases that kept none.
TYPED_TEST_P(JournalContract, LeasesAreListedByTheirIds) {
  const auto store = this->OpenWithOrders("a");
  for (std::uint64_t token = 1; token <= 4; ++token) this->Take(*store, Request(token));
  this->Close(*store, 2, LeaseState::kExhausted, 1000);
  this->Return(*store, 4, 0, ReturnOutcome::kLowered);
  this->Take(*store, Request(5, 0, 10));
  this->Keep(*store);
  const auto bases = [&](std::uint64_t below, std::size_t most) {
    const auto leases = store->ListByIds("orders", below, most);
    EXPECT_TRUE(leases.ok()) << leases.status().message();
    std::vector<std::uint64_t> list;
    for (const LeaseRecord& lease : leases.value()) list.push_back(lease.ids.first);
    return list;
  };
  using List = std::vector<std::uint64_t>;
  EXPECT_EQ(bases(shm::kMaxLimit, 100), (List{3001, 2001, 1001, 1}));
  EXPECT_EQ(bases(shm::kMaxLimit, 2), (List{3001, 2001}));
  EXPECT_EQ(bases(3001, 2), (List{2001, 1001}));
  EXPECT_EQ(bases(1000, 2), List{});
}

REGISTER_TYPED_TEST_SUITE_P(JournalContract, SettledLeasesAreListedAndAddedUpAsBefore,
                            FoldedLeasesStayInTheSumsAndTheirIdsAreKnown,
                            IdsThatWereHandedBackAreNotTheFoldedLeases,
                            WhatMayStillChangeIsNotSettled, NumbersOfSettledRowsAreNotUsedAgain,
                            TagsAndHostsThatTakeTurnsAreFoldedApart,
                            LooksNoFurtherThanALeaseThatIsTooYoung, ActiveLeasesInFrontHoldNoneUp,
                            EndOfFoldedIdsStillProtectsTheTag, OneHostKeepsTheJournal,
                            HeldLeaseThatIsSettledIsKnown, RowsThatCameBackAreNotCountedAgain,
                            SumsThatDoNotFitTheirRowsAreNamed, ListsHavePagesOverBothTables,
                            ListsBeginAtATime, LeasesAreListedByTheirIds);

}  // namespace idd::daemon

#endif  // IDD_TESTS_SUPPORT_JOURNAL_CONTRACT_H_
