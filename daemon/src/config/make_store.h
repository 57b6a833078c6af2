// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_CONFIG_MAKE_STORE_H_
#define IDD_DAEMON_CONFIG_MAKE_STORE_H_

#include <memory>
#include <string>

#include "idd/base/status.h"
#include "platform/host_id.h"
#include "store/store.h"

namespace idd::daemon {

// `url` as in --database. Makes no connection. Only kInvalid: the URL or the host id is wrong.
[[nodiscard]] Result<std::unique_ptr<Store>> MakeStore(const std::string& url,
                                                       const HostIdentity& host);

// Opens a separate connection to a database that a Store uses. It creates nothing and does not
// count as a sign of life of the host. kUnavailable: the database is missing, or is read-only and
// so may lag behind.
[[nodiscard]] Result<std::unique_ptr<StoreReader>> OpenStoreReader(const std::string& url,
                                                                   const HostIdentity& host);

// Opens a separate connection for the journal's upkeep (journal_store.h). Null: there is none for
// this database, and the store that takes leases does it.
[[nodiscard]] Result<std::unique_ptr<Store>> OpenJournalStore(const std::string& url,
                                                              const HostIdentity& host);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_CONFIG_MAKE_STORE_H_
