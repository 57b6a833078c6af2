// SPDX-License-Identifier: Apache-2.0
//
// Reading a long journal over MySQL.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "store/mysql/mysql_store.h"
#include "support/db_server.h"
#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

using harness::DbServer;
using harness::TempDir;

// More rows than one read returns, most of them of another tag.
TEST(MysqlJournalTest, NewestOfTheWantedTagsAreFoundHoweverFarBack) {
  const TempDir dir;
  DbServer server(dir);
  server.Start();
  Result<MysqlUrl> url = ParseMysqlUrl(server.Url());
  ASSERT_TRUE(url.ok()) << url.status().message();
  MysqlStore store(MysqlStoreOptions{std::move(url).value(), {"a", "boot", "state"}});
  ASSERT_TRUE(store.Open().ok());
  const auto fill = [&server](const std::string& tag, std::uint64_t from, std::uint64_t to) {
    server.Session("idd").Execute(
        "INSERT INTO idd_lease(token, biz_tag, host, base, `limit`) SELECT LPAD(seq, 32, '0'), '" +
        tag + "', 'a', seq, seq + 1 FROM " + harness::Numbers(from, to));
  };
  fill("orders", 1, 3);
  fill("users", 4, 25'000);
  fill("orders", 25'001, 25'001);
  LeaseFilter filter;
  filter.among = {"orders"};
  const auto firsts = [&store, &filter] {
    std::string found;
    const auto leases = store.ListLeases(filter);
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
  EXPECT_EQ(store.ListLeases(filter).value().size(), 20'000U);
}

}  // namespace
}  // namespace idd::daemon
