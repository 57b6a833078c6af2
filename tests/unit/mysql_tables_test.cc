// SPDX-License-Identifier: Apache-2.0
//
// Which tables are the same as before, judged by their creation times.
#include "store/mysql/mysql_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "sql/mysql_db.h"

namespace idd::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MysqlTables TwoTables() {
  MysqlTables tables;
  tables.Add("leaf_alloc", 200);
  tables.Add("idd_lease", 100);
  return tables;
}

TEST(MysqlTablesTest, TimeIsNewOnce) {
  MysqlTables tables = TwoTables();
  EXPECT_FALSE(tables.Add("leaf_alloc", 200));
  EXPECT_TRUE(tables.Add("leaf_alloc", 201));
  EXPECT_FALSE(tables.Add("leaf_alloc", 201));
  EXPECT_FALSE(tables.Add("leaf_alloc", 200)) << "an instance that was open before";
}

TEST(MysqlTablesTest, HostsThatSawEitherTimeCallTheTablesTheSame) {
  MysqlTables early = TwoTables();
  MysqlTables late;
  late.Add("leaf_alloc", 207);
  late.Add("idd_lease", 100);
  EXPECT_EQ(early.Times(), " 100 200");
  EXPECT_EQ(late.Times(), " 100 207");
  EXPECT_FALSE(late.AddSeenElsewhere(early.Times()));
  EXPECT_TRUE(early.AddSeenElsewhere(late.Times()));
  EXPECT_FALSE(early.AddSeenElsewhere(late.Times()));
  EXPECT_EQ(early.Times(), late.Times());
  EXPECT_THAT(early.AreSame(), HasSubstr(MysqlDb::Text("leaf_alloc 200")));
  EXPECT_THAT(early.AreSame(), HasSubstr(MysqlDb::Text("leaf_alloc 207")));
}

TEST(MysqlTablesTest, WhatIsNoListOfTimesSaysNothing) {
  for (const std::string times : {"", " ", " 300", " 300 300 300", "300 300", " 300 300 ", " 300 x",
                                  " 300 -1", " 300  300", " 300 99999999999999999999", "\n1 2"}) {
    MysqlTables tables = TwoTables();
    EXPECT_FALSE(tables.AddSeenElsewhere(times)) << times;
    EXPECT_EQ(tables.Times(), " 100 200") << times;
  }
}

TEST(MysqlTablesTest, OldestOfManyTimesIsForgotten) {
  MysqlTables tables = TwoTables();
  for (std::uint64_t time = 300; time < 308; ++time) tables.Add("leaf_alloc", time);
  EXPECT_THAT(tables.AreSame(), Not(HasSubstr(MysqlDb::Text("leaf_alloc 200"))));
  EXPECT_THAT(tables.AreSame(), HasSubstr(MysqlDb::Text("leaf_alloc 300")));
  EXPECT_THAT(tables.AreSame(), HasSubstr(MysqlDb::Text("leaf_alloc 307")));
}

}  // namespace
}  // namespace idd::daemon
