// SPDX-License-Identifier: Apache-2.0
//
// The allocator over the MySQL protocol, on a real mariadbd: leases, hand-backs, the journal and
// refusals.
#include "store/mysql/mysql_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "admin/operations/ledger_audit.h"
#include "config/make_store.h"
#include "mysql_store_fixture.h"
#include "support/journal_contract.h"
#include "support/store_contract.h"
#include "support/worker_contract.h"

namespace idd::daemon {
namespace {

using harness::DbServer;
using harness::DbSession;
using shm::IdRange;
using shm::kMaxLimit;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

INSTANTIATE_TYPED_TEST_SUITE_P(Mysql, StoreContract, MysqlStoreTest);
INSTANTIATE_TYPED_TEST_SUITE_P(Mysql, JournalContract, MysqlStoreTest);
INSTANTIATE_TYPED_TEST_SUITE_P(Mysql, WorkerContract, MysqlStoreTest);

// --- leasing

TEST_F(MysqlStoreTest, SeveralTagsAreLeasedInOneTransaction) {
  const auto store = OpenStore("a");
  std::vector<LeaseRequest> requests;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::string tag = "tag-" + std::to_string(i);
    CreateTag(*store, tag);
    requests.push_back(Request(i, 0, 100 + i, tag));
  }
  requests.push_back(Request(99, 0, 10, "no such tag"));
  const std::string before = Ask("SHOW GLOBAL STATUS LIKE 'Com_commit'");
  const auto commits = [] { return Root().Counters().at("com_commit"); };
  const double commits_before = commits();
  const auto leases = store->TakeLeases(requests);
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  EXPECT_EQ(commits(), commits_before + 1);
  ASSERT_EQ(leases.value().size(), 51U);
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Result<Lease>& lease = leases.value()[i];
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    EXPECT_EQ(lease.value().tag, "tag-" + std::to_string(i));
    EXPECT_EQ(lease.value().ids, (IdRange{1, 101 + i}));
    EXPECT_EQ(MaxId(lease.value().tag), std::to_string(101 + i));
  }
  EXPECT_EQ(leases.value()[50].status().code(), Code::kNoSuchTag);
}

TEST_F(MysqlStoreTest, ThreadsOfTwoHostsAndALeafServerNeverGetTheSameIds) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kLeases = 100;
  CreateOrders(*OpenStore("setup"));
  std::vector<std::vector<IdRange>> taken(kThreads + 1);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto store = OpenStore("host-" + std::to_string(t));
      for (std::uint64_t i = 0; i < kLeases; ++i) {
        taken[t].push_back(Take(*store, Request(1 + t * kLeases + i, 0, 1 + i % 7)));
      }
    });
  }
  threads.emplace_back([&] {
    DbSession leaf = Root();
    for (std::uint64_t i = 0; i < kLeases; ++i) {
      leaf.Execute("BEGIN");
      leaf.Execute("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'orders'");
      const std::uint64_t max_id =
          std::stoull(leaf.Query("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'orders'"));
      leaf.Execute("COMMIT");
      taken[kThreads].push_back({max_id - 1000, max_id});
    }
  });
  for (std::thread& thread : threads) thread.join();
  std::vector<IdRange> all;
  for (const auto& ranges : taken) all.insert(all.end(), ranges.begin(), ranges.end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::uint64_t ids = all[0].size();
  for (std::size_t i = 1; i < all.size(); ++i) {
    ASSERT_LE(all[i - 1].limit, all[i].first) << "ids were leased twice";
    ids += all[i].size();
  }
  EXPECT_EQ(MaxId(), std::to_string(ids + 1)) << "there is a gap without a reason";
}

// The table as Leaf's own script creates it.
TEST_F(MysqlStoreTest, LeafsTableServesAsItStands) {
  Sql("CREATE TABLE `leaf_alloc` (`biz_tag` varchar(128) NOT NULL DEFAULT '',"
      " `max_id` bigint(20) NOT NULL DEFAULT '1', `step` int(11) NOT NULL,"
      " `description` varchar(256) DEFAULT NULL,"
      " `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
      " PRIMARY KEY (`biz_tag`)) ENGINE=InnoDB DEFAULT CHARSET=utf8 COLLATE=utf8_general_ci");
  Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step, description)"
      " VALUES('leaf-segment-test', 1, 2000, 'Test leaf Segment Mode Get Id')");
  const auto store = OpenStore("a");
  const auto tag = store->FindTag("leaf-segment-test");
  ASSERT_TRUE(tag.ok()) << tag.status().message();
  EXPECT_EQ(tag.value().step, 2000U);
  EXPECT_EQ(tag.value().description, "Test leaf Segment Mode Get Id");
  EXPECT_EQ(Take(*store, Request(1, 0, 2000, "leaf-segment-test")), (IdRange{1, 2001}));
  // The column compares without case, but another spelling is another tag, which does not exist.
  EXPECT_EQ(store->FindTag("Leaf-Segment-Test").status().code(), Code::kNoSuchTag);
  EXPECT_EQ(store->TakeLease(Request(2, 0, 10, "LEAF-segment-test")).status().code(),
            Code::kNoSuchTag);
  EXPECT_EQ(MaxId("leaf-segment-test"), "2001");
  Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('new', 5, 10)");
  EXPECT_EQ(Take(*store, Request(3, 0, 10, "new")), (IdRange{5, 15}))
      << "new rows are tags at once";
}

TEST_F(MysqlStoreTest, StoreBelowTheMarkIsLiftedAndReported) {
  const auto store = OpenWithOrders("a");
  Result<Lease> lease = store->TakeLease(Request(1, 5000));
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(lease.value().ids, (IdRange{5000, 6000}));
  EXPECT_EQ(lease.value().lifted_from, 1U);
  lease = store->TakeLease(Request(2, 6000));
  EXPECT_EQ(lease.value().ids, (IdRange{6000, 7000}));
  EXPECT_FALSE(lease.value().lifted_from.has_value());
}

TEST_F(MysqlStoreTest, MaxIdSetBackByHandIsLiftedByTheJournalOfAnyHost) {
  const auto a = OpenWithOrders("a");
  const auto b = OpenStore("b");
  Take(*a, Request(1));
  Sql("UPDATE leaf_alloc SET max_id = 1");
  const Result<Lease> lease = b->TakeLease(Request(2));  // b has no mark
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(lease.value().ids, (IdRange{1001, 2001}));
  EXPECT_EQ(lease.value().lifted_from, 1U);
}

TEST_F(MysqlStoreTest, LastIdsAreLeasedAndThenNone) {
  const auto store = OpenStore("a");
  NewTag tag;
  tag.tag = "orders";
  tag.max_id = 1500;
  ASSERT_TRUE(store->CreateTag(tag).ok());
  EXPECT_EQ(Take(*store, Request(1)), (IdRange{1, 1001}));
  EXPECT_EQ(Take(*store, Request(2)), (IdRange{1001, 1501}));
  EXPECT_EQ(store->TakeLease(Request(3)).status().code(), Code::kOutOfIds);
}

TEST_F(MysqlStoreTest, NearTheEndOfTheNumbersNothingWraps) {
  const auto store = OpenWithOrders("a");
  Sql("UPDATE leaf_alloc SET max_id = 9223372036854775807 - 10");
  EXPECT_EQ(Take(*store, Request(1)), (IdRange{kMaxLimit - 10, kMaxLimit}));
  EXPECT_EQ(store->TakeLease(Request(2)).status().code(), Code::kOutOfIds);
  EXPECT_EQ(MaxId(), "9223372036854775807");
}

TEST_F(MysqlStoreTest, RowsThatMakeNoSenseAreNamedAndLeaseNothing) {
  const auto store = OpenWithOrders("a");
  const auto refused = [&](const std::string& change, const std::string& words) {
    Sql("UPDATE leaf_alloc SET max_id = 1, step = 1000");
    Sql("UPDATE leaf_alloc SET " + change);
    const Status status = store->TakeLease(Request(1)).status();
    EXPECT_EQ(status.code(), Code::kInvalid) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(words));
    EXPECT_EQ(Ask("SELECT COUNT(*) FROM idd_lease"), "0");
  };
  refused("max_id = -1", "leaf_alloc.max_id of tag 'orders' is -1");
  refused("step = 0", "leaf_alloc.step of tag 'orders' is 0");
  refused("step = -1", "leaf_alloc.step of tag 'orders' is -1");
  Sql("UPDATE leaf_alloc SET max_id = 1, step = 2147483647");
  EXPECT_EQ(Take(*store, Request(1, 0, 2147483647)), (IdRange{1, 2147483648}));
  Sql("DELETE FROM leaf_alloc");
  EXPECT_EQ(store->TakeLease(Request(2, 5000)).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM leaf_alloc"), "0") << "never made again from 1";
}

TEST_F(MysqlStoreTest, TriggerThatUndoesTheAdvanceLeasesNothing) {
  const auto store = OpenWithOrders("a");
  Sql("CREATE TRIGGER holds_still BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.max_id = "
      "OLD.max_id");
  const Status status = store->TakeLease(Request(1)).status();
  EXPECT_EQ(status.code(), Code::kInvalid) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("trigger"));
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM idd_lease WHERE state = 'active'"), "0");
}

TEST_F(MysqlStoreTest, LockedRowFailsItsOwnTagAlone) {
  const auto store = OpenWithOrders("a");
  CreateTag(*store, "users");
  DbSession other = Root();
  other.Execute("BEGIN");
  other.Execute("UPDATE leaf_alloc SET max_id = max_id + 1 WHERE biz_tag = 'orders'");
  const auto leases = store->TakeLeases({Request(1), Request(2, 0, 10, "users")});
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  EXPECT_EQ(leases.value()[0].status().code(), Code::kTimeout);
  EXPECT_THAT(leases.value()[0].status().message(), HasSubstr("lock"));
  ASSERT_TRUE(leases.value()[1].ok()) << leases.value()[1].status().message();
  EXPECT_EQ(leases.value()[1].value().ids, (IdRange{1, 11}));
  other.Execute("ROLLBACK");
  EXPECT_EQ(Take(*store, Request(3)), (IdRange{1, 1001}));
}

// A row that another session holds locked costs a lock wait of a second.
TEST_F(MysqlStoreTest, LockedRowsHoldNoOtherTagUp) {
  const auto store = OpenStore("a");
  std::vector<LeaseRequest> requests;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::string tag = "tag-" + std::to_string(i);
    CreateTag(*store, tag);
    requests.push_back(Request(i, 0, 10, tag));
  }
  const auto is_locked = [](std::size_t place) { return place % 4 == 1; };
  DbSession other = Root();
  other.Execute("BEGIN");
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!is_locked(i)) continue;
    other.Execute("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'tag-" + std::to_string(i) +
                  "' FOR UPDATE");
  }
  std::uint64_t next = 0;
  std::chrono::duration<double> longest{};
  std::chrono::duration<double> all{};
  for (int calls = 0; calls < 10; ++calls) {
    const MonotonicTime began = MonotonicClock::now();
    const auto leases = store->TakeLeases(requests);
    const std::chrono::duration<double> took = MonotonicClock::now() - began;
    longest = std::max(longest, took);
    all += took;
    ASSERT_TRUE(leases.ok()) << leases.status().message();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Status status = leases.value()[i].status();
      EXPECT_EQ(status.ok(), !is_locked(i)) << i << ": " << status.message();
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), Code::kTimeout);
      EXPECT_THAT(status.message(), HasSubstr("lock"));
      EXPECT_THAT(status.message(), HasSubstr("'tag-" + std::to_string(i) + "'"));
    }
    for (LeaseRequest& request : requests) request.token = TestToken(100 + next++);
  }
  EXPECT_LT(longest.count(), 5 * harness::SlowdownFactor());
  EXPECT_LT(all.count(), 12 * harness::SlowdownFactor()) << "five locked rows, ten times";
  other.Execute("ROLLBACK");
  EXPECT_TRUE(harness::WaitUntil(harness::Patience(5s), [&] {
    const auto leases = store->TakeLeases(requests);
    for (LeaseRequest& request : requests) request.token = TestToken(100 + next++);
    return leases.ok() && std::all_of(leases.value().begin(), leases.value().end(),
                                      [](const Result<Lease>& lease) { return lease.ok(); });
  }));
}

// A server that does not know SKIP LOCKED cannot tell which rows are locked. A host that takes
// leases for more than six seconds without a look at the term has to hand all of them back.
TEST_F(MysqlStoreTest, LeasesOneByOneEndInTimeAndEveryTagGetsItsTurn) {
  const auto store = OpenStore("a");
  std::vector<LeaseRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::string tag = "tag-" + std::to_string(i);
    CreateTag(*store, tag);
    requests.push_back(Request(i, 0, 10, tag));
  }
  // The journal's rows of three tags cannot be written, whose rows in leaf_alloc are free.
  DbSession other = Root();
  Sql("CREATE TRIGGER wait_for_it BEFORE INSERT ON idd_lease FOR EACH ROW"
      " IF NEW.biz_tag <> 'tag-3' THEN"
      "  SET @waited = (SELECT COUNT(*) FROM idd_deleted_tag WHERE biz_tag = 'held' FOR UPDATE);"
      " END IF");
  Sql("INSERT INTO idd_deleted_tag(biz_tag, max_id) VALUES('held', 1)");
  other.Execute("BEGIN");
  other.Execute("SELECT * FROM idd_deleted_tag WHERE biz_tag = 'held' FOR UPDATE");
  std::uint64_t next = 0;
  bool is_leased = false;
  for (int calls = 0; calls < 4 && !is_leased; ++calls) {
    const MonotonicTime began = MonotonicClock::now();
    const auto leases = store->TakeLeases(requests);
    EXPECT_LT(MonotonicClock::now() - began, harness::Patience(6s));
    ASSERT_TRUE(leases.ok()) << leases.status().message();
    int untried = 0;
    for (const Result<Lease>& lease : leases.value()) {
      if (lease.ok()) continue;
      EXPECT_EQ(lease.status().code(), Code::kTimeout) << lease.status().message();
      untried += lease.status().message().find("other tags were leased first") != std::string::npos;
    }
    EXPECT_GT(untried, 0);
    is_leased = leases.value()[3].ok();
    for (LeaseRequest& request : requests) request.token = TestToken(100 + next++);
  }
  EXPECT_TRUE(is_leased) << "behind three tags that wait";
  other.Execute("ROLLBACK");
}

// The hosts of a cluster that was stopped list thousands of ranges.
TEST_F(MysqlStoreTest, ReturnedRangesOfOtherHostsCostALeaseNothing) {
  OpenWithOrders("a").reset();
  const auto store = OpenStore("b");
  Sql("INSERT INTO idd_returned(token, biz_tag, host, base, `limit`)"
      " SELECT LPAD(HEX(seq), 32, '0'), 'orders', CONCAT('host-', seq), seq * 10, seq * 10 + 10"
      " FROM " +
      harness::Numbers(1, 5000));
  Sql("ANALYZE TABLE idd_returned");
  const auto rows_read = [] {
    double sum = 0;
    for (const auto& [name, value] : Root().Counters()) {
      if (name.starts_with("handler_read")) sum += value;
    }
    return sum;
  };
  const double before = rows_read();
  const shm::IdRange ids = Take(*store, Request(1));
  EXPECT_LT(rows_read() - before, 1000U);
  EXPECT_EQ(ids.first, 50010U) << "above all that was returned";
}

TEST_F(MysqlStoreTest, ColumnOfSmallNumbersEndsItsTag) {
  auto store = OpenWithOrders("a");
  CreateTag(*store, "full");
  CreateTag(*store, "third");
  store.reset();
  Sql("ALTER TABLE leaf_alloc MODIFY max_id int NOT NULL");
  Sql("UPDATE leaf_alloc SET max_id = 2147483600 WHERE biz_tag = 'full'");
  store = OpenStore("a");
  const auto leases =
      store->TakeLeases({Request(1), Request(2, 0, 1000, "full"), Request(3, 0, 1000, "third")});
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  EXPECT_TRUE(leases.value()[0].ok()) << leases.value()[0].status().message();
  ASSERT_TRUE(leases.value()[1].ok()) << leases.value()[1].status().message();
  EXPECT_EQ(leases.value()[1].value().ids, (IdRange{2147483600, 2147483647}));
  EXPECT_TRUE(leases.value()[2].ok()) << leases.value()[2].status().message();
  EXPECT_EQ(store->TakeLease(Request(4, 0, 1000, "full")).status().code(), Code::kOutOfIds);
  EXPECT_EQ(store->FindTag("full").value().max_id, 2147483646U);
  const Status status = store->ChangeTag({"full", {}, 2147483647U}).status();
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("make the column a bigint"));
}

// Leaf's own script leaves the character set to the server.
TEST_F(MysqlStoreTest, NameThatTheColumnCannotHaveIsNoTagAndHarmsNoOther) {
  for (const std::string charset : {"latin1", "utf8mb3", "utf8mb4", "ascii"}) {
    SetUp();
    Sql("CREATE TABLE leaf_alloc(biz_tag varchar(128) NOT NULL PRIMARY KEY, max_id bigint NOT NULL,"
        " step int NOT NULL, description varchar(256), update_time timestamp NOT NULL DEFAULT "
        "CURRENT_TIMESTAMP) "
        "ENGINE=InnoDB"
        " DEFAULT CHARSET=" +
        charset);
    Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('plain', 1, 10), ('a/b:c', 1, 10)");
    const auto store = OpenStore("a");
    const auto leases = store->TakeLeases(
        {Request(1, 0, 10, "plain"), Request(2, 0, 10, "\xf0\x9f\x98\x80"),
         Request(3, 0, 10, "PLAIN"), Request(4, 0, 10, "a/b:c"), Request(5, 0, 10, "\xc3\xa9")});
    ASSERT_TRUE(leases.ok()) << charset << ": " << leases.status().message();
    EXPECT_TRUE(leases.value()[0].ok()) << charset << leases.value()[0].status().message();
    EXPECT_EQ(leases.value()[1].status().code(), Code::kNoSuchTag) << charset;
    EXPECT_EQ(leases.value()[2].status().code(), Code::kNoSuchTag) << charset;
    EXPECT_TRUE(leases.value()[3].ok()) << charset << leases.value()[3].status().message();
    EXPECT_EQ(leases.value()[4].status().code(), Code::kNoSuchTag) << charset;
    EXPECT_EQ(MaxId("plain"), "11") << charset;
  }
}

// --- the journal

TEST_F(MysqlStoreTest, EndsAreJournalledOnceAndOnlyIfTheyCanBeTrue) {
  const auto store = OpenWithOrders("a");
  for (std::uint64_t token : {1U, 2U, 3U}) Take(*store, Request(token));
  EXPECT_EQ(store->CloseLeases({Closure(1, LeaseState::kExhausted, 999)}).code(), Code::kInvalid);
  EXPECT_EQ(store->CloseLeases({Closure(1, LeaseState::kAbandoned, 1001)}).code(), Code::kInvalid);
  EXPECT_EQ(store->CloseLeases({Closure(1, LeaseState::kReturned, 5)}).code(), Code::kInvalid);
  ASSERT_TRUE(store
                  ->CloseLeases({Closure(1, LeaseState::kExhausted, 1000),
                                 Closure(2, LeaseState::kAbandoned, 10),
                                 Closure(9, LeaseState::kAbandoned, 10)})
                  .ok());
  ASSERT_TRUE(store->CloseLeases({Closure(2, LeaseState::kAbandoned, 500)}).ok());
  EXPECT_EQ(Journal(), "exhausted 1000/0/0,abandoned 10/0/990,active 0/0/0");
  const auto abandoned = store->AbandonActive({});
  ASSERT_TRUE(abandoned.ok()) << abandoned.status().message();
  ASSERT_EQ(abandoned.value().size(), 1U);
  EXPECT_EQ(abandoned.value()[0].token, TestToken(3));
  EXPECT_EQ(Journal(), "exhausted 1000/0/0,abandoned 10/0/990,abandoned 0/0/1000");
}

// --- what this host knows

TEST_F(MysqlStoreTest, TablesThatForgotAreReminded) {
  const auto store = OpenWithOrders("a");
  CreateTag(*store, "users");
  HostMemory memory;
  memory.marks = {{"orders", 5000}, {"gone", 700}, {"users", 1}};
  memory.held = {{.token = TestToken(7), .tag = "orders", .ids = {4000, 5000}}};
  const Result<Reconciliation> reconciliation = store->Reconcile(memory);
  ASSERT_TRUE(reconciliation.ok()) << reconciliation.status().message();
  EXPECT_TRUE(reconciliation.value().forgot_leases);
  EXPECT_EQ(reconciliation.value().lifted.size(), 2U);
  EXPECT_EQ(reconciliation.value().restored.size(), 1U);
  EXPECT_EQ(MaxId(), "5000");
  EXPECT_EQ(MaxId("users"), "1");
  EXPECT_EQ(Journal(), "active 0/0/0");
  CreateTag(*store, "gone");
  EXPECT_EQ(MaxId("gone"), "700");
  // A lease that was journalled again is not handed back: other hosts may have leased its ids
  // meanwhile.
  Return(*store, 7, 100, ReturnOutcome::kAbandoned);
  EXPECT_EQ(Journal(), "abandoned 100/0/900");
  const Result<Reconciliation> again = store->Reconcile({.marks = {{"orders", 5000}}, .held = {}});
  EXPECT_FALSE(again.value().forgot_leases);
  EXPECT_TRUE(again.value().lifted.empty());
}

// --- tags

TEST_F(MysqlStoreTest, TagsAreChangedWholeOrNotAtAll) {
  const auto store = OpenWithOrders("a");
  TagChange change;
  change.tag = "orders";
  change.step = 500;
  change.description = "it's a \"test\"; DROP TABLE leaf_alloc; -- \\";
  change.max_id = 1'000'000;
  change.access = TagAccess::kSocket;
  change.refill = {
      .rule = RefillRule::kLeaf, .max_step = 5000, .max_prefetch = 20000, .outage_tolerance = 60s};
  const Result<TagRecord> changed = store->ChangeTag(change);
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(changed.value().step, 500U);
  EXPECT_EQ(changed.value().description, change.description);
  EXPECT_EQ(changed.value().max_id, 1'000'000U);
  EXPECT_EQ(changed.value().access, TagAccess::kSocket);
  EXPECT_EQ(changed.value().refill.rule, RefillRule::kLeaf);
  EXPECT_EQ(changed.value().refill.max_prefetch, 20000U);
  TagChange bad;
  bad.tag = "orders";
  bad.step = 15000;
  bad.refill.max_prefetch = 20000;  // less than two steps
  EXPECT_EQ(store->ChangeTag(bad).status().code(), Code::kInvalid);
  EXPECT_EQ(store->FindTag("orders").value().step, 500U);
  bad = {};
  bad.tag = "nobody";
  bad.step = 10;
  EXPECT_EQ(store->ChangeTag(bad).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(store->ListTags().value().size(), 1U);
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM idd_tag"), "1");
}

// Without one snapshot, another host could hand a lease back between two of the audit's lists, and
// max_id would lie below it.
TEST_F(MysqlStoreTest, LedgerIsOfOneMomentWhileOthersLeaseAndHandBack) {
  CreateOrders(*OpenStore("setup"));
  std::atomic<bool> ends{false};
  std::thread busy([&] {
    const auto store = OpenStore("busy");
    for (std::uint64_t i = 1; !ends.load(); ++i) {
      Take(*store, Request(i, 0, 10));
      Return(*store, i, 1, ReturnOutcome::kLowered);
    }
  });
  const auto auditor = OpenStore("auditor");
  AuditInput input{.host = "auditor", .scope = AuditScope::kAllHosts, .ledger = {}, .live = {}};
  for (int i = 0; i < 20'000 && input.ledger.journal.size() < 200; ++i) {
    Result<Ledger> ledger = auditor->ReadLedger("orders", 1000);
    ASSERT_TRUE(ledger.ok()) << ledger.status().message();
    input.ledger = std::move(ledger).value();
    const AuditReport report = RunAudit(input);
    EXPECT_TRUE(report.ok()) << report.findings.front();
  }
  ends.store(true);
  busy.join();
  EXPECT_GE(input.ledger.journal.size(), 200U);
  EXPECT_EQ(input.ledger.tags.size(), 1U);
}

TEST_F(MysqlStoreTest, LeasesOfAnIdAreFound) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1, 0, 100));
  Take(*store, Request(2, 0, 100));
  Return(*store, 2, 40, ReturnOutcome::kLowered);
  Take(*store, Request(3, 0, 100));
  const auto tokens = [&](std::uint64_t id) {
    std::string found;
    const auto leases =
        store->ListLeases({.tag = "orders", .host = {}, .state = {}, .containing = id});
    EXPECT_TRUE(leases.ok()) << leases.status().message();
    for (const LeaseRecord& lease : leases.value()) found += lease.token.back();
    return found;
  };
  EXPECT_EQ(tokens(0), "");
  EXPECT_EQ(tokens(1), "1");
  EXPECT_EQ(tokens(100), "1");
  EXPECT_EQ(tokens(101), "2");
  EXPECT_EQ(tokens(141), "23");
  EXPECT_EQ(tokens(200), "23");
  EXPECT_EQ(tokens(240), "3");
  EXPECT_EQ(tokens(241), "");
}

// Regression: what a host had read of a tag up to 100 ms ago said that the tag was used up, though
// another host had raised its end.
TEST_F(MysqlStoreTest, RaisedEndOfAUsedUpTagCountsAtOnce) {
  const auto store = OpenWithOrders("a");
  const auto other = OpenStore("b");
  TagChange change;
  change.tag = "orders";
  change.max_id = 1000;
  ASSERT_TRUE(store->ChangeTag(change).ok());
  EXPECT_EQ(Take(*store, Request(1)), (IdRange{1, 1001}));
  EXPECT_EQ(store->TakeLease(Request(2)).status().code(), Code::kOutOfIds);
  change.max_id = 5000;
  ASSERT_TRUE(other->ChangeTag(change).ok());
  EXPECT_EQ(Take(*store, Request(3)), (IdRange{1001, 2001}));
}

TEST_F(MysqlStoreTest, ReaderSeesWhatIsThereAndIsNoHost) {
  const HostIdentity host{.id = "a", .boot_id = "boot", .instance = "another"};
  EXPECT_EQ(OpenStoreReader(server_->Url(), host).status().code(), Code::kUnavailable);
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  const std::string hosts = Ask("SELECT CONCAT(host, run, beat) FROM idd_host");
  {
    const Result<std::unique_ptr<StoreReader>> reader = OpenStoreReader(server_->Url(), host);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    Take(*store, Request(2));
    EXPECT_EQ(reader.value()->ReadLedger("orders", 100).value().journal.size(), 2U);
    EXPECT_EQ(reader.value()->LedgerTags().value(), std::set<std::string>{"orders"});
    EXPECT_EQ(reader.value()->FindTag("orders").value().next_id, 2001U);
    LeaseFilter filter;
    filter.among.emplace();
    EXPECT_EQ(reader.value()->ListLeases(filter).value().size(), 0U);
  }
  EXPECT_EQ(Ask("SELECT CONCAT(host, run, beat) FROM idd_host"), hosts);
  EXPECT_EQ(Ask("SELECT boot_id FROM idd_host"), "boot");
  Sql("SET GLOBAL read_only = 1");
  const Status refused = OpenStoreReader(server_->Url(), host).status();
  Sql("SET GLOBAL read_only = 0");
  EXPECT_EQ(refused.code(), Code::kUnavailable) << refused.message();
}

// A host whose transaction the server left open, and which is then stopped.
TEST_F(MysqlStoreTest, TransactionThatIsLeftOpenLosesItsLocks) {
  static_cast<void>(OpenWithOrders("a"));
  const MysqlUrl url = ParseMysqlUrl(server_->Url()).value();
  const Result<std::unique_ptr<MysqlDb>> db = MysqlDb::Connect(url, url.endpoints.front());
  ASSERT_TRUE(db.ok()) << db.status().message();
  ASSERT_TRUE(db.value()->Query("START TRANSACTION").ok());
  ASSERT_TRUE(db.value()->Query("UPDATE leaf_alloc SET description = 'hung'").ok());
  DbSession other = Root();
  other.Execute("SET SESSION innodb_lock_wait_timeout = 120");
  EXPECT_NO_THROW(other.Execute("UPDATE leaf_alloc SET description = 'other'"));
  EXPECT_FALSE(db.value()->Query("COMMIT").ok());
  EXPECT_EQ(Ask("SELECT description FROM leaf_alloc"), "other");
}

// As a row lock that times out while the rows before it are on their way.
TEST_F(MysqlStoreTest, ErrorAfterSomeRowsIsThatErrorAndTheConnectionStays) {
  const MysqlUrl url = ParseMysqlUrl(server_->Url()).value();
  const Result<std::unique_ptr<MysqlDb>> opened = MysqlDb::Connect(url, url.endpoints.front());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  MysqlDb& db = *opened.value();
  ASSERT_TRUE(db.Query("CREATE TABLE numbers(n INT PRIMARY KEY)").ok());
  ASSERT_TRUE(db.Query("INSERT INTO numbers VALUES(1), (2), (3)").ok());
  const std::string fails = "SELECT (SELECT n FROM numbers AS b WHERE b.n < a.n) FROM numbers AS a";
  const Result<MysqlResult> rows = db.Query(fails + " ORDER BY a.n");
  ASSERT_FALSE(rows.ok());
  EXPECT_THAT(rows.status().message(), HasSubstr("error 1242"));
  EXPECT_EQ(db.last_error(), 1242U);
  EXPECT_FALSE(db.broken());
  ASSERT_TRUE(db.Query("SELECT 1").ok());
  EXPECT_FALSE(db.Transaction({"INSERT INTO numbers VALUES(4)", fails}).ok());
  EXPECT_FALSE(db.outcome_unknown()) << "the error came before the COMMIT";
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM numbers"), "3");
}

// The server continues with a statement of an idd that has died. The next idd takes over the host's
// row, and waits for the statements sent under it.
TEST_F(MysqlStoreTest, LeaseThatCommitsAfterItsDaemonsEndIsKnownToTheNext) {
  const auto dead = OpenWithOrders("a");
  DbSession other = Root();
  other.Execute("BEGIN");
  other.Execute("UPDATE leaf_alloc SET description = 'locked'");
  // On a busy machine the server may have given up the wait for the row.
  std::thread asks([&dead] { static_cast<void>(dead->TakeLease(Request(1))); });
  EXPECT_TRUE(harness::WaitUntil(harness::Patience(10s), [] {
    return Ask("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE"
               " 'UPDATE leaf_alloc SET max_id%'") != "0";
  }));
  const auto next = NewStore("a");
  bool is_abandoned = false;
  std::thread takes_over([&next, &is_abandoned] {
    EXPECT_TRUE(next->Open().ok());
    is_abandoned = next->AbandonActive({}).ok();
  });
  // The COMMIT comes before the lock wait ends. By then, a store that does not wait would already
  // have looked for active leases.
  std::this_thread::sleep_for(500ms);
  other.Execute("COMMIT");
  asks.join();
  takes_over.join();
  EXPECT_TRUE(is_abandoned);
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM idd_lease WHERE state = 'active'"), "0");
}

}  // namespace
}  // namespace idd::daemon
