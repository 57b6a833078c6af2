// SPDX-License-Identifier: Apache-2.0
//
// Admin: what the journal says of leases, hosts and ids.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "admin.h"
#include "admin_fields.h"
#include "audit.h"

namespace idd::daemon {
namespace {

// Leases in one answer to lease.list: what is asked for, at most, and without a word.
constexpr std::uint64_t kMaxListedLeases = 1'000'000;
constexpr std::uint64_t kDefaultListedLeases = 10'000;

// What the journal does not know yet of leases that are in a ring comes from `live`.
std::string LeasesText(const std::vector<LeaseRecord>& leases,
                       const std::map<std::string, LeaseClosure, std::less<>>& live,
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

std::string AuditText(const AuditInput& input) {
  const AuditReport report = RunAudit(input);
  Json tags = Json::array();
  for (const auto& [tag, account] : report.tags) {
    tags.push_back({{"tag", tag},
                    {"leased", account.leased},
                    {"claimed", account.claimed},
                    {"available", account.available},
                    {"returned", account.returned},
                    {"abandoned", account.abandoned}});
  }
  return Dump({{"ok", report.ok()}, {"tags", std::move(tags)}, {"findings", report.findings}});
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

}  // namespace

void Admin::ListLeases(const Request& request, Done done) {
  Result<LeaseFilter> filter = ReadLeaseFilter(request);
  if (!filter.ok()) return Fail(done, filter.status());
  QueueReport([this, filter = std::move(filter).value(), done = std::move(done)]() mutable {
    // One more than asked for shows whether there are more.
    const std::uint64_t limit = filter.newest - 1;
    worker_.Submit<std::vector<LeaseRecord>>(
        [filter = std::move(filter)](Store& store, HighWaterMarks&) {
          return store.ListLeases(filter);
        },
        [this, limit, done = std::move(done)](Result<std::vector<LeaseRecord>> leases) {
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

void Admin::ListHosts(const Request& /*request*/, Done done) {
  worker_.Submit<std::vector<HostRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListHosts(); },
      [done = std::move(done)](const Result<std::vector<HostRecord>>& hosts) {
        if (!hosts.ok()) return Fail(done, hosts.status());
        Json array = Json::array();
        for (const HostRecord& host : hosts.value()) {
          array.push_back({{"host", host.host},
                           {"first_seen", host.first_seen},
                           {"last_seen", host.last_seen}});
        }
        done(Status::Ok(), Dump({{"hosts", std::move(array)}}));
      });
}

void Admin::Audit(const Request& request, Done done) {
  const auto only = TextField(request, "tag");
  if (!only.ok()) return Fail(done, only.status());
  QueueReport([this, only = only.value(), done = std::move(done)]() mutable {
    worker_.Submit<AuditInput>(
        [host = info_.host_id, tag = only](Store& store, HighWaterMarks&) -> Result<AuditInput> {
          auto journal =
              store.ListLeases({.tag = tag, .host = std::nullopt, .state = std::nullopt});
          if (!journal.ok()) return journal.status();
          auto tags = store.ListTags();
          if (!tags.ok()) return tags.status();
          auto returned = store.ListReturned(tag);
          if (!returned.ok()) return returned.status();
          return AuditInput{.host = host,
                            .journal = std::move(journal).value(),
                            .tags = std::move(tags).value(),
                            .returned = std::move(returned).value(),
                            .live = {}};
        },
        [this, only, done = std::move(done)](Result<AuditInput> input) {
          if (!input.ok()) {
            FinishReport();
            return Fail(done, input.status());
          }
          AuditInput& all = input.value();
          // Completions come in the order of their jobs: no lease of a later job is in a ring yet,
          // and those of all earlier ones are.
          all.live = tags_.LiveLeases();
          if (only.has_value()) {
            std::erase_if(all.live, [&](const auto& live) { return live.second.tag != *only; });
            std::erase_if(all.tags, [&](const TagRecord& tag) { return tag.tag != *only; });
            if (all.tags.empty() && all.journal.empty()) {
              FinishReport();
              return Fail(done, {Code::kNoSuchTag, "no such tag: '" + *only + "'"});
            }
          }
          MakeReport([input = std::move(input).value()] { return AuditText(input); }, done);
        });
  });
}

}  // namespace idd::daemon
