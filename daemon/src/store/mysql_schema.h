// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_SCHEMA_H_
#define IDD_DAEMON_STORE_MYSQL_SCHEMA_H_

#include <string>

#include "idd/base/status.h"
#include "store/mysql_db.h"

namespace idd::daemon {

// Makes idd's tables where there are none, if it may, and Leaf's if that is missing; checks what is
// there otherwise. Returns the incarnation. kUnavailable: they are missing and may not be made;
// kIncompatible: they are not what idd needs, and an operator must act.
[[nodiscard]] Result<std::string> EnsureMysqlSchema(MysqlDb& db, bool may_create);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_SCHEMA_H_
