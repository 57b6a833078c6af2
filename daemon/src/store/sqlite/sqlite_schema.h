// SPDX-License-Identifier: Apache-2.0
//
// The tables of the SQLite allocator. Other programs may only rely on Leaf's table leaf_alloc;
// idd's own tables begin with idd_.
#ifndef IDD_DAEMON_STORE_SQLITE_SQLITE_SCHEMA_H_
#define IDD_DAEMON_STORE_SQLITE_SQLITE_SCHEMA_H_

#include "idd/base/status.h"
#include "sql/sqlite_db.h"

namespace idd::daemon {

// Adopts a file in which Leaf's users have made leaf_alloc, whatever else is in it, as long as no
// table begins with idd_ and neither application_id nor user_version is another program's.
[[nodiscard]] const SqliteFormat& AllocatorFormat();

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQLITE_SQLITE_SCHEMA_H_
