// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_INTEGRATION_MYSQL_STORE_FIXTURE_H_
#define IDD_TESTS_INTEGRATION_MYSQL_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "store/mysql/mysql_store.h"
#include "support/db_server.h"
#include "support/leasable.h"
#include "support/store_case.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {

// One server for all cases, each with an empty database.
class MysqlStoreTest : public StoreCase {
 protected:
  static void SetUpTestSuite() {
    dir_ = new harness::TempDir;
    server_ = new harness::DbServer(*dir_);
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

  [[nodiscard]] static harness::DbSession Root(const std::string& database = "idd") {
    return server_->Session(database);
  }
  static void Sql(const std::string& sql) { Root().Execute(sql); }
  static void Execute(const std::string& sql) { Sql(sql); }
  [[nodiscard]] static std::string Ask(const std::string& sql) { return Root().Query(sql); }

  [[nodiscard]] static std::uint64_t AdvanceAsLeaf() {
    harness::DbSession leaf = Root();
    leaf.Execute("BEGIN");
    leaf.Execute("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'orders'");
    const std::string max_id = leaf.Query("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'orders'");
    leaf.Execute("COMMIT");
    return std::stoull(max_id);
  }
  static shm::IdRange TakeWhenUnlocked(Store& store, const LeaseRequest& request) {
    return Take(store, request);
  }

  // The writable columns, separated by commas.
  [[nodiscard]] static std::string Columns(const std::string& table) {
    return Ask(
        "SELECT GROUP_CONCAT('`', column_name, '`') FROM information_schema.columns"
        " WHERE table_schema = 'idd' AND COALESCE(generation_expression, '') = '' AND table_name = "
        "'" +
        table + "'");
  }

  [[nodiscard]] static std::unique_ptr<MysqlStore> NewStore(const std::string& host,
                                                            const std::string& boot = "boot",
                                                            std::uint64_t run_number = 0) {
    Result<MysqlUrl> url = ParseMysqlUrl(server_->Url());
    return std::make_unique<MysqlStore>(MysqlStoreOptions{std::move(url).value(),
                                                          {.id = host,
                                                           .boot_id = boot,
                                                           .instance = "state-of-" + host,
                                                           .disk = "0000000" + host.substr(0, 1),
                                                           .run_number = run_number}});
  }
  [[nodiscard]] static std::unique_ptr<MysqlStore> OpenStore(const std::string& host) {
    std::unique_ptr<MysqlStore> store = NewStore(host);
    // The store gives up after some seconds on a server that a busy machine delays.
    Status status;
    EXPECT_TRUE(harness::WaitUntil(harness::Patience(std::chrono::seconds(120)), [&] {
      status = store->Open();
      return status.code() != Code::kUnavailable;
    }));
    EXPECT_TRUE(status.ok()) << status.message();
    // Only the cases that say so are about terms and ceilings.
    MakeLeasable(*store, *server_);
    return store;
  }
  [[nodiscard]] static std::unique_ptr<MysqlStore> OpenWithOrders(const std::string& host) {
    std::unique_ptr<MysqlStore> store = OpenStore(host);
    CreateOrders(*store);
    return store;
  }
  // The host has leased the first step.
  [[nodiscard]] static std::unique_ptr<MysqlStore> OpenWithLease(const std::string& host) {
    std::unique_ptr<MysqlStore> store = OpenWithOrders(host);
    Take(*store, Request(1));
    return store;
  }
  // A store that has just read that one of its ranges is listed; then `sql` is executed.
  [[nodiscard]] static std::unique_ptr<MysqlStore> OpenWithAListedRangeAndThen(
      const std::string& sql) {
    std::unique_ptr<MysqlStore> store = OpenWithLease("a");
    Take(*OpenStore("b"), Request(2));
    Return(*store, 1, 100, ReturnOutcome::kListed);
    harness::DbSession root = Root();
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
  inline static harness::DbServer* server_ = nullptr;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_INTEGRATION_MYSQL_STORE_FIXTURE_H_
