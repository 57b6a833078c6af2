// SPDX-License-Identifier: Apache-2.0
//
// The allocator over the MySQL protocol, on a real mariadbd: what it leases, takes back, journals
// and refuses.
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

#include "admin/ledger_audit.h"
#include "config/make_store.h"
#include "support/mariadb_server.h"
#include "support/store_contract.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using harness::MariadbServer;
using harness::MariadbSession;
using shm::IdRange;
using shm::kMaxLimit;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

// One server for all cases, each with an empty database.
class MysqlStoreTest : public StoreCase {
 protected:
  static void SetUpTestSuite() {
    dir_ = new harness::TempDir;
    server_ = new MariadbServer(*dir_);
    server_->Start();
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  void SetUp() override {
    Root("").Execute("DROP DATABASE IF EXISTS idd");
    Root("").Execute("CREATE DATABASE idd");
  }

  [[nodiscard]] static MariadbSession Root(const std::string& database = "idd") {
    return server_->Session(database);
  }
  static void Sql(const std::string& sql) { Root().Execute(sql); }
  [[nodiscard]] static std::string Ask(const std::string& sql) { return Root().Query(sql); }

  // Those that are written, with commas.
  [[nodiscard]] static std::string Columns(const std::string& table) {
    return Ask(
        "SELECT GROUP_CONCAT('`', column_name, '`') FROM information_schema.columns"
        " WHERE table_schema = 'idd' AND is_generated = 'NEVER' AND table_name = '" +
        table + "'");
  }

  [[nodiscard]] static std::unique_ptr<MysqlStore> NewStore(const std::string& host,
                                                            const std::string& boot = "boot") {
    Result<MysqlUrl> url = ParseMysqlUrl(server_->Url());
    return std::make_unique<MysqlStore>(
        MysqlStoreOptions{std::move(url).value(), {host, boot, "state-of-" + host}});
  }
  [[nodiscard]] static std::unique_ptr<MysqlStore> OpenStore(const std::string& host) {
    std::unique_ptr<MysqlStore> store = NewStore(host);
    // A server that a busy machine lets wait is given up after some seconds.
    Status status;
    EXPECT_TRUE(harness::WaitUntil(harness::Patience(120s), [&] {
      status = store->Open();
      return status.code() != Code::kUnavailable;
    }));
    EXPECT_TRUE(status.ok()) << status.message();
    // The fence raises ceilings (fence_test.cc); no case here is about them but those that say so.
    server_->OpenFence();
    return store;
  }
  [[nodiscard]] static std::unique_ptr<MysqlStore> OpenWithOrders(const std::string& host) {
    std::unique_ptr<MysqlStore> store = OpenStore(host);
    CreateOrders(*store);
    return store;
  }
  // A store that has just read that a range of its own is listed, before `sql` is executed.
  [[nodiscard]] static std::unique_ptr<MysqlStore> OpenWithAListedRangeAndThen(
      const std::string& sql) {
    std::unique_ptr<MysqlStore> store = OpenWithOrders("a");
    Take(*store, Request(1));
    Take(*OpenStore("b"), Request(2));
    Return(*store, 1, 100, ReturnOutcome::kListed);
    MariadbSession root = Root();
    EXPECT_TRUE(store->FindTagsCached({"orders"}).ok());
    root.Execute(sql);
    return store;
  }
  [[nodiscard]] static std::string MaxId(const std::string& tag = "orders") {
    return Ask("SELECT max_id FROM leaf_alloc WHERE biz_tag = '" + tag + "'");
  }
  [[nodiscard]] static std::string Journal() {
    return Ask(
        "SELECT CONCAT(state, ' ', claimed, '/', returned, '/', abandoned) FROM idd_lease"
        " ORDER BY seq");
  }

  inline static harness::TempDir* dir_ = nullptr;
  inline static MariadbServer* server_ = nullptr;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mysql, StoreContract, MysqlStoreTest);

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
  const auto commits = [] {
    return std::stoi(
        Ask("SELECT variable_value FROM information_schema.global_status"
            " WHERE variable_name = 'Com_commit'"));
  };
  const int commits_before = commits();
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
    MariadbSession leaf = Root();
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

// As Leaf's own script makes it.
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
  // The column compares without case: another spelling is another tag, which is not there.
  EXPECT_EQ(store->FindTag("Leaf-Segment-Test").status().code(), Code::kNoSuchTag);
  EXPECT_EQ(store->TakeLease(Request(2, 0, 10, "LEAF-segment-test")).status().code(),
            Code::kNoSuchTag);
  EXPECT_EQ(MaxId("leaf-segment-test"), "2001");
  Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('new', 5, 10)");
  EXPECT_EQ(Take(*store, Request(3, 0, 10, "new")), (IdRange{5, 15}))
      << "new rows are tags at once";
}

TEST_F(MysqlStoreTest, StoreBelowTheMarkIsLiftedAndTold) {
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
  MariadbSession other = Root();
  other.Execute("BEGIN");
  other.Execute("UPDATE leaf_alloc SET max_id = max_id + 1 WHERE biz_tag = 'orders'");
  const auto leases = store->TakeLeases({Request(1), Request(2, 0, 10, "users")});
  ASSERT_TRUE(leases.ok()) << leases.status().message();
  EXPECT_EQ(leases.value()[0].status().code(), Code::kUnavailable);
  EXPECT_THAT(leases.value()[0].status().message(), HasSubstr("lock"));
  ASSERT_TRUE(leases.value()[1].ok()) << leases.value()[1].status().message();
  EXPECT_EQ(leases.value()[1].value().ids, (IdRange{1, 11}));
  other.Execute("ROLLBACK");
  EXPECT_EQ(Take(*store, Request(3)), (IdRange{1, 1001}));
}

TEST_F(MysqlStoreTest, ColumnThatCannotTakeANumberFailsItsOwnTagAlone) {
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
  EXPECT_THAT(leases.value()[1].status().message(), HasSubstr("Out of range"));
  EXPECT_TRUE(leases.value()[2].ok()) << leases.value()[2].status().message();
  EXPECT_EQ(MaxId("full"), "2147483600");
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
  // What was restored does not go back: others may have leased it meanwhile.
  Return(*store, 7, 100, ReturnOutcome::kAbandoned);
  EXPECT_EQ(Journal(), "abandoned 100/0/900");
  const Result<Reconciliation> again = store->Reconcile({.marks = {{"orders", 5000}}, .held = {}});
  EXPECT_FALSE(again.value().forgot_leases);
  EXPECT_TRUE(again.value().lifted.empty());
}

// --- hosts

TEST_F(MysqlStoreTest, SecondLiveHostUnderANameIsRefused) {
  const auto first = OpenWithOrders("web-1");
  const auto second = NewStore("web-1", "another boot");
  const Status status = second->Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("another host uses the name 'web-1'"));
  EXPECT_TRUE(OpenStore("web-1") != nullptr) << "its own next start";
  Sql("UPDATE idd_host SET last_seen = CURRENT_TIMESTAMP - INTERVAL 61 SECOND");
  std::this_thread::sleep_for(1100ms);  // it asks no more than once a second
  EXPECT_TRUE(second->Open().ok()) << "the first has been silent for a minute";
  const Status refused = first->TakeLease(Request(1)).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("another host took this one's name"));
  EXPECT_EQ(second->ListHosts().value().size(), 1U);
}

TEST_F(MysqlStoreTest, NameIsFreeAtOnceBehindACleanStop) {
  OpenStore("web-1").reset();
  const auto rebooted = NewStore("web-1", "another boot");
  const Status status = rebooted->Open();
  EXPECT_TRUE(status.ok()) << status.message();
}

// Two on copies of one state dir, on one kernel: nothing but their run tells them apart.
TEST_F(MysqlStoreTest, CloneThatStartsLaterHasTheNameAndTheOtherIsRefused) {
  const auto first = OpenWithOrders("web-1");
  const auto clone = OpenStore("web-1");
  std::this_thread::sleep_for(150ms);  // what was read is used so long
  EXPECT_EQ(first->TakeLease(Request(1)).status().code(), Code::kUnavailable);
  const Status refused = first->Open();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("another host uses the name 'web-1'"));
  EXPECT_EQ(Take(*clone, Request(2)), (IdRange{1, 1001}));
}

// A user with all rights may write to a server that is read-only.
TEST_F(MysqlStoreTest, ServerThatBecameReadOnlyIsLeftWhateverTheUserMay) {
  Root("").Execute("GRANT ALL ON *.* TO idd@localhost");
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  Root("").Execute("SET GLOBAL read_only = 1");
  std::this_thread::sleep_for(150ms);  // what was read is used so long
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
  EXPECT_LE(store->generation(), then + 1) << "at most once while nobody can know";
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

// idd, or the server, died while the tables were made.
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

TEST_F(MysqlStoreTest, ThousandsOfLeasesAreJournalledAgain) {
  const auto store = OpenWithOrders("a");
  HostMemory memory;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    memory.held.push_back({.token = TestToken(1 + i), .tag = "orders", .ids = {1 + i, 2 + i}});
  }
  const auto reconciliation = store->Reconcile(memory);
  ASSERT_TRUE(reconciliation.ok()) << reconciliation.status().message();
  EXPECT_EQ(reconciliation.value().restored.size(), 2000U);
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM idd_lease WHERE state = 'active'"), "2000");
}

// Restored from a dump under a connection that stays: the server is the same, the rows are not.
TEST_F(MysqlStoreTest, TablesSetBackUnderALiveConnectionLeaseNothingBeforeTheMarksAreTold) {
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

// As a dump leaves it that is restored within a second: each row that a host looks at is as it was,
// and the tables are others.
TEST_F(MysqlStoreTest, TableThatWasMadeAgainLeasesNothingBeforeTheMarksAreTold) {
  for (const std::string table : {"leaf_alloc", "idd_lease", "idd_fence", "idd_ceiling"}) {
    SetUp();
    const auto a = OpenWithOrders("a");
    const auto b = OpenStore("b");
    Take(*a, Request(1));
    std::this_thread::sleep_for(1100ms);  // of which second it is, a server knows
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

// leaf_alloc is there again, its rows are not yet.
TEST_F(MysqlStoreTest, TagThatIsMissingWhileADumpIsRestoredIsNoReasonToEndItsRing) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  std::this_thread::sleep_for(1100ms);
  Sql("CREATE TABLE copy LIKE leaf_alloc");
  Sql("DROP TABLE leaf_alloc");
  Sql("RENAME TABLE copy TO leaf_alloc");
  const auto records = store->FindTags({"orders"});
  EXPECT_EQ(records.status().code(), Code::kUnavailable) << "the tag is gone, or there";
  ASSERT_TRUE(store->Open().ok());
  Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('orders', 1, 1000)");
  server_->OpenFence();
  EXPECT_EQ(Take(*store, Request(2)), (IdRange{1001, 2001})) << "above its journal";
}

// A stopped process that goes on: it leases before it has looked.
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

// MariaDB keeps the time with each open instance of a table: sessions see one of the two.
TEST_F(MysqlStoreTest, TouchedFileOfATableStopsTheHostsOnceEach) {
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
  // b takes the word of a for it, and says the same from then on.
  EXPECT_EQ(b->Look(0).status().code(), Code::kUnavailable);
  const std::uint64_t generation = b->generation();
  ASSERT_TRUE(b->Open().ok());
  ASSERT_TRUE(b->Confirm().ok());
  EXPECT_EQ(Ask("SELECT COUNT(DISTINCT server) FROM idd_fence"), "1");
  EXPECT_EQ(b->generation(), generation);
  server_->OpenFence();
  EXPECT_EQ(Take(*b, Request(3)), (IdRange{1001, 2001}));
  EXPECT_EQ(Take(*a, Request(4)), (IdRange{2001, 3001}));
}

// What was read of the tag a moment ago still lists the range.
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

// Between two of an audit's lists another host may hand a lease back: max_id would lie below it.
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
    Result<Ledger> ledger = auditor->ReadLedger("orders");
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

TEST_F(MysqlStoreTest, ReaderSeesWhatIsThereAndIsNoHost) {
  const HostIdentity host{.id = "a", .boot_id = "boot", .instance = "another"};
  EXPECT_FALSE(OpenStoreReader(server_->Url(), host).value()->LedgerTags().ok());
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  const std::string hosts = Ask("SELECT CONCAT(host, run, beat) FROM idd_fence");
  {
    const Result<std::unique_ptr<StoreReader>> reader = OpenStoreReader(server_->Url(), host);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    Take(*store, Request(2));
    EXPECT_EQ(reader.value()->ReadLedger("orders").value().journal.size(), 2U);
    EXPECT_EQ(reader.value()->LedgerTags().value(), std::set<std::string>{"orders"});
    EXPECT_EQ(reader.value()->FindTag("orders").value().next_id, 2001U);
    LeaseFilter filter;
    filter.among.emplace();
    EXPECT_EQ(reader.value()->ListLeases(filter).value().size(), 0U);
  }
  EXPECT_EQ(Ask("SELECT CONCAT(host, run, beat) FROM idd_fence"), hosts);
  EXPECT_EQ(Ask("SELECT boot_id FROM idd_host"), "boot");
  Sql("SET GLOBAL read_only = 1");
  const Status refused = OpenStoreReader(server_->Url(), host).status();
  Sql("SET GLOBAL read_only = 0");
  EXPECT_EQ(refused.code(), Code::kUnavailable) << refused.message();
}

// As one whose COMMIT the server has refused, of a host that is stopped then.
TEST_F(MysqlStoreTest, TransactionThatIsLeftOpenLosesItsLocks) {
  static_cast<void>(OpenWithOrders("a"));
  const MysqlUrl url = ParseMysqlUrl(server_->Url()).value();
  const Result<std::unique_ptr<MysqlDb>> db = MysqlDb::Connect(url, url.endpoints.front());
  ASSERT_TRUE(db.ok()) << db.status().message();
  ASSERT_TRUE(db.value()->Query("START TRANSACTION").ok());
  ASSERT_TRUE(db.value()->Query("UPDATE leaf_alloc SET description = 'hung'").ok());
  MariadbSession other = Root();
  other.Execute("SET SESSION innodb_lock_wait_timeout = 120");
  EXPECT_NO_THROW(other.Execute("UPDATE leaf_alloc SET description = 'other'"));
  EXPECT_FALSE(db.value()->Query("COMMIT").ok());
  EXPECT_EQ(Ask("SELECT description FROM leaf_alloc"), "other");
}

// The server goes on with what it was sent by an idd that is dead by then. The next one takes the
// host's row over, and waits for what was asked for under it.
TEST_F(MysqlStoreTest, LeaseThatCommitsBehindItsDaemonsEndIsKnownToTheNext) {
  const auto dead = OpenWithOrders("a");
  MariadbSession other = Root();
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
  // Before the lock wait ends, and too late for a store that waits for nothing.
  std::this_thread::sleep_for(500ms);
  other.Execute("COMMIT");
  asks.join();
  takes_over.join();
  EXPECT_TRUE(is_abandoned);
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM idd_lease WHERE state = 'active'"), "0");
}

}  // namespace
}  // namespace idd::daemon
