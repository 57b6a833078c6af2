// SPDX-License-Identifier: Apache-2.0
//
// Admin: what the journal says of leases, hosts and ids.
#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "admin/admin.h"
#include "admin/admin_fields.h"

namespace idd::daemon {
namespace {

// Leases in one answer to lease.list: what is asked for, at most, and without a word.
constexpr std::uint64_t kMaxListedLeases = 1'000'000;
constexpr std::uint64_t kDefaultListedLeases = 10'000;

using LiveLeases = std::map<std::string, LeaseClosure, std::less<>>;

// What the journal does not know yet of leases that are in a ring comes from `live`.
std::string LeasesText(const std::vector<LeaseRecord>& leases, const LiveLeases& live,
                       std::uint64_t limit) {
  const bool is_cut = leases.size() > limit;
  Json array = Json::array();
  for (std::size_t i = is_cut ? 1 : 0; i < leases.size(); ++i) {
    LeaseRecord lease = leases[i];
    const auto use = live.find(lease.token);
    if (lease.state == LeaseState::kActive && use != live.end()) {
      lease.claimed = use->second.claimed;
    }
    array.push_back(LeaseJson(lease));
  }
  return Dump({{"leases", std::move(array)}, {"truncated", is_cut}});
}

Result<LeaseFilter> ReadLeaseFilter(const Request& request) {
  const auto tag = TextField(request, "tag");
  const auto host = TextField(request, "host");
  const auto state = TextField(request, "state");
  const auto limit = NumberField(request, "limit");
  for (const Status& status : {tag.status(), host.status(), state.status(), limit.status()}) {
    if (!status.ok()) return status;
  }
  const std::uint64_t newest = limit.value().value_or(kDefaultListedLeases);
  if (newest == 0 || newest > kMaxListedLeases) {
    return Status(Code::kInvalid,
                  "'limit' must be 1 to " + std::to_string(kMaxListedLeases) + " leases");
  }
  LeaseFilter filter{.tag = tag.value(), .host = host.value(), .state = std::nullopt};
  filter.newest = newest + 1;
  if (state.value().has_value()) {
    filter.state = ParseLeaseState(*state.value());
    if (!filter.state.has_value()) {
      return Status(Code::kInvalid, "unknown lease state '" + *state.value() +
                                        "'; use active, exhausted, returned or abandoned");
    }
  }
  return filter;
}

// The newest of those that the peer may see, whatever others have leased since.
Result<std::vector<LeaseRecord>> ReadLeases(StoreReader& store, LeaseFilter filter,
                                            const PeerRights& rights) {
  if (!rights.AdministersAll()) {
    Result<std::set<std::string>> tags = store.LedgerTags();
    if (!tags.ok()) return tags.status();
    std::erase_if(tags.value(), [&rights](const std::string& tag) { return !rights.MaySee(tag); });
    filter.among.emplace(tags.value().begin(), tags.value().end());
  }
  return store.ListLeases(filter);
}

// Where an id is from.
struct Origin {
  std::vector<LeaseRecord> leases;  // the newest first
  std::string reason;               // why there is none
};

// Hosts that hand a tail back and take it again, with no claim in between, leave a row each time.
constexpr std::uint64_t kMaxOrigins = 1000;

Result<Origin> FindOrigin(StoreReader& store, const std::string& tag, std::uint64_t id) {
  Origin origin;
  Result<std::vector<LeaseRecord>> leases = store.ListLeases({.tag = tag,
                                                              .host = std::nullopt,
                                                              .state = std::nullopt,
                                                              .containing = id,
                                                              .newest = kMaxOrigins});
  if (!leases.ok()) return leases.status();
  origin.leases = std::move(leases).value();
  std::reverse(origin.leases.begin(), origin.leases.end());
  if (!origin.leases.empty()) return origin;  // the tag itself may be deleted
  const Result<TagRecord> record = store.FindTag(tag);
  if (!record.ok()) return record.status();
  const std::string next = std::to_string(record.value().next_id);
  origin.reason =
      id >= record.value().next_id
          ? "it is not leased yet: the next lease begins at " + next
          : "it lies below " + next +
                ", where the next lease begins, and no lease of idd has it: another program leased "
                "it (a Leaf server, or a generator that the tag was taken over from), or the tag "
                "began above it";
  return origin;
}

// What became of an id of a lease. `use` is what is known of it beyond the journal. The parts of a
// lease lie in this order: claimed, abandoned, returned.
const char* IdState(const LeaseRecord& lease, std::uint64_t id, const LeaseClosure* use) {
  const std::uint64_t offset = id - lease.ids.first;
  if (lease.state == LeaseState::kActive) {
    if (use == nullptr) return "active";  // only its host knows more
    if (offset < use->claimed) return "claimed";
    return use->state == LeaseState::kActive ? "available" : LeaseStateName(use->state);
  }
  if (offset < lease.claimed) return "claimed";
  return offset < lease.claimed + lease.abandoned ? "abandoned" : "returned";
}

}  // namespace

void Admin::ListLeases(const Request& request, const PeerRights& rights, Done done) {
  Result<LeaseFilter> filter = ReadLeaseFilter(request);
  if (!filter.ok()) return Fail(done, filter.status());
  QueueReport([this, rights, filter = std::move(filter).value(), done = std::move(done)] {
    // One more than asked for shows whether there are more.
    const std::uint64_t limit = filter.newest - 1;
    Read<std::vector<LeaseRecord>>(
        [filter, rights](StoreReader& store) { return ReadLeases(store, filter, rights); },
        [this, limit, done](Result<std::vector<LeaseRecord>> leases) {
          if (!leases.ok()) {
            FinishReport();
            return Fail(done, leases.status());
          }
          MakeReport([limit, leases = std::move(leases).value(),
                      live = tags_.LiveLeases()] { return LeasesText(leases, live, limit); },
                     done);
        });
  });
}

void Admin::ListHosts(const Request& /*request*/, const PeerRights& /*rights*/, Done done) {
  Read<std::vector<HostRecord>>(
      [](StoreReader& store) { return store.ListHosts(); },
      [done = std::move(done)](const Result<std::vector<HostRecord>>& hosts) {
        if (!hosts.ok()) return Fail(done, hosts.status());
        Json array = Json::array();
        for (const HostRecord& host : hosts.value()) {
          array.push_back({{"host", host.host},
                           {"first_seen", host.first_seen},
                           {"last_seen", host.last_seen},
                           {"boot_id", host.boot_id ? Json(*host.boot_id) : Json(nullptr)},
                           {"state", host.state ? Json(*host.state) : Json(nullptr)}});
        }
        done(Status::Ok(), Dump({{"hosts", std::move(array)}}));
      });
}

void Admin::ForgetHost(const Request& request, const PeerRights& /*rights*/, Done done) {
  const auto host = TextField(request, "host");
  if (!host.ok()) return Fail(done, host.status());
  if (!host.value().has_value()) return Fail(done, {Code::kInvalid, "'host' is missing"});
  const auto is_forced = FlagField(request, "force");
  if (!is_forced.ok()) return Fail(done, is_forced.status());
  worker_.SubmitWithSession<bool>(
      [host = *host.value(), is_forced = is_forced.value()](Store& store, HighWaterMarks&,
                                                            StoreSession& session) -> Result<bool> {
        if (store.fence() == nullptr) {
          return Status(Code::kInvalid,
                        "leasing waits for no host with this database; only MySQL has a fence");
        }
        Status status = session.fence.Forget(*store.fence(), host, is_forced);
        if (!status.ok()) return status;
        return true;
      },
      [host = *host.value(), done = std::move(done)](const Result<bool>& forgotten) {
        if (!forgotten.ok()) return Fail(done, forgotten.status());
        done(Status::Ok(), Dump({{"host", host}, {"state", "out"}}));
      });
}

void Admin::WhoIs(const Request& request, const PeerRights& /*rights*/, Done done) {
  const Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const auto id = NumberField(request, "id");
  if (!id.ok()) return Fail(done, id.status());
  if (!id.value().has_value() || *id.value() >= shm::kMaxLimit) {
    return Fail(done, {Code::kInvalid,
                       "'id' must be a number from 0 to " + std::to_string(shm::kMaxLimit - 1)});
  }
  Read<Origin>([tag = tag.value(),
                id = *id.value()](StoreReader& store) { return FindOrigin(store, tag, id); },
               [this, tag = tag.value(), id = *id.value(),
                done = std::move(done)](const Result<Origin>& origin) {
                 if (!origin.ok()) return Fail(done, origin.status());
                 const auto live = tags_.LiveLeases();
                 Json leases = Json::array();
                 for (const LeaseRecord& lease : origin.value().leases) {
                   const auto use = live.find(lease.token);
                   const bool is_live = lease.state == LeaseState::kActive && use != live.end();
                   LeaseRecord told = lease;
                   if (is_live) told.claimed = use->second.claimed;
                   leases.push_back(LeaseJson(told));
                   leases.back()["id_state"] = IdState(lease, id, is_live ? &use->second : nullptr);
                 }
                 const std::string& reason = origin.value().reason;
                 done(Status::Ok(),
                      Dump({{"tag", tag},
                            {"id", id},
                            {"leases", std::move(leases)},
                            {"reason", reason.empty() ? Json(nullptr) : Json(reason)}}));
               });
}

}  // namespace idd::daemon
