// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "host_id.h"
#include "store/mysql_store.h"
#include "store/mysql_url.h"
#include "store/sqlite_store.h"
#include "store/store.h"

namespace idd::daemon {
namespace {

struct StateName {
  LeaseState state;
  const char* name;
};
constexpr std::array<StateName, 4> kStateNames = {{{LeaseState::kActive, "active"},
                                                   {LeaseState::kExhausted, "exhausted"},
                                                   {LeaseState::kReturned, "returned"},
                                                   {LeaseState::kAbandoned, "abandoned"}}};
constexpr const char* kRing = "ring";
constexpr const char* kSocket = "socket";

// Of whichever class the URL names; `use` is called with it.
// Messages never repeat the URL: what follows the scheme may be a password.
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

const char* LeaseStateName(LeaseState state) noexcept {
  for (const StateName& known : kStateNames) {
    if (known.state == state) return known.name;
  }
  return "unknown";
}

std::optional<LeaseState> ParseLeaseState(std::string_view name) noexcept {
  for (const StateName& known : kStateNames) {
    if (known.name == name) return known.state;
  }
  return std::nullopt;
}

const char* TagAccessName(TagAccess access) noexcept {
  return access == TagAccess::kSocket ? kSocket : kRing;
}

std::optional<TagAccess> ParseTagAccess(std::string_view name) noexcept {
  if (name == kRing) return TagAccess::kRing;
  if (name == kSocket) return TagAccess::kSocket;
  return std::nullopt;
}

Result<Lease> Store::TakeLease(const LeaseRequest& request) {
  Result<LeaseResults> leases = TakeLeases({request});
  if (!leases.ok()) return leases.status();
  return std::move(leases.value().front());
}

Result<TagRecord> StoreReader::FindTag(const std::string& tag) {
  Result<TagResults> records = FindTags({tag});
  if (!records.ok()) return records.status();
  return std::move(records.value().front());
}

Result<Ledger> StoreReader::ReadLists(const std::string& tag) {
  Result<std::vector<LeaseRecord>> journal =
      ListLeases({.tag = tag, .host = std::nullopt, .state = std::nullopt});
  if (!journal.ok()) return journal.status();
  std::vector<TagRecord> tags;  // none if its row makes no sense: FindTag() says so to others
  Result<TagRecord> record = FindTag(tag);
  if (record.status().code() == Code::kUnavailable) return record.status();
  if (record.ok()) tags.push_back(std::move(record).value());
  Result<std::vector<ReturnedRange>> returned = ListReturned(tag);
  if (!returned.ok()) return returned.status();
  return Ledger{.journal = std::move(journal).value(),
                .tags = std::move(tags),
                .returned = std::move(returned).value()};
}

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

}  // namespace idd::daemon
