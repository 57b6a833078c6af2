// SPDX-License-Identifier: Apache-2.0
//
// `whois`: which lease an id is from.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/snowflake_fields.h"

namespace idd::daemon {
namespace {

// The leases that an id may come from.
struct Origin {
  std::vector<LeaseRecord> leases;          // the newest first
  std::optional<SnowflakeLayout> layout{};  // of a snowflake tag; its leases are of numbers
  std::uint64_t number = 0;                 // the id, or a snowflake id's number
  std::vector<FoldedOrigin> folded{};       // if there are none: the hosts of folded leases
  std::string reason;                       // why there are neither
  HostNames names{};
};

// A host that hands a tail back and takes it again without a claim in between leaves a row each
// time.
constexpr std::uint64_t kMaxOrigins = 1000;

// The leases that have the number, of one row of leaf_alloc.
Result<std::vector<LeaseRecord>> FindLeases(StoreReader& store, const std::string& row,
                                            std::uint64_t number) {
  Result<std::vector<LeaseRecord>> leases = store.ListLeases({.tag = row,
                                                              .host = std::nullopt,
                                                              .state = std::nullopt,
                                                              .containing = number,
                                                              .newest = kMaxOrigins});
  if (leases.ok()) std::reverse(leases.value().begin(), leases.value().end());
  return leases;
}

// Of a lease whose row is gone, its tag, host and month are known. Asked for in any case: if the
// ids came twice, both owners matter.
Status FindFolded(StoreReader& store, const std::string& row, Origin& origin) {
  Result<std::vector<FoldedOrigin>> folded = store.FindFolded(row, origin.number);
  if (!folded.ok()) return folded.status();
  origin.folded = std::move(folded).value();
  return Status::Ok();
}

Result<Origin> FindSnowflake(StoreReader& store, const TagRecord& tag, std::uint64_t id) {
  Origin origin;
  origin.layout = tag.snowflake;
  const std::optional<SnowflakeLayout::Parts> parts = tag.snowflake->PartsOf(id);
  if (!parts.has_value()) {
    origin.reason = "it has more bits than the layout " + BitsText(*tag.snowflake);
    return origin;
  }
  origin.number = tag.snowflake->NumberOf(*parts);
  Result<std::vector<LeaseRecord>> leases =
      FindLeases(store, CounterName(tag.tag, parts->worker), origin.number);
  if (!leases.ok()) return leases.status();
  origin.leases = std::move(leases).value();
  if (Status status = FindFolded(store, CounterName(tag.tag, parts->worker), origin);
      !status.ok()) {
    return status;
  }
  if (origin.leases.empty() && origin.folded.empty()) {
    origin.reason = "no lease of worker " + std::to_string(parts->worker) + " has its time, " +
                    TimeTextOf(*tag.snowflake, origin.number);
  }
  return origin;
}

Result<Origin> FindOrigin(StoreReader& store, const std::string& tag, std::uint64_t id) {
  const Result<TagRecord> record = store.FindTag(tag);
  if (record.ok() && record.value().snowflake) return FindSnowflake(store, record.value(), id);
  Origin origin;
  origin.number = id;
  Result<std::vector<LeaseRecord>> leases = FindLeases(store, tag, id);
  if (!leases.ok()) return leases.status();
  origin.leases = std::move(leases).value();
  if (Status status = FindFolded(store, tag, origin); !status.ok()) return status;
  // The tag itself may be deleted.
  if (!origin.leases.empty() || !origin.folded.empty()) return origin;
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

// The state of an id of a lease. `use` has what this host knows of the lease beyond the journal.
// The parts of a lease are in this order: claimed, abandoned, returned.
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

void WhoIs(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
           AdminDone done) {
  const Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const auto id = NumberField(request, "id");
  if (!id.ok()) return Fail(done, id.status());
  if (!id.value().has_value() || *id.value() >= shm::kMaxLimit) {
    return Fail(done, {Code::kInvalid,
                       "'id' must be a number from 0 to " + std::to_string(shm::kMaxLimit - 1)});
  }
  context.Read<Origin>(
      [tag = tag.value(), id = *id.value()](StoreReader& store) -> Result<Origin> {
        const Result<std::vector<HostRecord>> hosts = store.ListHosts();
        if (!hosts.ok()) return hosts.status();
        Result<Origin> origin = FindOrigin(store, tag, id);
        if (origin.ok()) origin.value().names = NamesOf(hosts.value());
        return origin;
      },
      [&context, tag = tag.value(), id = *id.value(),
       done = std::move(done)](const Result<Origin>& origin) {
        if (!origin.ok()) return Fail(done, origin.status());
        const auto live = context.tags.LiveLeases();
        Json leases = Json::array();
        for (const LeaseRecord& lease : origin.value().leases) {
          const auto use = live.find(lease.token);
          const bool is_live = lease.state == LeaseState::kActive && use != live.end();
          LeaseRecord shown = lease;
          if (is_live) shown.claimed = use->second.claimed;
          leases.push_back(LeaseJson(shown, origin.value().names));
          leases.back()["id_state"] =
              IdState(lease, origin.value().number, is_live ? &use->second : nullptr);
          if (const auto& layout = origin.value().layout; layout.has_value()) {
            leases.back()["from"] = TimeTextOf(*layout, lease.ids.first);
            leases.back()["to"] = TimeTextOf(*layout, lease.ids.limit);
          }
        }
        Json folded = Json::array();
        for (const FoldedOrigin& one : origin.value().folded) {
          const auto name = origin.value().names.find(one.host);
          folded.push_back(
              {{"host", one.host},
               {"month", one.month},
               {"exact", one.is_exact},
               {"host_name",
                name == origin.value().names.end() ? Json(nullptr) : Json(name->second)}});
        }
        const std::string& reason = origin.value().reason;
        const auto& layout = origin.value().layout;
        done(Status::Ok(), Dump({{"tag", tag},
                                 {"id", id},
                                 {"parts", layout ? PartsJson(*layout, id) : Json(nullptr)},
                                 {"leases", std::move(leases)},
                                 {"folded", std::move(folded)},
                                 {"reason", OrNull(reason)}}));
      });
}

}  // namespace idd::daemon
