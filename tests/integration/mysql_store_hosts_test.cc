// SPDX-License-Identifier: Apache-2.0
//
// The allocator over the MySQL protocol, on a real mariadbd: hosts, servers and tables that have
// changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mysql_store_fixture.h"
#include "support/db_server.h"
#include "support/leasable.h"
#include "support/mysql_proxy.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(MysqlStoreTest, SecondLiveHostUnderANameIsRefused) {
  const auto first = OpenWithOrders("web-1");
  const auto second = NewStore("web-1", "another boot");
  const Status status = second->Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("another host uses the name 'web-1'"));
  EXPECT_TRUE(OpenStore("web-1") != nullptr) << "the same host's next start";
  Sql("UPDATE idd_host SET last_seen = CURRENT_TIMESTAMP - INTERVAL 61 SECOND");
  std::this_thread::sleep_for(1100ms);  // it asks at most once a second
  EXPECT_TRUE(second->Open().ok()) << "the first has been silent for a minute";
  const Status refused = first->TakeLease(Request(1)).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("another host took this one's name"));
  EXPECT_EQ(second->ListHosts().value().size(), 1U);
}

// Regression: if a host was restarted, also with its machine, and the tables then went back to a
// copy from before that, its own row of a few seconds ago kept it from leasing for a minute.
TEST_F(MysqlStoreTest, RowOfAnEarlierRunInACopyIsThisHostsOwn) {
  for (const char* boot : {"boot", "the boot before"}) {
    auto earlier = NewStore("web-1", boot, 8);
    ASSERT_TRUE(earlier->Open().ok());
    Sql("CREATE TABLE copy AS SELECT * FROM idd_host");
    earlier.reset();
    const auto later = NewStore("web-1", "boot", 10);
    ASSERT_TRUE(later->Open().ok());
    Sql("REPLACE INTO idd_host SELECT * FROM copy");
    Sql("DROP TABLE copy");
    const std::uint64_t generation = later->generation();
    std::this_thread::sleep_for(1100ms);  // it asks at most once a second
    const Status status = later->Open();
    EXPECT_TRUE(status.ok()) << boot << ": " << status.message();
    EXPECT_GT(later->generation(), generation) << "the tables were set back";
  }
}

// A clone has the state directory and its number. It begins on another kernel, and the first host,
// which has held the name, is alive.
TEST_F(MysqlStoreTest, CloneOfALiveHostIsRefusedThoughItsRunIsLater) {
  const auto first = NewStore("web-1", "boot", 8);
  ASSERT_TRUE(first->Open().ok());
  const auto clone = NewStore("web-1", "boot of the clone", 10);
  const Status refused = clone->Open();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("another host uses the name 'web-1'"));
  Sql("UPDATE idd_host SET last_seen = CURRENT_TIMESTAMP - INTERVAL 61 SECOND");
  std::this_thread::sleep_for(1100ms);  // it asks at most once a second
  ASSERT_TRUE(clone->Open().ok()) << "the first has been silent for a minute";
  const Status displaced = first->Open();
  EXPECT_EQ(displaced.code(), Code::kUnavailable) << "the clone is the later run";
  EXPECT_THAT(displaced.message(), HasSubstr("another host uses the name 'web-1'"));
}

TEST_F(MysqlStoreTest, NameIsFreeAtOnceAfterACleanStop) {
  OpenStore("web-1").reset();
  const auto rebooted = NewStore("web-1", "another boot");
  const Status status = rebooted->Open();
  EXPECT_TRUE(status.ok()) << status.message();
}

// Two hosts on copies of one state dir and on one kernel: only the run distinguishes them.
TEST_F(MysqlStoreTest, CloneThatStartsLaterHasTheNameAndTheOtherIsRefused) {
  const auto first = OpenWithOrders("web-1");
  const auto clone = OpenStore("web-1");
  std::this_thread::sleep_for(150ms);  // a read stays valid for that long
  EXPECT_EQ(first->TakeLease(Request(1)).status().code(), Code::kUnavailable);
  const Status refused = first->Open();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("another host uses the name 'web-1'"));
  EXPECT_EQ(Take(*clone, Request(2)), (IdRange{1, 1001}));
}

// A user with all privileges may write to a read-only server.
TEST_F(MysqlStoreTest, ServerThatBecameReadOnlyIsLeftWhateverTheUserMay) {
  Root("").Execute("GRANT ALL ON *.* TO idd@localhost");
  const auto store = OpenWithLease("a");
  Root("").Execute("SET GLOBAL read_only = 1");
  std::this_thread::sleep_for(150ms);  // a read stays valid for that long
  const Status status = store->TakeLease(Request(2)).status();
  const Status again = store->Open();
  Root("").Execute("SET GLOBAL read_only = 0");
  Root("").Execute("REVOKE ALL ON *.* FROM idd@localhost");
  Root("").Execute("GRANT ALL ON idd.* TO idd@localhost");
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("is read-only"));
  EXPECT_THAT(again.message(), HasSubstr("is read-only"));
}

TEST_F(MysqlStoreTest, NothingIsMadeWhereTheTablesAreKnown) {
  const auto store = NewStore("a");
  store->RequireExisting();
  const Status status = store->Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("none of idd's tables"));
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'idd'"), "0");
}

// idd, or the server, died while creating the tables.
TEST_F(MysqlStoreTest, TablesThatAnotherHostDidNotFinishAreFinished) {
  OpenStore("a").reset();
  Sql("DELETE FROM idd_meta");
  Sql("DROP TABLE idd_deleted_tag");
  const auto known = NewStore("a");
  known->RequireExisting();
  EXPECT_EQ(known->Open().code(), Code::kUnavailable);
  const auto store = NewStore("b");
  const Status status = store->Open();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(store->Incarnation().value(), "");
}

TEST_F(MysqlStoreTest, TablesOfADumpThatIsBeingRestoredAreNotFinished) {
  Take(*OpenWithOrders("a"), Request(1));
  Sql("DROP TABLE idd_meta");
  const auto store = NewStore("b");
  store->AllowNew();
  const Status status = store->Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rows in idd_lease and none in idd_meta"));
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'idd' AND"
                " table_name = 'idd_meta'"),
            "0");
}

// Each packet stays small, whatever the number of leases: a server refuses a packet above its
// limit, and a slow server does not finish a large packet before the deadline.
TEST_F(MysqlStoreTest, ThousandsOfLeasesAreJournalledAgain) {
  const std::string usual = Ask("SELECT @@GLOBAL.max_allowed_packet");
  Root("").Execute("SET GLOBAL max_allowed_packet = 524288");
  const auto store = OpenWithOrders("a");
  HostMemory memory;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    memory.held.push_back({.token = TestToken(1 + i), .tag = "orders", .ids = {1 + i, 2 + i}});
  }
  const auto reconciliation = store->Reconcile(memory);
  ASSERT_TRUE(reconciliation.ok()) << reconciliation.status().message();
  EXPECT_EQ(reconciliation.value().restored.size(), 2000U);
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM idd_lease WHERE state = 'active'"), "2000");
  Root("").Execute("SET GLOBAL max_allowed_packet = " + usual);
}

// Restored from a dump under a live connection: the server is the same, the rows are not.
TEST_F(MysqlStoreTest, TablesSetBackUnderALiveConnectionLeaseNothingBeforeTheMarksArePushed) {
  const auto store = OpenWithOrders("a");
  Sql("CREATE TABLE kept_alloc AS SELECT * FROM leaf_alloc");
  Sql("CREATE TABLE kept_host AS SELECT * FROM idd_host");
  Take(*store, Request(1));
  const std::uint64_t generation = store->generation();
  Sql("DELETE FROM idd_lease");
  Sql("REPLACE INTO leaf_alloc SELECT * FROM kept_alloc");
  Sql("REPLACE INTO idd_host SELECT * FROM kept_host");
  const Status status = store->TakeLease(Request(2, 1001)).status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("set back"));
  ASSERT_TRUE(store->Open().ok());
  EXPECT_GT(store->generation(), generation);
}

TEST_F(MysqlStoreTest, RaiseWaitsForALockOfASecond) {
  const auto store = OpenWithOrders("a");
  Sql("INSERT INTO idd_ceiling(biz_tag, active, wanted, epoch) VALUES('orders', 0, 1, 1)"
      " ON DUPLICATE KEY UPDATE wanted = 1");
  harness::DbSession other = Root();
  other.Execute("START TRANSACTION");
  other.Execute("UPDATE idd_ceiling SET epoch = epoch + 1 WHERE biz_tag = ''");
  std::thread holder([&other] {
    std::this_thread::sleep_for(1200ms);
    other.Execute("COMMIT");
  });
  const Status status = store->Raise({{.tag = "orders", .wanted = 5000, .least = 5000}}).status();
  holder.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Ask("SELECT wanted FROM idd_ceiling WHERE biz_tag = 'orders'"), "5000");
}

// Many hosts that need the same tags.
TEST_F(MysqlStoreTest, HostThatWaitedInVainForARowTakesTurns) {
  const auto store = OpenWithOrders("a");
  const std::string turn = "(CONCAT('idd ', DATABASE())";
  harness::DbSession other = Root();
  other.Execute("START TRANSACTION");
  other.Execute("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'orders' FOR UPDATE");
  EXPECT_EQ(store->TakeLease(Request(1)).status().code(), Code::kTimeout);
  other.Execute("COMMIT");
  ASSERT_EQ(other.Query("SELECT GET_LOCK" + turn + ", 0)"), "1");
  const Status status = store->TakeLease(Request(2)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("this host's turn"));
  ASSERT_EQ(other.Query("SELECT RELEASE_LOCK" + turn + ")"), "1");
  EXPECT_TRUE(store->TakeLease(Request(3)).ok());
  EXPECT_EQ(other.Query("SELECT IS_FREE_LOCK" + turn + ")"), "1") << "the turn ends with the lease";
}

TEST_F(MysqlStoreTest, SessionThatHangsInItsTurnIsNotWaitedForAgain) {
  const auto store = OpenWithOrders("a");
  harness::DbSession other = Root();
  other.Execute("START TRANSACTION");
  other.Execute("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'orders' FOR UPDATE");
  EXPECT_EQ(store->TakeLease(Request(1)).status().code(), Code::kTimeout);
  other.Execute("COMMIT");
  ASSERT_EQ(other.Query("SELECT GET_LOCK(CONCAT('idd ', DATABASE()), 0)"), "1");
  EXPECT_EQ(store->TakeLease(Request(2)).status().code(), Code::kTimeout);
  EXPECT_TRUE(store->TakeLease(Request(3)).ok())
      << "the same session has had the turn for a second";
  EXPECT_TRUE(store->TakeLease(Request(4)).ok());
}

// Below a ceiling that is near, a host asks for all that is left, and each advance of another host
// is in its way.
TEST_F(MysqlStoreTest, HostsThatAreInEachOthersWayAreNotSentToLookForTriggers) {
  static_cast<void>(OpenWithOrders("b"));
  Sql("UPDATE idd_ceiling SET active = 5000, wanted = 5000");
  harness::MysqlProxy proxy(dir_->File("between"), server_->socket());
  std::atomic<int> advances = 0;
  proxy.BeforeCommits([&advances] {
    if (advances.fetch_sub(1) > 0) Sql("UPDATE leaf_alloc SET max_id = max_id + 1");
  });
  MysqlUrl url = ParseMysqlUrl(server_->Url()).value();
  url.unix_socket = dir_->File("between");
  MysqlStore store({url, {"a", "boot", "state-of-a"}});
  ASSERT_TRUE(harness::WaitUntil(harness::Patience(120s), [&store] { return store.Open().ok(); }));
  MakeLeasable(store, *server_);
  const std::uint64_t all = 10'000;
  advances = 4;
  const Status status = store.TakeLease(Request(1, 0, all)).status();
  EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("other hosts lease tag 'orders' at the same time"));
  EXPECT_EQ(MaxId(), "5");
  advances = 2;
  EXPECT_EQ(Take(store, Request(2, 0, all)), (IdRange{7, 5000}));
}

// The rows are as a host that is not refused would leave them.
TEST_F(MysqlStoreTest, RaiseIsRefusedAfterATableWasMadeAgainEvenIfNothingGrows) {
  const auto store = OpenWithOrders("a");
  ASSERT_TRUE(store->Raise({{.tag = "orders", .wanted = 5000, .least = 5000}}).ok());
  std::this_thread::sleep_for(1100ms);
  Sql("CREATE TABLE copy LIKE leaf_alloc");
  Sql("INSERT INTO copy(" + Columns("leaf_alloc") + ") SELECT " + Columns("leaf_alloc") +
      " FROM leaf_alloc");
  Sql("DROP TABLE leaf_alloc");
  Sql("RENAME TABLE copy TO leaf_alloc");
  EXPECT_EQ(store->Raise({{.tag = "orders", .wanted = 4000, .least = 4000}}).status().code(),
            Code::kUnavailable);
}

// The state after a dump that is restored within a second: each row that a host checks is
// unchanged, but the tables are others.
TEST_F(MysqlStoreTest, TableThatWasMadeAgainLeasesNothingBeforeTheMarksArePushed) {
  for (const std::string table :
       {"leaf_alloc", "idd_lease", "idd_term", "idd_witness", "idd_ceiling"}) {
    SetUp();
    const auto a = OpenWithLease("a");
    const auto b = OpenStore("b");
    std::this_thread::sleep_for(1100ms);  // the server's times have whole seconds
    Sql("CREATE TABLE copy LIKE " + table);
    Sql("INSERT INTO copy(" + Columns(table) + ") SELECT " + Columns(table) + " FROM " + table);
    Take(*b, Request(2));
    Sql("DROP TABLE " + table);
    Sql("RENAME TABLE copy TO " + table);
    const std::uint64_t generation = a->generation();
    const Status status = a->TakeLease(Request(3)).status();
    EXPECT_EQ(status.code(), Code::kUnavailable) << table;
    EXPECT_THAT(status.message(), HasSubstr("were set back or replaced")) << table;
    ASSERT_TRUE(a->Open().ok()) << table;
    EXPECT_GT(a->generation(), generation) << table;
  }
}

// leaf_alloc exists again, but not its rows yet.
TEST_F(MysqlStoreTest, TagThatIsMissingWhileADumpIsRestoredIsNoReasonToEndItsRing) {
  const auto store = OpenWithLease("a");
  std::this_thread::sleep_for(1100ms);
  Sql("CREATE TABLE copy LIKE leaf_alloc");
  Sql("DROP TABLE leaf_alloc");
  Sql("RENAME TABLE copy TO leaf_alloc");
  const auto records = store->FindTags({"orders"});
  EXPECT_EQ(records.status().code(), Code::kUnavailable) << "the tag counts as deleted";
  ASSERT_TRUE(store->Open().ok());
  Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('orders', 1, 1000)");
  MakeLeasable(*store, *server_);
  EXPECT_EQ(Take(*store, Request(2)), (IdRange{1001, 2001})) << "above its journal";
}

// MariaDB keeps the time with each open instance of a table, so a session sees one of two times.
TEST_F(MysqlStoreTest, TouchedFileOfATableStopsTheHostsOnceEach) {
  if (harness::IsMysql()) GTEST_SKIP() << "MySQL keeps the time in a table, not with a file";
  const auto a = OpenWithLease("a");
  const auto b = OpenStore("b");
  const std::string file = dir_->File("db.data/idd/leaf_alloc.frm");
  std::this_thread::sleep_for(1100ms);
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(file.c_str(), 0660), 0);
  Sql("FLUSH TABLES leaf_alloc");
  EXPECT_EQ(a->TakeLease(Request(2)).status().code(), Code::kUnavailable);
  ASSERT_TRUE(a->Open().ok());
  MakeLeasable(*a, *server_);
  EXPECT_EQ(b->ReadTerm(std::nullopt).status().code(), Code::kUnavailable);
  const std::uint64_t generation = b->generation();
  ASSERT_TRUE(b->Open().ok());
  EXPECT_EQ(b->generation(), generation);
  // b knows the identity that a has written as that of its own connection.
  const Result<TermView> view = b->ReadTerm(std::nullopt);
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_TRUE(view.value().row.is_current);
  EXPECT_EQ(Take(*b, Request(3)), (IdRange{1001, 2001}));
  EXPECT_EQ(Take(*a, Request(4)), (IdRange{2001, 3001}));
}

// The tag record that was read a moment ago still lists the range.
TEST_F(MysqlStoreTest, ListedRangeThatIsGoneMeanwhileIsNotTakenBack) {
  const auto store = OpenWithAListedRangeAndThen("DELETE FROM idd_returned");
  const Result<Lease> lease = store->TakeLease(Request(3));
  EXPECT_FALSE(lease.ok() && lease.value().from_returned);
}

TEST_F(MysqlStoreTest, RangeIsNotTakenBackFromTablesThatWereSetBackMeanwhile) {
  const auto store = OpenWithAListedRangeAndThen("DELETE FROM idd_lease");
  EXPECT_FALSE(store->TakeLease(Request(3)).ok());
}

TEST_F(MysqlStoreTest, TriggerThatMovesTheJournalledRangeLeasesNothing) {
  const auto store = OpenWithOrders("a");
  CreateTag(*store, "invoices");
  Take(*store, Request(1));
  Take(*store, Request(2, 0, 1000, "invoices"));
  Sql("CREATE TRIGGER move_base BEFORE INSERT ON idd_lease FOR EACH ROW"
      " SET NEW.base = NEW.base - 500");
  const auto leases = store->TakeLeases({Request(3), Request(4, 0, 1000, "invoices")});
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  for (const Result<Lease>& lease : leases.value()) {
    EXPECT_EQ(lease.status().code(), Code::kInvalid);
    EXPECT_THAT(lease.status().message(), HasSubstr("look for triggers"));
  }
}

TEST_F(MysqlStoreTest, TablesThatCannotRollBackAreRefused) {
  OpenStore("a").reset();
  Sql("ALTER TABLE leaf_alloc ENGINE=MyISAM");
  Status status = NewStore("a")->Open();
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_THAT(status.message(), HasSubstr("MyISAM"));
  Sql("ALTER TABLE leaf_alloc ENGINE=InnoDB, MODIFY max_id varchar(20)");
  status = NewStore("a")->Open();
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_THAT(status.message(), HasSubstr("leaf_alloc.max_id"));
  Sql("DROP TABLE leaf_alloc");
  EXPECT_THAT(NewStore("a")->Open().message(), HasSubstr("leaf_alloc is missing"));
}

// --- terms and ceilings (term_store.h)

class MysqlTermTest : public MysqlStoreTest {
 protected:
  [[nodiscard]] static TermView Look(MysqlStore& store) {
    Result<TermView> view = store.ReadTerm(0);
    EXPECT_TRUE(view.ok()) << view.status().message();
    return view.ok() ? std::move(view).value() : TermView{};
  }
  [[nodiscard]] static std::uint64_t Raise(MysqlStore& store, const std::string& tag,
                                           std::uint64_t wanted, std::uint64_t least) {
    const Result<std::uint64_t> epoch =
        store.Raise({{.tag = tag, .wanted = wanted, .least = least}});
    EXPECT_TRUE(epoch.ok()) << epoch.status().message();
    return epoch.ok() ? epoch.value() : 0;
  }
  // The term after the present one, begun by this store.
  static void BeginNext(MysqlStore& store) {
    const TermRow found = Look(store).row;
    const Term next = {.number = found.term.number + 1, .witness = "a.0000000a"};
    const Result<bool> begun = store.BeginTerm(found, next, found.active);
    ASSERT_TRUE(begun.ok()) << begun.status().message();
    EXPECT_TRUE(begun.value());
  }
  [[nodiscard]] static WitnessList List(std::uint64_t version) {
    return {.version = version,
            .asked_in = {.number = 1, .witness = "test.00000000"},
            .names = {"a.0000000a"}};
  }
  // "tag wanted pushed active/term" of the tags.
  [[nodiscard]] static std::string Rows() {
    return Ask(
        "SELECT CONCAT(biz_tag, ' ', wanted, ' ', pushed, ' ', active, '/', term_number)"
        " FROM idd_ceiling WHERE biz_tag <> '' ORDER BY biz_tag");
  }
  // All that the hosts agree on.
  [[nodiscard]] static std::string Everything() {
    return Ask("SELECT CONCAT_WS(' ', number, witness, identity, active, wanted) FROM idd_term") +
           Ask("SELECT CONCAT_WS(' ', name, term_number, noted, list, beat) FROM idd_witness") +
           Rows() + " " + MaxId();
  }
};

TEST_F(MysqlTermTest, NewDataSetIsOfNoTermAndLeasesNothing) {
  const auto store = NewStore("a");
  ASSERT_TRUE(store->Open().ok());
  CreateOrders(*store);
  const TermView view = Look(*store);
  EXPECT_EQ(view.row.term, Term{});
  EXPECT_FALSE(view.row.is_current);
  EXPECT_EQ(view.row.active.version, 0U);
  EXPECT_TRUE(view.witnesses.empty());
  EXPECT_FALSE(store->TakeLease(Request(1)).ok());
  EXPECT_EQ(MaxId(), "1");
}

TEST_F(MysqlTermTest, BegunTermIsSeenByEveryHostAsItWasWritten) {
  const auto a = OpenStore("a");
  const auto b = OpenStore("b");
  const TermRow found = Look(*a).row;
  const WitnessList list = {.version = 7,
                            .asked_in = {.number = 3, .witness = "b.0000000b"},
                            .names = {"a.0000000a", "b.0000000b", "c.0000000c"}};
  const Term next = {.number = 5, .witness = "a.0000000a"};
  ASSERT_TRUE(a->BeginTerm(found, next, list).value());
  const TermRow seen = Look(*b).row;
  EXPECT_EQ(seen.term, next);
  EXPECT_EQ(seen.active, list);
  EXPECT_EQ(seen.wanted, WitnessList());
  EXPECT_TRUE(seen.is_current);
  ASSERT_TRUE(b->VoidTerm(seen).value());
  for (MysqlStore* const store : {a.get(), b.get()}) {
    const TermRow now = Look(*store).row;
    EXPECT_EQ(now.term, next);
    EXPECT_EQ(now.identity, "");
    EXPECT_FALSE(now.is_current);
  }
}

// A step that relies on what was read a moment ago.
TEST_F(MysqlTermTest, NothingIsDoneIfTheTermIsNotAsFound) {
  const auto store = OpenWithOrders("a");
  Sql("DELETE FROM idd_ceiling WHERE biz_tag <> ''");
  ASSERT_NE(Raise(*store, "orders", 5000, 5000), 0U);
  const TermView view = Look(*store);
  const TermRow& row = view.row;
  const WitnessRow witness = {.name = "a.0000000a", .term = row.term, .beat = 1};
  using Step = std::function<Result<bool>(const TermRow&)>;
  const std::vector<Step> steps = {
      [&](const TermRow& found) {
        return store->BeginTerm(found, {.number = 99, .witness = "a.0000000a"}, List(9));
      },
      [&](const TermRow& found) { return store->VoidTerm(found); },
      [&](const TermRow& found) {
        return store->Push(found, {{.tag = "orders", .mark = 7000}, {.tag = "new", .mark = 1}});
      },
      [&](const TermRow& found) { return store->WriteWitness(found, witness, 0); },
      [&](const TermRow& found) { return store->Activate(found, 0, view.epoch); },
      [&](const TermRow& found) { return store->SetLists(found, List(8), List(9), view.epoch); }};
  std::vector<TermRow> others(5, row);
  others[0].term.number += 1;
  others[1].term.witness = "b.0000000b";
  others[2].identity += "x";
  others[3].active = List(5);
  others[4].wanted = List(5);
  const std::string before = Everything();
  for (std::size_t other = 0; other < others.size(); ++other) {
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const Result<bool> done = steps[step](others[other]);
      ASSERT_TRUE(done.ok()) << done.status().message();
      EXPECT_FALSE(done.value()) << other << " " << step;
      ASSERT_EQ(Everything(), before) << other << " " << step;
    }
  }
  for (std::size_t step = steps.size(); step-- > 0;) {
    const std::string last = Everything();
    const Result<bool> done = steps[step](Look(*store).row);
    ASSERT_TRUE(done.ok()) << done.status().message();
    EXPECT_TRUE(done.value()) << step;
    EXPECT_NE(Everything(), last) << step;
  }
}

TEST_F(MysqlTermTest, WitnessMovesItsRowOnlyFromWhereItLeftIt) {
  const auto store = OpenStore("a");
  const TermRow found = Look(*store).row;
  WitnessRow row = {
      .name = "a.0000000a", .term = found.term, .noted = 4, .list = List(3), .beat = 1};
  const auto write = [&](const TermRow& as_found, std::uint64_t was, std::uint64_t beat) {
    row.beat = beat;
    const Result<bool> written = store->WriteWitness(as_found, row, was);
    EXPECT_TRUE(written.ok()) << written.status().message();
    return written.ok() && written.value();
  };
  const auto beat = [&] { return Look(*store).witnesses.at(0).beat; };
  EXPECT_FALSE(write(found, 3, 4) && !Look(*store).witnesses.empty()) << "it has no row";
  EXPECT_TRUE(write(found, 0, 1));
  EXPECT_EQ(beat(), 1U);
  EXPECT_TRUE(write(found, 1, 2));
  EXPECT_FALSE(write(found, 1, 3)) << "another one, or an older copy";
  EXPECT_FALSE(write(found, 0, 1));
  EXPECT_FALSE(write(found, 3, 4));
  EXPECT_EQ(beat(), 2U);
  const WitnessRow seen = Look(*store).witnesses.at(0);
  EXPECT_EQ(seen.name, row.name);
  EXPECT_EQ(seen.term, found.term);
  EXPECT_EQ(seen.noted, 4U);
  EXPECT_EQ(seen.list, List(3));
  EXPECT_LT(seen.silent_s, 60U);
  BeginNext(*store);
  const TermRow next = Look(*store).row;
  row.term = next.term;
  EXPECT_TRUE(write(next, 0, 1)) << "a row of an older term is void";
  EXPECT_FALSE(write(next, 0, 1));
  EXPECT_EQ(Look(*store).witnesses.size(), 1U);
}

// Hosts that start together ask for about the same ceilings; one of them makes the witnesses note
// it.
TEST_F(MysqlTermTest, CeilingThatIsWantedAlreadyKeepsItsEpoch) {
  const auto store = OpenWithOrders("a");
  Sql("DELETE FROM idd_ceiling WHERE biz_tag <> ''");
  const auto raise = [&store](std::uint64_t wanted, std::uint64_t least) {
    const Result<std::uint64_t> epoch =
        store->Raise({{.tag = "orders", .wanted = wanted, .least = least},
                      {.tag = "users", .wanted = 7, .least = 7}});
    EXPECT_TRUE(epoch.ok()) << epoch.status().message();
    EXPECT_EQ(Ask("SELECT epoch FROM idd_ceiling WHERE biz_tag = ''"),
              std::to_string(epoch.value()));
    return Ask("SELECT CONCAT(wanted, ' ', pushed, ' ', " + std::to_string(epoch.value()) +
               " - epoch) FROM idd_ceiling WHERE biz_tag = 'orders'");
  };
  EXPECT_EQ(raise(5000, 3000), "5000 0 0");
  EXPECT_EQ(raise(6000, 4000), "5000 0 1");
  EXPECT_EQ(raise(6000, 5000), "5000 0 2");
  EXPECT_EQ(raise(9000, 5001), "9000 0 0");
  EXPECT_EQ(raise(8000, 8000), "9000 0 1");
  EXPECT_EQ(Ask("SELECT wanted FROM idd_ceiling WHERE biz_tag = 'users'"), "7");
}

TEST_F(MysqlTermTest, LookShowsTheCeilingsThatAreNotNotedYet) {
  const auto store = OpenWithOrders("a");
  const std::uint64_t first = Raise(*store, "users", 700, 700);
  const std::uint64_t second = Raise(*store, "bills", 900, 900);
  const auto wanted = [&](std::optional<std::uint64_t> noted) {
    std::string text;
    const Result<TermView> view = store->ReadTerm(noted);
    EXPECT_TRUE(view.ok()) << view.status().message();
    EXPECT_EQ(view.value().epoch, second);
    for (const TagMark& mark : view.value().wanted) {
      text += mark.tag + " " + std::to_string(mark.mark) + " ";
    }
    return text;
  };
  EXPECT_EQ(wanted(first), "bills 900 ");
  EXPECT_EQ(wanted(first - 1).size(), std::string("bills 900 users 700 ").size());
  EXPECT_EQ(wanted(second), "");
  EXPECT_EQ(wanted(std::nullopt), "");
}

TEST_F(MysqlTermTest, CeilingsAreActiveUpToTheNotedEpochAndInTheirTermOnly) {
  const auto store = OpenWithOrders("a");
  CreateTag(*store, "users");
  Sql("DELETE FROM idd_ceiling WHERE biz_tag <> ''");
  const std::uint64_t first = Raise(*store, "orders", 5000, 5000);
  const std::uint64_t second = Raise(*store, "users", 700, 700);
  const TermRow found = Look(*store).row;
  const auto active = [&](const std::string& tag) {
    const Result<std::vector<Ceiling>> ceilings = store->ReadCeilings({tag});
    EXPECT_TRUE(ceilings.ok()) << ceilings.status().message();
    return ceilings.value().at(0).active;
  };
  ASSERT_TRUE(store->Activate(found, 0, first).value());
  EXPECT_EQ(active("orders"), 5000U);
  EXPECT_EQ(active("users"), 0U);
  ASSERT_TRUE(store->Activate(found, second, second).value());
  EXPECT_EQ(active("users"), 0U);
  ASSERT_TRUE(store->Activate(found, first, second).value());
  EXPECT_EQ(active("users"), 700U);
  EXPECT_EQ(Take(*store, Request(1, 0, 10'000)), (IdRange{1, 5000}));
  BeginNext(*store);
  static_cast<void>(Look(*store));
  EXPECT_EQ(active("users"), 0U) << "active in an older term";
  const Status status = store->TakeLease(Request(2, 0, 10, "users")).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("a majority of the witnesses"));
  ASSERT_TRUE(store->Activate(Look(*store).row, 0, second).value());
  EXPECT_EQ(Take(*store, Request(3, 0, 10, "users")), (IdRange{1, 11}));
}

// A stopped process that continues: it leases before it looks.
TEST_F(MysqlTermTest, HostThatHasNotReadTheTermLeasesNothingAndLooksForNoTriggers) {
  const auto a = OpenWithOrders("a");
  const auto b = OpenStore("b");
  CreateTag(*a, "users");
  Take(*a, Request(1));
  BeginNext(*b);
  // The ceilings are active in the next term: only the term itself refuses the leases.
  MakeLeasable(*b, *server_);
  const auto leases = a->TakeLeases({Request(2), Request(3, 0, 10, "users")});
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  for (const Result<Lease>& lease : leases.value()) {
    EXPECT_FALSE(lease.ok());
    EXPECT_THAT(lease.status().message(), Not(HasSubstr("trigger")));
  }
  EXPECT_EQ(a->TakeLease(Request(4)).status().code(), Code::kTimeout);
  EXPECT_EQ(MaxId(), "1001");
  static_cast<void>(Look(*a));
  EXPECT_EQ(Take(*a, Request(5)), (IdRange{1001, 2001}));
  ASSERT_TRUE(b->VoidTerm(Look(*b).row).value());
  EXPECT_FALSE(a->TakeLease(Request(6)).ok());
  static_cast<void>(Look(*a));
  EXPECT_FALSE(a->TakeLease(Request(7)).ok());
  EXPECT_EQ(MaxId(), "2001");
}

TEST_F(MysqlTermTest, NothingIsLeasedBelowWhatWasPushed) {
  const auto store = OpenWithLease("a");
  const TermRow found = Look(*store).row;
  ASSERT_TRUE(
      store->Push(found, {{.tag = "orders", .mark = 5000}, {.tag = "gone", .mark = 700}}).value());
  EXPECT_EQ(MaxId(), "5000");
  EXPECT_EQ(store->FindTag("orders").value().used_limit, 5000U);
  ASSERT_TRUE(store->Push(found, {{.tag = "orders", .mark = 3000}}).value());
  EXPECT_EQ(store->FindTag("orders").value().used_limit, 5000U) << "it never falls";
  Sql("UPDATE leaf_alloc SET max_id = 2");
  std::this_thread::sleep_for(150ms);  // a read stays valid for that long
  EXPECT_EQ(Take(*store, Request(2)), (IdRange{5000, 6000}));
  CreateTag(*store, "gone");
  EXPECT_EQ(store->FindTag("gone").value().used_limit, 700U);
  const std::uint64_t epoch = Raise(*store, "gone", 9000, 9000);
  ASSERT_TRUE(store->Activate(found, 0, epoch).value());
  EXPECT_EQ(Take(*store, Request(3, 0, 10, "gone")), (IdRange{700, 710}));
}

// The witnesses of the next list must have noted all that is wanted.
TEST_F(MysqlTermTest, ListIsNotSetIfMoreIsWantedThanWasNoted) {
  const auto store = OpenWithOrders("a");
  const std::uint64_t epoch = Raise(*store, "users", 700, 700);
  TermRow found = Look(*store).row;
  ASSERT_TRUE(store->SetLists(found, found.active, List(8), epoch).value());
  found = Look(*store).row;
  EXPECT_EQ(found.wanted, List(8));
  const std::uint64_t later = Raise(*store, "users", 900, 900);
  EXPECT_FALSE(store->SetLists(found, List(8), WitnessList(), epoch).value());
  EXPECT_EQ(Look(*store).row.wanted, List(8));
  EXPECT_TRUE(store->SetLists(found, List(8), WitnessList(), later).value());
  EXPECT_EQ(Look(*store).row.active, List(8));
  EXPECT_EQ(Look(*store).row.wanted, WitnessList());
}

TEST_F(MysqlTermTest, CandidatesAreTheHostsThatRun) {
  const auto a = OpenStore("a");
  const auto b = OpenStore("b");
  OpenStore("c").reset();
  Sql("UPDATE idd_host SET last_seen = CURRENT_TIMESTAMP - INTERVAL 90 SECOND WHERE host = 'b'");
  const Result<std::vector<Candidate>> found = a->ListCandidates();
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found.value().size(), 2U);
  EXPECT_EQ(found.value()[0].name, "a.0000000a");
  EXPECT_LT(found.value()[0].silent_s, 60U);
  EXPECT_EQ(found.value()[1].name, "b.0000000b");
  EXPECT_GE(found.value()[1].silent_s, 90U);
}

// A server tells only the second in which it started.
TEST_F(MysqlTermTest, ServerThatWasRestartedASecondLaterIsOfNoTerm) {
  const auto store = OpenWithOrders("a");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::uint64_t generation = store->generation();
  const std::uint64_t connection = store->connection();
  server_->Kill();
  server_->Start();
  EXPECT_FALSE(store->ReadTerm(0).ok());
  ASSERT_TRUE(harness::WaitUntil(harness::Patience(20s), [&] { return store->Open().ok(); }));
  EXPECT_NE(store->connection(), connection);
  EXPECT_EQ(store->generation(), generation) << "the tables lack nothing that this host wrote";
  EXPECT_FALSE(Look(*store).row.is_current);
  EXPECT_FALSE(store->TakeLease(Request(1)).ok());
  MakeLeasable(*store, *server_);
  EXPECT_EQ(Take(*store, Request(2)), (IdRange{1, 1001}));
  ASSERT_TRUE(store->Open().ok());
  EXPECT_TRUE(Look(*store).row.is_current) << "the same server, over another connection";
}

TEST_F(MysqlTermTest, RaiseThatALongTransactionIsInTheWayOfIsTriedAgain) {
  const auto store = OpenWithOrders("a");
  Sql("UPDATE idd_ceiling SET wanted = 1 WHERE biz_tag = 'orders'");
  harness::DbSession other = Root();
  other.Execute("START TRANSACTION");
  other.Execute("UPDATE idd_ceiling SET epoch = epoch + 1 WHERE biz_tag = ''");
  const Status status = store->Raise({{.tag = "orders", .wanted = 5000, .least = 5000}}).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("another session holds a row"));
  other.Execute("COMMIT");
  EXPECT_NE(Raise(*store, "orders", 5000, 5000), 0U);
  EXPECT_EQ(Ask("SELECT wanted FROM idd_ceiling WHERE biz_tag = 'orders'"), "5000");
}

}  // namespace
}  // namespace idd::daemon
