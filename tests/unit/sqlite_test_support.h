// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests on real SQLite files: another program's connection, processes. Never call
// ReadFile() on a file that this process has open in SQLite: closing a descriptor drops its locks.
#ifndef IDD_TESTS_UNIT_SQLITE_TEST_SUPPORT_H_
#define IDD_TESTS_UNIT_SQLITE_TEST_SUPPORT_H_

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "store/sqlite/sqlite_store.h"
#include "support/store_case.h"
#include "support/temp_dir.h"

namespace idd::daemon {

using harness::ReadFile;
using harness::TempDir;
using harness::WriteFile;

// Runs SQL as another program would, and returns the first column of the rows, joined with ",". On
// an error it returns "error: ...".
inline std::string Sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  std::string answer;
  char* error = nullptr;
  sqlite3_open(path.c_str(), &db);
  sqlite3_busy_timeout(db, 10000);
  const auto add = [](void* out, int, char** values, char**) {
    std::string& text = *static_cast<std::string*>(out);
    if (!text.empty()) text += ",";
    text += values[0] == nullptr ? "NULL" : values[0];
    return 0;
  };
  if (sqlite3_exec(db, sql.c_str(), add, &answer, &error) != SQLITE_OK) {
    answer = std::string("error: ") + (error == nullptr ? "" : error);
  }
  sqlite3_free(error);
  sqlite3_close(db);
  return answer;
}

// Runs `body` in a child process and returns its exit status; -1 if a signal ended it.
inline int InChild(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) std::abort();
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Repeats `operation` while other processes keep the file locked for longer than SQLite waits, as
// happens on a busy disk. kBusy is a certain refusal: nothing was done.
template <typename Operation>
auto WhenUnlocked(Operation operation) {
  const Deadline deadline = Deadline::After(std::chrono::minutes(1));
  const auto is_locked = [](const auto& outcome) {
    if constexpr (std::is_same_v<std::decay_t<decltype(outcome)>, Status>) {
      return outcome.code() == Code::kUnavailable;
    } else {
      return outcome.status().code() == Code::kUnavailable;
    }
  };
  auto outcome = operation();
  while (is_locked(outcome) && !deadline.passed()) outcome = operation();
  return outcome;
}

// A database with the tag "orders" (first id 1, step 1000) and stores on it.
class SqliteStoreTest : public StoreCase {
 protected:
  using AtPoint = std::function<void(const char*)>;

  [[nodiscard]] std::unique_ptr<SqliteStore> NewStore(const std::string& host,
                                                      AtPoint at_point = {}) const {
    return std::make_unique<SqliteStore>(SqliteStoreOptions{path_, host, std::move(at_point)});
  }
  [[nodiscard]] std::unique_ptr<SqliteStore> OpenStore(const std::string& host,
                                                       AtPoint at_point = {}) const {
    std::unique_ptr<SqliteStore> store = NewStore(host, std::move(at_point));
    const Status status = WhenUnlocked([&store] { return store->Open(); });
    EXPECT_TRUE(status.ok()) << status.message();
    return store;
  }
  [[nodiscard]] std::unique_ptr<SqliteStore> OpenWithOrders(const std::string& host) const {
    std::unique_ptr<SqliteStore> store = OpenStore(host);
    CreateOrders(*store);
    return store;
  }
  // The host has leased the first step.
  [[nodiscard]] std::unique_ptr<SqliteStore> OpenWithLease(const std::string& host) const {
    std::unique_ptr<SqliteStore> store = OpenWithOrders(host);
    Take(*store, Request(1));
    return store;
  }

  void Execute(const std::string& sql) const { EXPECT_EQ(Sql(path_, sql), ""); }
  [[nodiscard]] std::string Ask(const std::string& sql) const { return Sql(path_, sql); }
  [[nodiscard]] std::uint64_t AdvanceAsLeaf() const {
    return std::stoull(Ask(
        "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'orders' RETURNING max_id"));
  }
  static shm::IdRange TakeWhenUnlocked(Store& store, const LeaseRequest& request) {
    const Result<Lease> lease = WhenUnlocked([&] { return store.TakeLease(request); });
    EXPECT_TRUE(lease.ok()) << lease.status().message();
    return lease.ok() ? lease.value().ids : shm::IdRange{};
  }
  [[nodiscard]] std::string MaxId() const {
    return Ask("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'orders'");
  }
  // "state claimed/returned/abandoned" for every lease.
  [[nodiscard]] std::string Journal() const {
    return Sql(path_,
               "SELECT state||' '||claimed||'/'||returned||'/'||abandoned FROM idd_lease"
               " ORDER BY seq");
  }

  TempDir dir_;
  const std::string path_ = dir_.File("idd.db");
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SQLITE_TEST_SUPPORT_H_
