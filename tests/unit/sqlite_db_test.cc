// SPDX-License-Identifier: Apache-2.0
//
// SqliteDb keeps the statements that have ended for later queries of the same text, finds damage,
// and lets a long query pause.
#include "sql/sqlite_db.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

class SqliteDbTest : public testing::Test {
 protected:
  static constexpr SqliteFormat kFormat = {
      .what = "a test's database",
      .application_id = 7,
      .version = 1,
      .own_tables = "*",
      .schema = "CREATE TABLE t(name TEXT UNIQUE NOT NULL, n INTEGER NOT NULL) STRICT",
      .check_adoptable = [](SqliteDb&) { return Status::Ok(); },
      .check_complete = [](SqliteDb&) { return Status::Ok(); },
  };

  SqliteDbTest() {
    auto opened = SqliteDb::Open(dir_.path() + "/t.db", kFormat);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    db_ = std::move(opened).value();
  }

  void Insert(std::string_view name, std::uint64_t n) {
    EXPECT_TRUE(db_->Run("INSERT INTO t(name, n) VALUES(?1, ?2)", name, n).ok());
  }
  std::vector<std::string> NamesBelow(std::uint64_t n) {
    SqliteQuery query = db_->Query("SELECT name FROM t WHERE n < ?1 ORDER BY n", n);
    std::vector<std::string> names;
    while (query.Next()) names.push_back(query.Text(0));
    EXPECT_TRUE(query.Finish().ok());
    return names;
  }

  harness::TempDir dir_;
  std::unique_ptr<SqliteDb> db_;
};

TEST_F(SqliteDbTest, QueriesOfOneTextHaveTheirOwnArguments) {
  for (const auto& [name, n] : {std::pair("a", 1), std::pair("b", 2), std::pair("c", 3)}) {
    Insert(name, static_cast<std::uint64_t>(n));
  }
  EXPECT_EQ(NamesBelow(3), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(NamesBelow(2), (std::vector<std::string>{"a"}));
}

TEST_F(SqliteDbTest, ArgumentOfAnEarlierQueryIsNotUsedAgain) {
  const std::string sql = "SELECT ?1 IS NULL";
  EXPECT_TRUE(db_->Run(sql, std::string_view("set")).ok());
  SqliteQuery unbound = db_->Query(sql);
  ASSERT_TRUE(unbound.Next());
  EXPECT_EQ(unbound.Uint(0), 1U);
}

TEST_F(SqliteDbTest, TwoQueriesOfOneTextRunAtOnce) {
  Insert("a", 1);
  Insert("b", 2);
  const char* const sql = "SELECT name FROM t WHERE n >= ?1 ORDER BY n";
  SqliteQuery first = db_->Query(sql, std::uint64_t{1});
  ASSERT_TRUE(first.Next());
  {
    SqliteQuery second = db_->Query(sql, std::uint64_t{2});
    ASSERT_TRUE(second.Next());
    EXPECT_EQ(second.Text(0), "b");
    EXPECT_FALSE(second.Next());
  }
  EXPECT_EQ(first.Text(0), "a");
  ASSERT_TRUE(first.Next());
  EXPECT_EQ(first.Text(0), "b");
}

// A query that is not read to its end holds a read transaction, and so would a kept statement.
TEST_F(SqliteDbTest, QueryThatWasLeftEarlyHoldsNothing) {
  Insert("a", 1);
  Insert("b", 2);
  {
    SqliteQuery query = db_->Query("SELECT name FROM t ORDER BY n");
    ASSERT_TRUE(query.Next());
  }
  auto other = SqliteDb::Open(db_->path(), kFormat);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(other.value()->Run("UPDATE t SET n = 9 WHERE name = 'a'").ok());
  SqliteQuery again = db_->Query("SELECT name FROM t ORDER BY n");
  ASSERT_TRUE(again.Next());
  EXPECT_EQ(again.Text(0), "b");
}

TEST_F(SqliteDbTest, FailureOfAQueryIsNotTheNextOnes) {
  Insert("a", 1);
  EXPECT_FALSE(
      db_->Run("INSERT INTO t(name, n) VALUES(?1, ?2)", std::string("a"), std::uint64_t{2}).ok());
  Insert("b", 2);
  EXPECT_EQ(NamesBelow(9), (std::vector<std::string>{"a", "b"}));
}

// The journal of years is not read at a start; everything else is.
TEST_F(SqliteDbTest, DamageIsFoundOutsideTheBulkTableOfALargeFile) {
  ASSERT_TRUE(db_->Run("CREATE TABLE bulk(x TEXT)").ok());
  ASSERT_TRUE(db_->Run("CREATE TABLE \"it's odd\"(x TEXT)").ok());
  const auto damage = [this](const std::string& table) {
    std::uint64_t page = 0;
    {
      SqliteQuery root = db_->Query("SELECT rootpage FROM sqlite_schema WHERE name = ?1", table);
      ASSERT_TRUE(root.Next());
      page = root.Uint(0);
    }
    db_.reset();
    std::fstream file(dir_.path() + "/t.db", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>((page - 1) * 4096));
    file << "damaged";
    file.close();
    SqliteFormat format = kFormat;
    format.check_pages = false;
    auto opened = SqliteDb::Open(dir_.path() + "/t.db", format);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    db_ = std::move(opened).value();
  };
  const SqliteDb::BulkTable bulk{.name = "bulk", .of_files_above = 4096};
  EXPECT_TRUE(db_->CheckPages(bulk).ok());
  EXPECT_TRUE(db_->CheckPages().ok());
  damage("bulk");
  EXPECT_TRUE(db_->CheckPages(bulk).ok());
  EXPECT_FALSE(db_->CheckPages({.name = "bulk", .of_files_above = 1'000'000}).ok()) << "small";
  EXPECT_FALSE(db_->CheckPages().ok());
  damage("it's odd");
  EXPECT_FALSE(db_->CheckPages(bulk).ok());
}

// A thread that waits for this one's processor gets it soon.
TEST_F(SqliteDbTest, LongQueryOfAReaderPausesAgainAndAgain) {
  const auto reader = SqliteDb::OpenToRead(dir_.path() + "/t.db", kFormat);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const auto usage = [] {
    struct rusage used {};
    EXPECT_EQ(::getrusage(RUSAGE_THREAD, &used), 0);
    return used;
  };
  const auto processor_ms = [](const struct rusage& used) {
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
  };
  const struct rusage before = usage();
  SqliteQuery query = reader.value()->Query(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)"
      " SELECT COUNT(*) FROM n");
  ASSERT_TRUE(query.Next());
  EXPECT_EQ(query.Uint(0), 1'000'000U);
  const struct rusage after = usage();
  const auto worked_ms = processor_ms(after) - processor_ms(before);
  EXPECT_GT(worked_ms, 10);
  EXPECT_GE(after.ru_nvcsw - before.ru_nvcsw, worked_ms) << "not once in a millisecond";
}

TEST_F(SqliteDbTest, KeptStatementSeesAChangedTable) {
  Insert("a", 1);
  EXPECT_EQ(NamesBelow(9).size(), 1U);
  auto other = SqliteDb::Open(db_->path(), kFormat);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(other.value()->Run("ALTER TABLE t ADD COLUMN more TEXT").ok());
  ASSERT_TRUE(other.value()->Run("CREATE INDEX t_n ON t(n)").ok());
  Insert("b", 2);
  EXPECT_EQ(NamesBelow(9), (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace idd::daemon
