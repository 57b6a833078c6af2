// SPDX-License-Identifier: Apache-2.0
//
// `lease.list`: the journal.
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

// The largest number of leases that a request may ask for, and the default.
constexpr std::uint64_t kMaxListedLeases = 1'000'000;
constexpr std::uint64_t kDefaultListedLeases = 10'000;

struct ListedLeases {
  std::vector<LeaseRecord> leases;
  HostNames names;
};

using LiveLeases = std::map<std::string, LeaseClosure, std::less<>>;

// `live` has what the journal does not know yet of leases that are in a ring.
std::string LeasesText(const ListedLeases& listed, const LiveLeases& live, std::uint64_t limit) {
  const std::vector<LeaseRecord>& leases = listed.leases;
  const bool is_cut = leases.size() > limit;
  Json array = Json::array();
  for (std::size_t i = is_cut ? 1 : 0; i < leases.size(); ++i) {
    LeaseRecord lease = leases[i];
    const auto use = live.find(lease.token);
    if (lease.state == LeaseState::kActive && use != live.end()) {
      lease.claimed = use->second.claimed;
    }
    array.push_back(LeaseJson(lease, listed.names));
  }
  // Where the next page begins.
  const Json before = is_cut ? Json(leases[1].seq) : Json(nullptr);
  return Dump({{"leases", std::move(array)}, {"truncated", is_cut}, {"before", before}});
}

Result<LeaseFilter> ReadLeaseFilter(const AdminRequest& request) {
  const auto tag = TextField(request, "tag");
  const auto host = TextField(request, "host");
  const auto state = TextField(request, "state");
  const auto limit = NumberField(request, "limit");
  const auto since = TimeField(request, "since");
  const auto before = NumberField(request, "before");
  for (const Status& status : {tag.status(), host.status(), state.status(), limit.status(),
                               since.status(), before.status()}) {
    if (!status.ok()) return status;
  }
  const std::uint64_t newest = limit.value().value_or(kDefaultListedLeases);
  if (newest == 0 || newest > kMaxListedLeases) {
    return Status(Code::kInvalid,
                  "'limit' must be 1 to " + std::to_string(kMaxListedLeases) + " leases");
  }
  LeaseFilter filter{.tag = tag.value(), .host = host.value(), .state = std::nullopt};
  filter.newest = newest + 1;
  filter.since = since.value();
  filter.before = before.value();
  if (state.value().has_value()) {
    filter.state = ParseLeaseState(*state.value());
    if (!filter.state.has_value()) {
      return Status(Code::kInvalid, "unknown lease state '" + *state.value() +
                                        "'; use active, exhausted, returned or abandoned");
    }
  }
  return filter;
}

// The newest of the leases that the peer may see, however many other leases are newer.
Result<ListedLeases> ReadLeases(StoreReader& store, LeaseFilter filter, const PeerRights& rights) {
  const Result<std::vector<HostRecord>> hosts = store.ListHosts();
  if (!hosts.ok()) return hosts.status();
  if (filter.host.has_value()) {
    Result<std::string> id = FindHostId(hosts.value(), *filter.host);
    if (!id.ok()) return id.status();
    filter.host = std::move(id).value();
  }
  if (filter.tag.has_value()) {
    // The leases of a snowflake tag are those of its worker ids.
    Result<std::vector<std::string>> rows = store.RowsOf(*filter.tag);
    if (!rows.ok()) return rows.status();
    if (rows.value().size() > 1) {
      filter.among = std::move(rows).value();
      filter.tag.reset();
    }
  } else if (!rights.AdministersAll()) {
    Result<std::set<std::string>> tags = store.LedgerTags();
    if (!tags.ok()) return tags.status();
    std::erase_if(tags.value(),
                  [&rights](const std::string& tag) { return !rights.MaySee(ServedName(tag)); });
    filter.among.emplace(tags.value().begin(), tags.value().end());
  }
  Result<std::vector<LeaseRecord>> leases = store.ListLeases(filter);
  if (!leases.ok()) return leases.status();
  return ListedLeases{std::move(leases).value(), NamesOf(hosts.value())};
}

}  // namespace

void ListLeases(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
                AdminDone done) {
  Result<LeaseFilter> filter = ReadLeaseFilter(request);
  if (!filter.ok()) return Fail(done, filter.status());
  context.reports.Begin(
      [&context, rights, filter = std::move(filter).value(), done = std::move(done)] {
        // The filter asks for one lease more than the limit, which shows whether there are more.
        const std::uint64_t limit = filter.newest - 1;
        context.Read<ListedLeases>(
            [filter, rights](StoreReader& store) { return ReadLeases(store, filter, rights); },
            [&context, limit, done](Result<ListedLeases> leases) {
              if (!leases.ok()) {
                context.reports.Finish();
                return Fail(done, leases.status());
              }
              context.reports.Write(
                  [limit, leases = std::move(leases).value(), live = context.tags.LiveLeases()] {
                    return LeasesText(leases, live, limit);
                  },
                  done);
            });
      });
}

}  // namespace idd::daemon
