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

// More rows than one read returns, most of them of another tag.
TEST_F(MysqlStoreTest, NewestOfTheWantedTagsAreFoundHoweverFarBack) {
  const auto store = OpenStore("a");
  const auto fill = [](const std::string& tag, std::uint64_t from, std::uint64_t to) {
    Sql("INSERT INTO idd_lease(token, biz_tag, host, base, `limit`) SELECT LPAD(seq, 32, '0'), '" +
        tag + "', 'a', seq, seq + 1 FROM " + harness::Numbers(from, to));
  };
  fill("orders", 1, 3);
  fill("users", 4, 25'000);
  fill("orders", 25'001, 25'001);
  LeaseFilter filter;
  filter.among = {"orders"};
  const auto firsts = [&store, &filter] {
    std::string found;
    const auto leases = store->ListLeases(filter);
    EXPECT_TRUE(leases.ok()) << leases.status().message();
    if (!leases.ok()) return found;
    for (const LeaseRecord& lease : leases.value()) {
      found += std::to_string(lease.ids.first) + " ";
    }
    return found;
  };
  filter.newest = 2;
  EXPECT_EQ(firsts(), "3 25001 ");
  filter.newest = 10;
  EXPECT_EQ(firsts(), "1 2 3 25001 ");
  filter.newest = 0;
  EXPECT_EQ(firsts(), "1 2 3 25001 ");
  filter.among = {"users"};
  filter.newest = 20'000;
  EXPECT_EQ(store->ListLeases(filter).value().size(), 20'000U);
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
  const auto store = OpenWithLease("a");
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
