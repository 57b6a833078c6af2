// SPDX-License-Identifier: Apache-2.0
//
// The tags of the SQLite allocator: creating, changing and reading them; and rows that other
// programs wrote.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "sqlite_test_support.h"
#include "store/store.h"

namespace idd::daemon {
namespace {

using shm::IdRange;
using shm::kMaxLimit;

// --- tags

TEST_F(SqliteStoreTest, NewTagHasItsNumbersAndDefaults) {
  const auto store = OpenStore("a");
  NewTag tag;
  tag.tag = "orders";
  const auto plain = store->CreateTag(tag);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain.value().next_id, 1U);
  EXPECT_EQ(plain.value().step, kDefaultStep);
  EXPECT_EQ(plain.value().max_id, kMaxLimit - 1);
  EXPECT_EQ(plain.value().mode, TagMode::kSegment);
  EXPECT_EQ(plain.value().description, "");
  EXPECT_EQ(plain.value().update_time.size(), 19U);
  const NewTag full = {"tickets", TagMode::kTicket, 7, 100, 200, "what it is for"};
  ASSERT_TRUE(store->CreateTag(full).ok());
  const auto tags = store->ListTags();
  ASSERT_TRUE(tags.ok());
  ASSERT_EQ(tags.value().size(), 2U);
  const TagRecord& ticket = tags.value()[1];
  EXPECT_EQ(ticket.tag, "tickets");
  EXPECT_EQ(ticket.mode, TagMode::kTicket);
  EXPECT_EQ(ticket.step, 7U);
  EXPECT_EQ(ticket.next_id, 100U);
  EXPECT_EQ(ticket.max_id, 200U);
  EXPECT_EQ(ticket.description, "what it is for");
}

TEST_F(SqliteStoreTest, TagsThatMakeNoSenseAreNotCreated) {
  const auto store = OpenStore("a");
  const std::vector<NewTag> wrong = {
      {"", TagMode::kSegment, 1000, {}, {}, ""},
      {"a\nb", TagMode::kSegment, 1000, {}, {}, ""},
      {"x", TagMode::kSegment, 0, {}, {}, ""},
      {"x", TagMode::kSegment, kMaxStep + 1, {}, {}, ""},
      {"x", TagMode::kSegment, 1000, 11, 10, ""},
      {"x", TagMode::kSegment, 1000, {}, kMaxLimit, ""},
      {"x", TagMode::kSegment, 1000, kMaxLimit, {}, ""},
      {"x", TagMode::kSegment, 1000, std::numeric_limits<std::uint64_t>::max(), {}, ""},
  };
  for (const NewTag& tag : wrong) {
    const Status status = store->CreateTag(tag).status();
    EXPECT_EQ(status.code(), Code::kInvalid) << status.message();
  }
  EXPECT_TRUE(store->ListTags().value().empty());
  EXPECT_TRUE(store->CreateTag({"x", TagMode::kSegment, 1000, kMaxLimit - 1000, {}, ""}).ok());
}

TEST_F(SqliteStoreTest, StepBeyondTheEndOfTheNumbersShortensTheLease) {
  const auto store = OpenStore("a");
  ASSERT_TRUE(store->CreateTag({"orders", TagMode::kSegment, 1000, kMaxLimit - 1, {}, ""}).ok());
  EXPECT_EQ(Take(*store, Request(1)), (IdRange{kMaxLimit - 1, kMaxLimit}));
  EXPECT_EQ(store->TakeLease(Request(2)).status().code(), Code::kOutOfIds);
}

TEST_F(SqliteStoreTest, AccessIsTheRingUnlessItIsSet) {
  const auto store = OpenWithOrders("a");
  EXPECT_EQ(store->FindTag("orders").value().access, TagAccess::kRing);
  Sql(path_, "INSERT INTO leaf_alloc(biz_tag, step) VALUES('leaf', 10)");
  EXPECT_EQ(store->FindTag("leaf").value().access, TagAccess::kRing) << "a row made for Leaf";
  NewTag tag;
  tag.tag = "guarded";
  tag.access = TagAccess::kSocket;
  const auto created = store->CreateTag(tag);
  ASSERT_TRUE(created.ok()) << created.status().message();
  EXPECT_EQ(created.value().access, TagAccess::kSocket);
  EXPECT_EQ(store->ListTags().value()[0].access, TagAccess::kSocket);
  for (const TagAccess access : {TagAccess::kRing, TagAccess::kSocket}) {
    EXPECT_EQ(ParseTagAccess(TagAccessName(access)), access);
  }
  EXPECT_FALSE(ParseTagAccess("Socket").has_value());
}

TEST_F(SqliteStoreTest, AccessIsChangedAloneAndKeptByOtherChanges) {
  const auto store = OpenWithOrders("a");
  Sql(path_, "INSERT INTO leaf_alloc(biz_tag, step) VALUES('leaf', 10)");
  for (const char* tag : {"orders", "leaf"}) {
    const auto changed = store->ChangeTag({tag, {}, {}, {}, TagAccess::kSocket});
    ASSERT_TRUE(changed.ok()) << changed.status().message();
    EXPECT_EQ(changed.value().access, TagAccess::kSocket);
    EXPECT_EQ(changed.value().max_id, kMaxLimit - 1);
    EXPECT_EQ(store->ChangeTag({tag, 50, 5000, {}, {}}).value().access, TagAccess::kSocket);
    EXPECT_EQ(store->ChangeTag({tag, {}, {}, {}, TagAccess::kRing}).value().access,
              TagAccess::kRing);
  }
  EXPECT_EQ(store->ChangeTag({"other", {}, {}, {}, TagAccess::kSocket}).status().code(),
            Code::kNoSuchTag);
  EXPECT_EQ(Sql(path_, "SELECT count(*) FROM idd_tag"), "2") << "policy of a tag that is not there";
}

TEST_F(SqliteStoreTest, RefillIsTheDefaultUnlessItIsSet) {
  const auto store = OpenWithOrders("a");
  Sql(path_, "INSERT INTO leaf_alloc(biz_tag, step) VALUES('leaf', 10)");
  for (const char* tag : {"orders", "leaf"}) {
    const TagRecord record = store->FindTag(tag).value();
    EXPECT_EQ(record.refill, (RefillSettings{.step = record.step})) << tag;
  }
  Sql(path_, "UPDATE leaf_alloc SET step = 900000000 WHERE biz_tag = 'leaf'");
  EXPECT_EQ(store->FindTag("leaf").value().refill.max_prefetch, 1'800'000'000U) << "two steps";
  NewTag tag;
  tag.tag = "set";
  tag.step = 100;
  tag.refill = {.rule = RefillRule::kLeaf,
                .max_step = 400,
                .max_prefetch = 5000,
                .outage_tolerance = std::chrono::seconds(30)};
  const RefillSettings wanted{.rule = RefillRule::kLeaf,
                              .step = 100,
                              .max_step = 400,
                              .max_prefetch = 5000,
                              .outage_tolerance = std::chrono::seconds(30)};
  const auto created = store->CreateTag(tag);
  ASSERT_TRUE(created.ok()) << created.status().message();
  EXPECT_EQ(created.value().refill, wanted);
  EXPECT_EQ(store->ChangeTag({"set", {}, 7000, "d", {}}).value().refill, wanted) << "kept";
}

TEST_F(SqliteStoreTest, RefillIsChangedFieldByField) {
  const auto store = OpenWithOrders("a");
  Sql(path_, "INSERT INTO leaf_alloc(biz_tag, step) VALUES('leaf', 10)");
  for (const char* tag : {"orders", "leaf"}) {
    TagChange change{.tag = tag};
    change.refill.outage_tolerance = std::chrono::seconds(0);
    ASSERT_TRUE(store->ChangeTag(change).ok());
    change = {.tag = tag};
    change.refill.max_prefetch = 100'000;
    const auto changed = store->ChangeTag(change);
    ASSERT_TRUE(changed.ok()) << changed.status().message();
    EXPECT_EQ(changed.value().refill.max_prefetch, 100'000U);
    EXPECT_EQ(changed.value().refill.outage_tolerance, std::chrono::seconds(0));
    EXPECT_EQ(changed.value().refill.max_step, kMaxStep);
    EXPECT_EQ(changed.value().refill.rule, RefillRule::kPromise);
  }
}

TEST_F(SqliteStoreTest, RefillThatMakesNoSenseIsRefusedAndNothingChanges) {
  const auto store = OpenWithOrders("a");  // step 1000
  const RefillSettings before = store->FindTag("orders").value().refill;
  const std::vector<RefillChange> wrong = {
      {.max_step = 999},
      {.max_step = 0},
      {.max_step = kMaxStep + 1},
      {.max_prefetch = 1999},
      {.max_prefetch = 0},
      {.max_prefetch = kMaxLimit + 1},
      {.outage_tolerance = kMaxOutageTolerance + std::chrono::seconds(1)}};
  for (const RefillChange& refill : wrong) {
    TagChange change{.tag = "orders", .description = "changed"};
    change.refill = refill;
    EXPECT_EQ(store->ChangeTag(change).status().code(), Code::kInvalid);
    NewTag tag;
    tag.tag = "other";
    tag.step = 1000;
    tag.refill = refill;
    EXPECT_EQ(store->CreateTag(tag).status().code(), Code::kInvalid);
  }
  EXPECT_EQ(store->FindTag("orders").value().refill, before);
  EXPECT_EQ(store->FindTag("orders").value().description, "");
  EXPECT_EQ(store->FindTag("other").status().code(), Code::kNoSuchTag);
}

// An operator who edits the table may write any value.
TEST_F(SqliteStoreTest, RefillColumnsAreCheckedWhenTheyAreRead) {
  const auto store = OpenWithOrders("a");
  for (const char* column : {"refill = 'both'", "max_step = 0", "max_step = -1", "max_prefetch = 1",
                             "outage_tolerance_s = 604801"}) {
    Sql(path_, std::string("PRAGMA ignore_check_constraints = 1; UPDATE idd_tag SET ") + column);
    const Status status = store->TakeLease(Request(1)).status();
    EXPECT_EQ(status.code(), Code::kInvalid) << column;
    EXPECT_NE(status.message().find("idd_tag."), std::string::npos) << status.message();
    Sql(path_,
        "UPDATE idd_tag SET refill = NULL, max_step = NULL, max_prefetch = NULL,"
        " outage_tolerance_s = NULL");
  }
  Sql(path_, "UPDATE idd_tag SET max_step = 5");
  EXPECT_EQ(store->FindTag("orders").value().refill.max_step, 1000U) << "the step at least";
}

// Falling back to the default could pass out a ring that was meant to be kept.
TEST_F(SqliteStoreTest, UnknownAccessServesNothingUntilItIsFixed) {
  const auto store = OpenWithOrders("a");
  ASSERT_NE(Sql(path_, "UPDATE idd_tag SET access = 'both'").find("CHECK"), std::string::npos);
  Sql(path_, "PRAGMA ignore_check_constraints = 1; UPDATE idd_tag SET access = 'both'");
  for (const Status& status :
       {store->FindTag("orders").status(), store->TakeLease(Request(1)).status()}) {
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_NE(status.message().find("idd_tag.access of tag 'orders'"), std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(store->ListTags().value().empty());
  ASSERT_TRUE(store->ChangeTag({"orders", {}, {}, {}, TagAccess::kRing}).ok());
  EXPECT_EQ(Take(*store, Request(2)), (IdRange{1, 1001}));
}

TEST_F(SqliteStoreTest, TagIsNotCreatedTwice) {
  const auto store = OpenWithOrders("a");
  NewTag tag;
  tag.tag = "orders";
  const Status status = store->CreateTag(tag).status();
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("already exists"), std::string::npos) << status.message();
}

TEST_F(SqliteStoreTest, ReturnedRangeAboveALoweredLargestIdIsNotTakenBack) {
  const auto a = OpenStore("a");
  CreateOrders(*a);
  Take(*a, Request(1));
  Sql(path_, "UPDATE leaf_alloc SET max_id = 2001");
  Return(*a, 1, 400, ReturnOutcome::kListed);
  Sql(path_, "UPDATE idd_tag SET max_id_allowed = 800");
  EXPECT_EQ(a->TakeLease(Request(2)).status().code(), Code::kOutOfIds);
}

TEST_F(SqliteStoreTest, RowOfADeletedTagMadeAgainByHandIsLifted) {
  const auto store = OpenWithOrders("a");
  Sql(path_, "UPDATE leaf_alloc SET max_id = 7000");  // leased by a Leaf server
  ASSERT_TRUE(store->DeleteTag("orders").ok());
  Sql(path_, "INSERT INTO leaf_alloc(biz_tag, step) VALUES('orders', 10)");
  EXPECT_EQ(Take(*store, Request(1)), (IdRange{7000, 8000}));
}

// --- rows that other programs wrote

struct BadRow {
  const char* name;
  const char* max_id;
  const char* step;
  const char* column;  // that the message must name
};

class BadRowTest : public SqliteStoreTest, public ::testing::WithParamInterface<BadRow> {};

TEST_P(BadRowTest, IsNamedNeverLeasedFromAndHidesNoOther) {
  const BadRow& row = GetParam();
  Sql(path_,
      "CREATE TABLE leaf_alloc(biz_tag VARCHAR PRIMARY KEY, max_id BIGINT, step INT,"
      " description VARCHAR, update_time TIMESTAMP);"
      "INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('good', 1, 10)");
  Sql(path_, std::string("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('orders', ") +
                 row.max_id + ", " + row.step + ")");
  const std::string before = Sql(path_, "SELECT quote(max_id)||quote(step) FROM leaf_alloc");
  const auto store = OpenStore("a");
  for (const Status& status :
       {store->TakeLease(Request(1)).status(), store->TakeLease(Request(1, 5000)).status(),
        store->FindTag("orders").status(), store->DeleteTag("orders")}) {
    EXPECT_EQ(status.code(), Code::kInvalid) << status.message();
    EXPECT_NE(status.message().find(row.column), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("'orders'"), std::string::npos) << status.message();
  }
  const auto tags = store->ListTags();
  ASSERT_TRUE(tags.ok()) << tags.status().message();
  ASSERT_EQ(tags.value().size(), 1U);
  EXPECT_EQ(tags.value()[0].tag, "good");
  EXPECT_EQ(Sql(path_, "SELECT quote(max_id)||quote(step) FROM leaf_alloc"), before);
  EXPECT_EQ(Journal(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Leaf, BadRowTest,
    ::testing::Values(
        BadRow{"NegativeMaxId", "-1", "10", "max_id"},
        BadRow{"LeastMaxId", "-9223372036854775808", "10", "max_id"},
        BadRow{"RealMaxId", "9.3e18", "10", "max_id"}, BadRow{"HalfMaxId", "1.5", "10", "max_id"},
        BadRow{"TextMaxId", "'abc'", "10", "max_id"}, BadRow{"BlobMaxId", "x'01'", "10", "max_id"},
        BadRow{"NullMaxId", "NULL", "10", "max_id"}, BadRow{"ZeroStep", "1", "0", "step"},
        BadRow{"NegativeStep", "1", "-1", "step"}, BadRow{"HugeStep", "1", "1000000000001", "step"},
        BadRow{"RealStep", "1", "1e30", "step"}, BadRow{"TextStep", "1", "'ten'", "step"},
        BadRow{"NullStep", "1", "NULL", "step"}),
    [](const ::testing::TestParamInfo<BadRow>& row) { return row.param.name; });

// The CHECK constraints exclude these values, but they can be written anyway, and must end no
// process.
TEST_F(SqliteStoreTest, InvalidPolicyIsNamedAndFixed) {
  const auto store = OpenWithOrders("a");
  ASSERT_TRUE(store->CreateTag({"users", TagMode::kSegment, 1000, {}, {}, ""}).ok());
  const auto expect_named = [&](const std::string& change, const std::string& column) {
    Sql(path_, "PRAGMA ignore_check_constraints = ON; UPDATE idd_tag SET " + change +
                   " WHERE biz_tag = 'orders'");
    for (const Status& status :
         {store->TakeLease(Request(1)).status(), store->FindTag("orders").status()}) {
      EXPECT_EQ(status.code(), Code::kInvalid) << status.message();
      EXPECT_NE(status.message().find(column), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("'orders'"), std::string::npos) << status.message();
    }
    EXPECT_EQ(store->ListTags().value().size(), 1U) << "it must not hide the other rows";
  };
  expect_named("max_id_allowed = 9223372036854775807", "idd_tag.max_id_allowed");
  expect_named("max_id_allowed = -1", "idd_tag.max_id_allowed");
  TagChange change;
  change.tag = "orders";
  change.max_id = 5000;
  EXPECT_TRUE(store->ChangeTag(change).ok());
  expect_named("mode = 'sequence'", "idd_tag.mode");
}

TEST_F(SqliteStoreTest, RowsOfIddsOwnTablesThatMakeNoSenseAreNamed) {
  const auto store = OpenWithOrders("a");
  const auto expect_named = [](const Status& status, const std::string& table) {
    EXPECT_EQ(status.code(), Code::kInvalid) << status.message();
    EXPECT_NE(status.message().find(table), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("'orders'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("limit"), std::string::npos) << status.message();
  };
  Take(*store, Request(1));
  Take(*store, Request(2));
  Sql(path_, "UPDATE leaf_alloc SET max_id = 5001");
  Return(*store, 1, 400, ReturnOutcome::kListed);
  Sql(path_,
      "PRAGMA ignore_check_constraints = ON; UPDATE idd_returned SET \"limit\" = 401;"
      "UPDATE idd_lease SET \"limit\" = 1001 WHERE state = 'active'");
  expect_named(store->TakeLease(Request(3)).status(), "idd_returned");
  expect_named(store->ListReturned(std::nullopt).status(), "idd_returned");
  expect_named(store->CloseLeases({Closure(2, LeaseState::kAbandoned, 0)}), "idd_lease");
  expect_named(store->ReturnTail(Closure(2, LeaseState::kReturned, 0)).status(), "idd_lease");
  EXPECT_TRUE(store->AbandonActive({}).value().empty()) << "the row stays as it is";
  expect_named(store->ListLeases({}).status(), "idd_lease");
}

TEST_F(SqliteStoreTest, StepOfABadRowIsFixedByChangingIt) {
  const auto store = OpenWithOrders("a");
  Sql(path_, "UPDATE leaf_alloc SET step = 0");
  EXPECT_EQ(store->TakeLease(Request(1)).status().code(), Code::kInvalid);
  ASSERT_TRUE(store->ChangeTag({"orders", 20, {}, {}}).ok());
  EXPECT_EQ(Take(*store, Request(1)), (IdRange{1, 1001}));
}

TEST_F(SqliteStoreTest, TriggerThatUndoesTheAdvanceLeasesNothing) {
  const auto store = OpenWithOrders("a");
  Sql(path_,
      "CREATE TRIGGER undo AFTER UPDATE OF max_id ON leaf_alloc BEGIN"
      " UPDATE leaf_alloc SET max_id = old.max_id WHERE biz_tag = new.biz_tag; END");
  const Status status = store->TakeLease(Request(1)).status();
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("trigger"), std::string::npos) << status.message();
  EXPECT_EQ(Journal(), "");
}

TEST_F(SqliteStoreTest, ColumnThatComparesWithoutCaseServesNoOtherTag) {
  Sql(path_,
      "CREATE TABLE leaf_alloc(biz_tag TEXT COLLATE NOCASE PRIMARY KEY, max_id INTEGER,"
      " step INTEGER, description TEXT, update_time TEXT);"
      "INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('ORDERS', 1, 10)");
  const auto store = OpenStore("a");
  EXPECT_EQ(store->TakeLease(Request(1)).status().code(), Code::kNoSuchTag);
  EXPECT_EQ(store->DeleteTag("orders").code(), Code::kNoSuchTag);
  EXPECT_EQ(Sql(path_, "SELECT biz_tag||max_id FROM leaf_alloc"), "ORDERS1");
}

}  // namespace
}  // namespace idd::daemon
