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
#include <string>
#include <thread>
#include <vector>

#include "mysql_store_fixture.h"
#include "support/db_server.h"
#include "support/mysql_proxy.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

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
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
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

TEST_F(MysqlStoreTest, ServerThatWasRestartedIsAnotherOneHoweverSoon) {
  const auto store = OpenStore("a");
  const std::uint64_t generation = store->generation();
  server_->Kill();
  server_->Start();
  std::this_thread::sleep_for(1100ms);
  ASSERT_TRUE(store->Open().ok());
  EXPECT_GT(store->generation(), generation);
  const std::uint64_t then = store->generation();
  std::this_thread::sleep_for(2100ms);
  ASSERT_TRUE(store->Open().ok());
  ASSERT_TRUE(store->Open().ok());
  EXPECT_LE(store->generation(), then + 1) << "at most once while the cause is unknown";
  EXPECT_TRUE(NewStore("b")->Open().ok());
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

// An earlier version of idd has made the tables.
TEST_F(MysqlStoreTest, IndexThatIsMissingIsAddedIfTheAccountMay) {
  const auto indexes = [] {
    return Ask(
        "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = 'idd'"
        " AND index_name = 'idd_returned_end'");
  };
  OpenWithOrders("a").reset();
  EXPECT_EQ(indexes(), "2") << "one row for each column";
  Sql("DROP INDEX idd_returned_end ON idd_returned");
  const std::string account = "idd@localhost";
  Root("").Execute("REVOKE INDEX ON idd.* FROM " + account);
  const auto store = OpenStore("b");
  EXPECT_EQ(indexes(), "0");
  EXPECT_EQ(Take(*store, Request(1)), (shm::IdRange{1, 1001}));
  Root("").Execute("GRANT INDEX ON idd.* TO " + account);
  OpenStore("c").reset();
  EXPECT_EQ(indexes(), "2");
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

// Hosts that start together ask for about the same ceilings; one of them makes all hosts note it.
TEST_F(MysqlStoreTest, CeilingThatIsWantedAlreadyKeepsItsEpoch) {
  const auto store = OpenWithOrders("a");
  const auto raise = [&store](std::uint64_t wanted, std::uint64_t least, std::uint64_t pushed = 0) {
    const Status status =
        store->Raise({{.tag = "orders", .wanted = wanted, .least = least, .pushed = pushed},
                      {"users", 7, 7, 0}});
    EXPECT_TRUE(status.ok()) << status.message();
    return Ask(
        "SELECT CONCAT(c.wanted, ' ', c.pushed, ' ', (SELECT epoch FROM idd_ceiling WHERE"
        " biz_tag = '') - c.epoch) FROM idd_ceiling c WHERE c.biz_tag = 'orders'");
  };
  Sql("DELETE FROM idd_ceiling WHERE biz_tag <> ''");
  EXPECT_EQ(raise(5000, 3000), "5000 0 0");
  EXPECT_EQ(raise(6000, 4000), "5000 0 1");
  EXPECT_EQ(raise(6000, 5000), "5000 0 2");
  EXPECT_EQ(raise(9000, 5001), "9000 0 0");
  EXPECT_EQ(raise(8000, 8000), "9000 0 1");
  EXPECT_EQ(raise(8000, 8000, 8000), "9000 8000 0") << "a host may depend on it";
  EXPECT_EQ(raise(7000, 7000, 7000), "9000 8000 1");
  EXPECT_EQ(Ask("SELECT wanted FROM idd_ceiling WHERE biz_tag = 'users'"), "7");
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
  const Status status = store->Raise({{.tag = "orders", .wanted = 5000, .least = 5000}});
  holder.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Ask("SELECT wanted FROM idd_ceiling WHERE biz_tag = 'orders'"), "5000");
}

TEST_F(MysqlStoreTest, RaiseBesideAnotherOneIsNotTried) {
  const auto store = OpenWithOrders("a");
  const std::vector<CeilingRaise> raises = {{.tag = "orders", .wanted = 5000, .least = 5000}};
  Sql("INSERT INTO idd_ceiling(biz_tag, active, wanted, epoch) VALUES('orders', 0, 1, 1)"
      " ON DUPLICATE KEY UPDATE wanted = 1");
  harness::DbSession other = Root();
  other.Execute("START TRANSACTION");
  other.Execute("UPDATE idd_ceiling SET epoch = epoch + 1 WHERE biz_tag = ''");
  const auto count = [] { return Root().Counters().at("innodb_row_lock_waits"); };
  const double before = count();
  Result<bool> raised = store->TryRaise(raises);
  ASSERT_TRUE(raised.ok()) << raised.status().message();
  EXPECT_FALSE(raised.value());
  EXPECT_EQ(count(), before) << "it waited";
  EXPECT_EQ(Ask("SELECT wanted FROM idd_ceiling WHERE biz_tag = 'orders'"), "1");
  other.Execute("COMMIT");
  raised = store->TryRaise(raises);
  ASSERT_TRUE(raised.ok()) << raised.status().message();
  EXPECT_TRUE(raised.value());
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
  server_->OpenFence();
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
  EXPECT_EQ(store->Raise({{.tag = "orders", .wanted = 4000, .least = 4000}}).code(),
            Code::kUnavailable);
}

// The state after a dump that is restored within a second: each row that a host checks is
// unchanged, but the tables are others.
TEST_F(MysqlStoreTest, TableThatWasMadeAgainLeasesNothingBeforeTheMarksArePushed) {
  for (const std::string table : {"leaf_alloc", "idd_lease", "idd_fence", "idd_ceiling"}) {
    SetUp();
    const auto a = OpenWithOrders("a");
    const auto b = OpenStore("b");
    Take(*a, Request(1));
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
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  std::this_thread::sleep_for(1100ms);
  Sql("CREATE TABLE copy LIKE leaf_alloc");
  Sql("DROP TABLE leaf_alloc");
  Sql("RENAME TABLE copy TO leaf_alloc");
  const auto records = store->FindTags({"orders"});
  EXPECT_EQ(records.status().code(), Code::kUnavailable) << "the tag counts as deleted";
  ASSERT_TRUE(store->Open().ok());
  Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('orders', 1, 1000)");
  server_->OpenFence();
  EXPECT_EQ(Take(*store, Request(2)), (IdRange{1001, 2001})) << "above its journal";
}

// A stopped process that continues: it leases before it looks.
TEST_F(MysqlStoreTest, HostThatWasPutOutIsNotSentToLookForTriggers) {
  const auto store = OpenWithOrders("a");
  CreateTag(*store, "users");
  Sql("UPDATE idd_fence SET state = 'out'");
  const auto leases = store->TakeLeases({Request(1), Request(2, 0, 10, "users")});
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  for (const Result<Lease>& lease : leases.value()) {
    EXPECT_EQ(lease.status().code(), Code::kUnavailable);
    EXPECT_THAT(lease.status().message(), HasSubstr("is not a live member"));
  }
  Sql("UPDATE idd_fence SET state = 'live'");
  EXPECT_EQ(Take(*store, Request(3)), (IdRange{1, 1001}));
}

// MariaDB keeps the time with each open instance of a table, so a session sees one of two times.
TEST_F(MysqlStoreTest, TouchedFileOfATableStopsTheHostsOnceEach) {
  if (harness::IsMysql()) GTEST_SKIP() << "MySQL keeps the time in a table, not with a file";
  const auto a = OpenWithOrders("a");
  Take(*a, Request(1));
  const auto b = OpenStore("b");
  const std::string file = dir_->File("db.data/idd/leaf_alloc.frm");
  std::this_thread::sleep_for(1100ms);
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(file.c_str(), 0660), 0);
  Sql("FLUSH TABLES leaf_alloc");
  EXPECT_EQ(a->TakeLease(Request(2)).status().code(), Code::kUnavailable);
  ASSERT_TRUE(a->Open().ok());
  ASSERT_TRUE(a->Confirm().ok());
  // b accepts the identity that a confirmed, and confirms the same from then on.
  EXPECT_EQ(b->ReadFence(0).status().code(), Code::kUnavailable);
  const std::uint64_t generation = b->generation();
  ASSERT_TRUE(b->Open().ok());
  ASSERT_TRUE(b->Confirm().ok());
  EXPECT_EQ(Ask("SELECT COUNT(DISTINCT server) FROM idd_fence"), "1");
  EXPECT_EQ(b->generation(), generation);
  server_->OpenFence();
  EXPECT_EQ(Take(*b, Request(3)), (IdRange{1001, 2001}));
  EXPECT_EQ(Take(*a, Request(4)), (IdRange{2001, 3001}));
}

// Another host pushes the members that it knew. A row that is newer shows what became of them.
TEST_F(MysqlStoreTest, MembersAreAdmittedIfTheirRowsAreOlder) {
  const auto a = OpenWithOrders("a");
  const auto rows = [] {
    return Ask(
        "SELECT CONCAT(host, ' ', run, ' ', state, ' ', noted, server) FROM idd_fence"
        " WHERE host <> 'a' ORDER BY host");
  };
  const std::string two = MakeRun(2);
  const std::string ten = MakeRun(10);
  Sql("INSERT INTO idd_fence(host, run, beat, noted, state, server) VALUES('b', '" + two +
      "', 9, 5, 'live', 's'), ('c', '" + two + "', 9, 5, 'waiting', 's'), ('d', '" + two +
      "', 9, 5, 'left', 's'), ('e', '" + two +
      "', 9, 5, 'out', 's'), ('f',"
      " '0123456789abcdef0123456789abcdef', 9, 5, 'out', 's')");
  const auto members = [](const std::string& run) {
    std::vector<FenceMember> admitted;
    for (const char* const host : {"b", "c", "d", "e", "f", "g"}) {
      FenceMember& member = admitted.emplace_back();
      member.host = host;
      member.run = run;
      member.silence = std::chrono::seconds(30);
    }
    return admitted;
  };
  ASSERT_TRUE(a->Admit(members(MakeRun(2))).ok());
  std::string f = Ask("SELECT run FROM idd_fence WHERE host = 'f'");
  EXPECT_EQ(NumberOfRun(f), 2U) << "the run of an older idd is older than all others";
  Sql("DELETE FROM idd_fence WHERE host IN ('f', 'g')");
  EXPECT_EQ(rows(), "b " + two + " live 5s,c " + two + " waiting 5s,d " + two + " left 5s,e " +
                        two + " out 5s");
  ASSERT_TRUE(a->Admit(members(ten)).ok());
  EXPECT_EQ(rows(), "b " + two + " live 5s,c " + ten + " live 0,d " + ten + " live 0,e " + ten +
                        " live 0,f " + ten + " live 0,g " + ten + " live 0");
}

// A copy of the tables may have a host's row as it was at an earlier time. The number tells which
// row is the older one; a connection writes no state, and leaves the number of the row that it
// finds.
TEST_F(MysqlStoreTest, RunHasTheNumberOfTheStateAndChangesWithEachConnection) {
  const auto store = OpenStore("a");
  const auto run = [] { return Ask("SELECT run FROM idd_fence WHERE host = 'a'"); };
  EXPECT_EQ(NumberOfRun(run()), 0U);
  ASSERT_TRUE(store->SetState(MemberState::kWaiting, std::chrono::seconds(30), 7).ok());
  EXPECT_EQ(NumberOfRun(run()), 7U);
  const std::string before = run();
  ASSERT_TRUE(store->SetNoted(1).ok());
  EXPECT_EQ(run(), before);
  ASSERT_TRUE(store->Open().ok());
  EXPECT_NE(run(), before);
  EXPECT_EQ(NumberOfRun(run()), 7U);
  ASSERT_TRUE(store->SetState(MemberState::kLive, std::chrono::seconds(30), 1'000'000).ok());
  EXPECT_EQ(NumberOfRun(run()), 1'000'000U);
  EXPECT_TRUE(IsOlderRun(before, run()));
  EXPECT_FALSE(IsOlderRun(run(), before));
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

}  // namespace
}  // namespace idd::daemon
