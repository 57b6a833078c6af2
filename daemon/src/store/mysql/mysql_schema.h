// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_MYSQL_SCHEMA_H_
#define IDD_DAEMON_STORE_MYSQL_MYSQL_SCHEMA_H_

#include <cstdint>
#include <string>

#include "idd/base/status.h"
#include "sql/mysql_db.h"

namespace idd::daemon {

struct MysqlDataSet {
  std::string incarnation;
  std::uint64_t largest_max_id = 0;  // that leaf_alloc's column can store
};

// Makes idd's tables if they are missing and `may_create` allows it, and Leaf's if it is missing;
// otherwise checks the tables that exist. kUnavailable: they are missing and may not be made;
// kIncompatible: they are not what idd needs, and an operator must act.
[[nodiscard]] Result<MysqlDataSet> EnsureMysqlSchema(MysqlDb& db, bool may_create);

// Whether a host has finished making the tables.
[[nodiscard]] Result<bool> HasMysqlSchema(MysqlDb& db);

// Checks that each of idd's tables exists and can roll back. kIncompatible names the one that
// fails.
[[nodiscard]] Status CheckMysqlTables(MysqlDb& db);

// Checks that leaf_alloc has Leaf's columns and one row for each tag. Returns the largest number
// that its column max_id can store.
[[nodiscard]] Result<std::uint64_t> CheckLeafAlloc(MysqlDb& db);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_MYSQL_SCHEMA_H_
