// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_MYSQL_SCHEMA_H_
#define IDD_DAEMON_STORE_MYSQL_MYSQL_SCHEMA_H_

#include <string>

#include "idd/base/status.h"
#include "sql/mysql_db.h"

namespace idd::daemon {

struct MysqlDataSet {
  std::string incarnation;
  bool is_new = false;  // made by this call, by another host's at the same time perhaps
};

// Makes idd's tables where there are none, if it may, and Leaf's if that is missing; checks what is
// there otherwise. kUnavailable: they are missing and may not be made;
// kIncompatible: they are not what idd needs, and an operator must act.
[[nodiscard]] Result<MysqlDataSet> EnsureMysqlSchema(MysqlDb& db, bool may_create);

// Each of idd's tables is there and can roll back. kIncompatible says which is not.
[[nodiscard]] Status CheckMysqlTables(MysqlDb& db);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_MYSQL_SCHEMA_H_
