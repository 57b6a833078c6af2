// SPDX-License-Identifier: Apache-2.0
//
// Leases, hand-backs, the journal and refusals of the SQLite allocator. sqlite_store_fault_test.cc
// covers broken files, disks, locks and processes.
#include "store/sqlite/sqlite_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/make_store.h"
#include "sqlite_test_support.h"
#include "store/store.h"
#include "support/journal_contract.h"
#include "support/store_contract.h"
#include "support/worker_contract.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using shm::kMaxLimit;

INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, StoreContract, SqliteStoreTest);
INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, JournalContract, SqliteStoreTest);
INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, WorkerContract, SqliteStoreTest);

// --- leasing

TEST_F(SqliteStoreTest, RowsMadeForLeafServeAsTheyStand) {
  Sql(path_,
      "CREATE TABLE leaf_alloc(biz_tag VARCHAR(128) NOT NULL DEFAULT '', max_id BIGINT(20)"
      " NOT NULL DEFAULT 1, step INT(11) NOT NULL, description VARCHAR(256) DEFAULT NULL,"
      " update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY(biz_tag));"
      "INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('orders', 2001, 500);"
      "CREATE TABLE beside(x); INSERT INTO beside VALUES(1)");
  const auto store = OpenStore("a");
  const auto tag = store->FindTag("orders");
  ASSERT_TRUE(tag.ok()) << tag.status().message();
  EXPECT_EQ(tag.value().mode, TagMode::kSegment);
  EXPECT_EQ(tag.value().next_id, 2001U);
  EXPECT_EQ(tag.value().step, 500U);
  EXPECT_EQ(tag.value().max_id, kMaxLimit - 1);
  EXPECT_EQ(Take(*store, Request(1, 0, 500)), (IdRange{2001, 2501}));
  EXPECT_EQ(Sql(path_, "SELECT x FROM beside"), "1");
  // A Leaf server continues with the same row.
  Sql(path_, "UPDATE leaf_alloc SET max_id = max_id + step");
  EXPECT_EQ(Take(*store, Request(2, 2501, 500)), (IdRange{3001, 3501}));
}

TEST_F(SqliteStoreTest, RequestsThatMakeNoSenseAreInvalid) {
  const auto store = OpenWithOrders("a");
  LeaseRequest request = Request(1);
  request.token = "short";
  EXPECT_EQ(store->TakeLease(request).status().code(), Code::kInvalid);
  EXPECT_EQ(store->TakeLease(Request(1, 0, 0)).status().code(), Code::kInvalid);
  EXPECT_EQ(store->TakeLease(Request(1, 0, kMaxStep + 1)).status().code(), Code::kInvalid);
  EXPECT_EQ(store->TakeLease(Request(1, kMaxLimit + 1)).status().code(), Code::kInvalid);
  EXPECT_EQ(MaxId(), "1");
}

TEST_F(SqliteStoreTest, UnknownTagIsNoSuchTagAndStaysUnknown) {
  const auto store = OpenStore("a");
  EXPECT_EQ(store->TakeLease(Request(1, 5000)).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(store->FindTag("orders").status().code(), Code::kNoSuchTag);
  EXPECT_EQ(Sql(path_, "SELECT count(*) FROM leaf_alloc"), "0");
}

TEST_F(SqliteStoreTest, MarkAtTheEndOfTheNumbersIsOutOfIdsAndNeverWraps) {
  const auto store = OpenWithOrders("a");
  EXPECT_EQ(store->TakeLease(Request(1, kMaxLimit)).status().code(), Code::kOutOfIds);
  EXPECT_EQ(MaxId(), "1");
  EXPECT_EQ(Take(*store, Request(2, kMaxLimit - 1)), (IdRange{kMaxLimit - 1, kMaxLimit}));
}

// --- a store that went backwards

TEST_F(SqliteStoreTest, MaxIdLoweredByHandIsLiftedAboveListedRanges) {
  const auto a = OpenWithLease("a");
  Sql(path_, "UPDATE leaf_alloc SET max_id = max_id + 1000");  // a Leaf server
  Return(*a, 1, 400, ReturnOutcome::kListed);
  Sql(path_, "UPDATE leaf_alloc SET max_id = 1");
  const auto b = OpenStore("b");
  EXPECT_EQ(Take(*b, Request(2)), (IdRange{1001, 2001}));
}

// The store cannot distinguish a mark that a crash left after a hand-back from a backup that was
// made after a hand-back and restored later: both differ from the truth only in the host's mark. In
// the second case the ids were handed out, so the store is lifted in both; in the first case the
// price is a gap.
TEST_F(SqliteStoreTest, MarkLeftAboveAHandBackIsBelievedAndLifts) {
  const auto store = OpenWithLease("a");
  Return(*store, 1, 400, ReturnOutcome::kLowered);
  const auto lease = store->TakeLease(Request(2, 1001));
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease.value().ids, (IdRange{1001, 2001}));
  EXPECT_EQ(lease.value().lifted_from, 401U);
}

TEST_F(SqliteStoreTest, BackupMadeAfterAHandBackDoesNotLeaseTheSameIdsAgain) {
  auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  Return(*store, 1, 0, ReturnOutcome::kLowered);
  store.reset();
  std::filesystem::copy_file(path_, dir_.File("backup"));
  store = OpenStore("a");
  const IdRange handed_out = Take(*store, Request(2));
  store.reset();
  std::filesystem::rename(dir_.File("backup"), path_);
  store = OpenStore("a");
  // The backup's journal says that [1, 1001) was handed back, and that is the mark's limit.
  const IdRange next = Take(*store, Request(3, handed_out.limit));
  ExpectDisjoint({handed_out, next});
}

TEST_F(SqliteStoreTest, BackupWithAListedRangeDoesNotLeaseItAgain) {
  auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  Take(*OpenStore("b"), Request(2));
  Return(*store, 1, 400, ReturnOutcome::kListed);
  store.reset();
  std::filesystem::copy_file(path_, dir_.File("backup"));
  store = OpenStore("a");
  const IdRange handed_out = Take(*store, Request(3, 401));  // the mark was lowered to 401
  EXPECT_EQ(handed_out, (IdRange{401, 1001}));
  store.reset();
  std::filesystem::rename(dir_.File("backup"), path_);
  store = OpenStore("a");
  const IdRange next = Take(*store, Request(4, handed_out.limit));
  ExpectDisjoint({handed_out, next});
}

// --- what this host has recorded and the data set may lack

// The copy is older than a stop: the tail of the lease was handed back and leased again.
TEST_F(SqliteStoreTest, ActiveLeaseOfAnOlderCopySharesNoIdsWithTheLeaseThatFollowedIt) {
  const auto store = OpenWithLease("a");
  ASSERT_TRUE(store->Reconcile({.marks = {{"orders", 1401}}, .held = {Held(7, {401, 1401})}}).ok());
  EXPECT_TRUE(store->AbandonActive({TestToken(7)}).value().empty());
  EXPECT_EQ(Journal(), "returned 0/600/400,active 0/0/0");
  EXPECT_EQ(Take(*store, Request(8, 1401)), (IdRange{1401, 2401}));
}

// Two data sets have granted the same ids: the audit has to report that.
TEST_F(SqliteStoreTest, OwnLeaseOfAnotherDataSetIsNotTakenForAPredecessor) {
  const auto store = OpenWithLease("a");
  HostMemory memory{.marks = {}, .held = {Held(7, {401, 1401})}, .from_other_data_set = true};
  ASSERT_TRUE(store->Reconcile(memory).ok());
  EXPECT_EQ(Journal(), "active 0/0/0,active 0/0/0");
}

TEST_F(SqliteStoreTest, RangeThatAnOlderCopyListsIsNotListedBesideItsLease) {
  const auto store = OpenWithLease("a");
  Take(*store, Request(2));
  Return(*store, 1, 400, ReturnOutcome::kListed);
  ASSERT_TRUE(store->Reconcile({.marks = {}, .held = {Held(7, {401, 1001})}}).ok());
  EXPECT_TRUE(store->ListReturned(std::nullopt).value().empty());
}

TEST_F(SqliteStoreTest, JournalIsListedInOrderAndFiltered) {
  const auto a = OpenWithOrders("a");
  const auto b = OpenStore("b");
  NewTag users;
  users.tag = "users";
  ASSERT_TRUE(a->CreateTag(users).ok());
  Take(*a, Request(9));
  Take(*b, Request(8));
  LeaseRequest request = Request(7);
  request.tag = "users";
  Take(*a, request);
  ASSERT_TRUE(a->CloseLeases({Closure(9, LeaseState::kExhausted, 1000)}).ok());
  const auto tokens = [&](const LeaseFilter& filter) {
    std::string joined;
    const auto leases = a->ListLeases(filter);
    EXPECT_TRUE(leases.ok()) << leases.status().message();
    for (const LeaseRecord& lease : leases.value()) joined += lease.token.back();
    return joined;
  };
  EXPECT_EQ(tokens({}), "987");
  EXPECT_EQ(tokens({"orders", std::nullopt, std::nullopt}), "98");
  EXPECT_EQ(tokens({std::nullopt, "a", std::nullopt}), "97");
  EXPECT_EQ(tokens({std::nullopt, std::nullopt, LeaseState::kActive}), "87");
  EXPECT_EQ(tokens({"orders", "a", LeaseState::kActive}), "");
}

TEST_F(SqliteStoreTest, HostsAreListedWithTheTimeTheyWereSeen) {
  const auto b = OpenStore("b");
  const auto a = OpenStore("a");
  Sql(path_, "UPDATE idd_host SET first_seen = '2001-01-01 00:00:00', last_seen = first_seen");
  ASSERT_TRUE(a->hosts()->Introduce({}).ok());
  const auto hosts = a->ListHosts();
  ASSERT_TRUE(hosts.ok());
  ASSERT_EQ(hosts.value().size(), 2U);
  EXPECT_EQ(hosts.value()[0].host, "a");
  EXPECT_EQ(hosts.value()[0].first_seen, "2001-01-01 00:00:00");
  EXPECT_GT(hosts.value()[0].last_seen, "2020");
  EXPECT_EQ(hosts.value()[1].host, "b");
}

TEST_F(SqliteStoreTest, LeaseStatesHaveNames) {
  for (const LeaseState state : {LeaseState::kActive, LeaseState::kExhausted, LeaseState::kReturned,
                                 LeaseState::kAbandoned}) {
    EXPECT_EQ(ParseLeaseState(LeaseStateName(state)), state);
  }
  EXPECT_FALSE(ParseLeaseState("Active").has_value());
}

// --- MakeStore

TEST_F(SqliteStoreTest, UrlOfAFileMakesAStoreWithoutTouchingIt) {
  const auto store = MakeStore("sqlite:" + path_, {"a", "boot", "instance"});
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ(store.value()->DisplayUrl(), "sqlite:" + path_);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(store.value()->ListTags().status().code(), Code::kUnavailable) << "not open yet";
  EXPECT_TRUE(store.value()->Open().ok());
}

TEST_F(SqliteStoreTest, OtherUrlsAreInvalidAndTheirPasswordsAreNotRepeated) {
  for (const char* url : {"", "sqlite:", "sqlite::memory:", "/var/lib/idd.db", "file:x",
                          "pgsql://idd:secret@db/idd"}) {
    const Status status = MakeStore(url, {"a", "boot", "instance"}).status();
    EXPECT_EQ(status.code(), Code::kInvalid) << url;
    EXPECT_NE(status.message().find("sqlite:PATH"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("secret"), std::string::npos) << status.message();
  }
  EXPECT_EQ(MakeStore("mysql://x/y", {"a", "boot", "instance"}).status().code(), Code::kInvalid);
  EXPECT_TRUE(MakeStore("mysql://idd:secret@db/idd", {"a", "boot", "instance"}).ok());
  EXPECT_EQ(MakeStore("sqlite:" + path_, {"", "boot", "instance"}).status().code(), Code::kInvalid);
}

TEST_F(SqliteStoreTest, ReaderSeesWhatIsThereAndWritesNothing) {
  const auto open = [this] {
    return OpenStoreReader("sqlite:" + path_, {.id = "reader", .boot_id = "", .instance = ""});
  };
  EXPECT_EQ(open().status().code(), Code::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto store = OpenStore("a");
  CreateOrders(*store);
  Take(*store, Request(1));
  const Result<std::unique_ptr<StoreReader>> reader = open();
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  Take(*store, Request(2));
  EXPECT_EQ(reader.value()->ReadLedger("orders", 100).value().journal.size(), 2U);
  EXPECT_EQ(reader.value()->LedgerTags().value(), std::set<std::string>{"orders"});
  EXPECT_EQ(reader.value()->ListHosts().value().size(), 1U);
  LeaseFilter filter;
  filter.among = {"orders", "users"};
  EXPECT_EQ(reader.value()->ListLeases(filter).value().size(), 2U);
  filter.among = {"users"};
  EXPECT_EQ(reader.value()->ListLeases(filter).value().size(), 0U);
  filter.among.emplace();
  EXPECT_EQ(reader.value()->ListLeases(filter).value().size(), 0U);
}

}  // namespace
}  // namespace idd::daemon
