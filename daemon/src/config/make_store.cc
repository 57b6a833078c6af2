// SPDX-License-Identifier: Apache-2.0
#include "config/make_store.h"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "platform/host_id.h"
#include "sql/mysql_url.h"
#include "store/mysql/mysql_store.h"
#include "store/sqlite/sqlite_store.h"

namespace idd::daemon {
namespace {

// Makes a store of the class that the URL names and calls `use` with it. Messages never repeat the
// URL, because it may contain a password.
template <typename T, typename Use>
Result<T> WithStoreOf(const std::string& url, const HostIdentity& host, Use use) {
  if (Status status = CheckHostId(host.id); !status.ok()) return status;
  if (url.starts_with("mysql://")) {
    Result<MysqlUrl> parsed = ParseOwnMysqlUrl(url);
    if (!parsed.ok()) return parsed.status();
    return use(std::make_unique<MysqlStore>(
        MysqlStoreOptions{.url = std::move(parsed).value(), .host = host}));
  }
  if (!url.starts_with(kSqliteScheme)) {
    return Status(Code::kInvalid,
                  "the database URL has none of the known forms; use sqlite:PATH or "
                  "mysql://user@host/database");
  }
  std::string path = url.substr(kSqliteScheme.size());
  if (path.empty() || path.starts_with(":memory:") || path.find('\0') != std::string::npos) {
    return Status(Code::kInvalid,
                  "the database URL names no file; use sqlite:PATH, as in "
                  "sqlite:/var/lib/idd/idd.db");
  }
  return use(std::make_unique<SqliteStore>(SqliteStoreOptions{std::move(path), host.id, {}}));
}

}  // namespace

Result<std::unique_ptr<Store>> MakeStore(const std::string& url, const HostIdentity& host) {
  using Made = std::unique_ptr<Store>;
  return WithStoreOf<Made>(url, host, [](auto store) { return Made(std::move(store)); });
}

Result<std::unique_ptr<StoreReader>> OpenStoreReader(const std::string& url,
                                                     const HostIdentity& host) {
  using Made = std::unique_ptr<StoreReader>;
  return WithStoreOf<Made>(url, host, [](auto store) -> Result<Made> {
    if (Status status = store->OpenToRead(); !status.ok()) return status;
    return Made(std::move(store));
  });
}

Result<std::unique_ptr<Store>> OpenJournalStore(const std::string& url, const HostIdentity& host) {
  using Made = std::unique_ptr<Store>;
  return WithStoreOf<Made>(url, host, [](auto store) -> Result<Made> {
    if constexpr (std::is_same_v<typename decltype(store)::element_type, MysqlStore>) {
      if (Status status = store->OpenToKeepJournal(); !status.ok()) return status;
      return Made(std::move(store));
    } else {
      return Made();
    }
  });
}

}  // namespace idd::daemon
