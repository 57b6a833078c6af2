// SPDX-License-Identifier: Apache-2.0
//
// Placeholders, which SQLite binds and MySQL gets literals for. The store contracts run the rest of
// a session on both.
#include "sql/sql_session.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sql/mysql_db.h"

namespace idd::daemon {
namespace {

TEST(SqlSessionTest, PlaceholdersBecomeLiteralsThatAreReadAsTheyAre) {
  const SqlValues values = {std::uint64_t{7},
                            "it's ?1",
                            SqlValue(),
                            std::vector<std::uint64_t>{1, 2},
                            std::vector<std::string>{"a", "b"},
                            std::vector<std::string>()};
  EXPECT_EQ(MysqlDb::WithLiterals("?1, ?1+?3", values), "7, 7+NULL");
  EXPECT_EQ(MysqlDb::WithLiterals("(?2)", values), "(_utf8mb4 X'69742773203f31')");
  EXPECT_EQ(MysqlDb::WithLiterals("IN (?4) IN (?5) IN (?6)", values),
            "IN (1, 2) IN (_utf8mb4'a', _utf8mb4'b') IN (NULL)");
  EXPECT_EQ(MysqlDb::WithLiterals("?10", SqlValues(10, std::uint64_t{3})), "3");
}

TEST(SqlSessionTest, QueryOfMysqlKeepsItsFirstError) {
  MysqlResult result;
  result.rows.push_back({"1", "text", std::nullopt});
  result.rows.push_back({"2", "text", "-3"});
  MysqlQuery query(result, "db:3306");
  ASSERT_TRUE(query.Next());
  EXPECT_EQ(query.Uint(0), 1U);
  EXPECT_EQ(query.Text(1), "text");
  EXPECT_TRUE(query.IsNull(2));
  ASSERT_TRUE(query.Next());
  EXPECT_EQ(query.Uint(0), 2U);
  ASSERT_TRUE(query.Finish().ok());
  EXPECT_EQ(query.Uint(2), 0U);
  query.Reject(1, "a worker id");
  EXPECT_FALSE(query.Next());
  EXPECT_EQ(query.Finish().code(), Code::kInvalid);
  EXPECT_EQ(query.Finish().message(),
            "column 3 of a row at db:3306 holds -3 instead of an integer that is not negative");
}

TEST(SqlSessionTest, FailedQueryHasNoRow) {
  const std::unique_ptr<SqlQuery> query = FailedQuery({Code::kUnavailable, "it is not open"});
  EXPECT_FALSE(query->Next());
  EXPECT_EQ(query->Text(0), "");
  EXPECT_EQ(query->Finish().message(), "it is not open");
}

}  // namespace
}  // namespace idd::daemon
