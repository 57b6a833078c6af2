// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/cluster_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "admin/shared/admin_json.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

// Up to this many sums (of a tag and a host) are read in one statement; beyond, tag by tag.
constexpr std::size_t kSumsAtOnce = 50'000;
constexpr std::size_t kTagsAtOnce = 500;

using HostIndex = std::map<std::string, ClusterHost*, std::less<>>;

// Takes over what a host reports. Another version of idd has written it, so any of it may be
// missing.
void TakeReport(ClusterHost& host, ClusterView& view) {
  const auto report = nlohmann::json::parse(host.record.report, nullptr, false);
  if (!report.is_object()) return;
  const auto count = [&report](const char* key) {
    const auto it = report.find(key);
    const bool is_count = it != report.end() && it->is_number_unsigned();
    return is_count ? it->get<std::uint64_t>() : 0;
  };
  host.served_tags = count("served");
  host.short_tags = count("short");
  const auto names = report.find("tags");
  if (names == report.end() || !names->is_array()) return;
  for (const auto& name : *names) {
    if (!name.is_string()) continue;
    const auto tag = view.tags.find(name.get<std::string>());
    if (tag != view.tags.end()) ++tag->second.short_hosts;
  }
}

// A host that has stopped or is silent keeps no promise, and reports nothing that counts.
bool IsAlive(const HostRecord& host) { return std::string_view(HostCondition(host)) == "live"; }

void AddSums(const LeaseSums& sums, HostIndex& hosts, ClusterView& view) {
  const auto tag = view.tags.find(ServedName(sums.tag));
  if (tag == view.tags.end()) return;
  ClusterTag& of_tag = tag->second;
  of_tag.ended.leases += sums.ended.leases;
  of_tag.ended.leased += sums.ended.leased;
  of_tag.ended.claimed += sums.ended.claimed;
  of_tag.ended.returned += sums.ended.returned;
  of_tag.ended.abandoned += sums.ended.abandoned;
  of_tag.active_leases += sums.active_leases;
  of_tag.held_ids += sums.active_ids;
  of_tag.hosts += sums.active_leases > 0 ? 1U : 0U;
  const auto host = hosts.find(sums.host);
  if (host == hosts.end()) return;
  host->second->active_leases += sums.active_leases;
  if (!of_tag.is_snowflake()) host->second->held_ids += sums.active_ids;
}

Status ReadRecords(StoreReader& store, const std::vector<std::string>& rows, ClusterView& view) {
  std::vector<std::string> names;
  for (const std::string& row : rows) {
    view.tags[ServedName(row)].tag = ServedName(row);
    if (!ParseCounterName(row).has_value()) names.push_back(row);
  }
  for (std::size_t begin = 0; begin < names.size(); begin += kTagsAtOnce) {
    const auto first = names.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last =
        names.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kTagsAtOnce, names.size()));
    const auto records = store.FindTags({first, last});
    if (!records.ok()) return records.status();
    for (const Result<TagRecord>& record : records.value()) {
      if (record.status().code() == Code::kUnavailable) return record.status();
      if (record.ok()) view.tags[record.value().tag].record = record.value();
    }
  }
  return Status::Ok();
}

Status ReadSums(StoreReader& store, const std::vector<std::string>& rows, bool is_whole,
                HostIndex& hosts, ClusterView& view) {
  if (is_whole && rows.size() * std::max<std::size_t>(hosts.size(), 1) <= kSumsAtOnce) {
    const Result<std::vector<LeaseSums>> all = store.SumLeases(std::nullopt);
    if (!all.ok()) return all.status();
    for (const LeaseSums& sums : all.value()) AddSums(sums, hosts, view);
    return Status::Ok();
  }
  for (const std::string& row : rows) {
    const Result<std::vector<LeaseSums>> of_row = store.SumLeases(row);
    if (!of_row.ok()) return of_row.status();
    for (const LeaseSums& sums : of_row.value()) AddSums(sums, hosts, view);
  }
  return Status::Ok();
}

Status ReadRates(StoreReader& store, const std::optional<std::string>& tag, ClusterView& view) {
  const Result<std::vector<RecentLeases>> recent = store.SumRecent(kClusterRateWindow, tag);
  if (!recent.ok()) return recent.status();
  for (const RecentLeases& leases : recent.value()) {
    const auto found = view.tags.find(ServedName(leases.tag));
    if (found == view.tags.end() || found->second.is_snowflake()) continue;
    const std::uint64_t kept = leases.leased - std::min(leases.leased, leases.returned);
    found->second.rate_per_s =
        static_cast<double>(kept) / static_cast<double>(kClusterRateWindow.count());
  }
  return Status::Ok();
}

// What needs attention comes first.
int RankOf(const ClusterHost& host) {
  const std::string_view condition = HostCondition(host.record);
  if (condition == "silent") return 0;
  if (condition == "live") return host.short_tags > 0 ? 1 : 2;
  return 3;
}

bool IsShownBefore(const ClusterHost* a, const ClusterHost* b) {
  if (RankOf(*a) != RankOf(*b)) return RankOf(*a) < RankOf(*b);
  if (a->held_ids != b->held_ids) return a->held_ids > b->held_ids;
  return a->record.host < b->record.host;
}

Json HostsJson(const ClusterView& view, const ClusterScope& scope) {
  std::vector<const ClusterHost*> hosts;
  for (const ClusterHost& host : view.hosts) {
    if (!host.record.is_forgotten) hosts.push_back(&host);
  }
  const std::size_t shown = std::min<std::size_t>(hosts.size(), scope.limit);
  const auto end = hosts.begin() + static_cast<std::ptrdiff_t>(shown);
  std::partial_sort(hosts.begin(), end, hosts.end(), IsShownBefore);
  Json list = Json::array();
  for (auto it = hosts.begin(); it != end; ++it) {
    Json host = HostJson((*it)->record);
    // Sums over all tags, which show something of each of them.
    const auto count = [&scope](std::uint64_t number) {
      return scope.shows_all ? Json(number) : Json(nullptr);
    };
    host["active_leases"] = count((*it)->active_leases);
    host["held_ids"] = count((*it)->held_ids);
    host["served_tags"] = count((*it)->served_tags);
    host["short_tags"] = count((*it)->short_tags);
    list.push_back(std::move(host));
  }
  return {{"list", std::move(list)}, {"more", hosts.size() - shown}, {"total", hosts.size()}};
}

// The parts of all leases: leased = claimed + held + returned + abandoned. Only their hosts know
// how many of the held ids are claimed.
void AddParts(const ClusterTag& tag, Json& json) {
  json["active_leases"] = tag.active_leases;
  json["leased_ids"] = tag.ended.leased + tag.held_ids;
  json["claimed_ids"] = tag.ended.claimed;
  json["held_ids"] = tag.held_ids;
  json["returned_ids"] = tag.ended.returned;
  json["abandoned_ids"] = tag.ended.abandoned;
}

Json TagJsonOf(const ClusterTag& tag) {
  const std::optional<double> days = tag.ExhaustedInDays();
  const TagRecord* const record = tag.record.has_value() ? &*tag.record : nullptr;
  Json json = {{"tag", tag.tag},
               {"mode", record == nullptr ? Json(nullptr) : Json(TagModeName(record->mode))},
               {"rate_per_s", tag.is_snowflake() ? Json(nullptr) : Json(tag.rate_per_s)},
               {"next_id", record == nullptr ? Json(nullptr) : Json(record->next_id)},
               {"max_id", record == nullptr ? Json(nullptr) : Json(record->max_id)},
               {"exhausted_in_days", days.has_value() ? Json(*days) : Json(nullptr)},
               {"hosts", tag.hosts},
               {"short_hosts", tag.short_hosts}};
  AddParts(tag, json);
  return json;
}

bool ComesBefore(const ClusterTag* a, const ClusterTag* b) {
  const auto key = [](const ClusterTag* tag) {
    constexpr double kSoonDays = 90;
    const bool ends_soon = tag->ExhaustedInDays().value_or(kSoonDays) < kSoonDays;
    return std::tuple(tag->short_hosts == 0, !ends_soon, !tag->record.has_value(),
                      -tag->rate_per_s);
  };
  if (key(a) < key(b)) return true;
  return !(key(b) < key(a)) && a->tag < b->tag;
}

}  // namespace

std::optional<double> ClusterTag::ExhaustedInDays() const {
  constexpr double kSecondsOfADay = 86'400;
  if (!record.has_value() || is_snowflake() || !(rate_per_s > 0)) return std::nullopt;
  const std::uint64_t end = record->max_id + 1;
  const std::uint64_t left = end - std::min(end, record->next_id);
  return static_cast<double>(left) / rate_per_s / kSecondsOfADay;
}

Result<ClusterView> ReadCluster(StoreReader& store, const std::optional<std::string>& tag) {
  ClusterView view;
  view.read_at = MonotonicClock::now();
  Result<std::vector<HostRecord>> records = store.ListHosts();
  if (!records.ok()) return records.status();
  for (HostRecord& record : records.value()) view.hosts.push_back({.record = std::move(record)});
  HostIndex hosts;
  for (ClusterHost& host : view.hosts) hosts[host.record.host] = &host;
  std::vector<std::string> rows;
  if (tag.has_value()) {
    Result<std::vector<std::string>> of_tag = store.RowsOf(*tag);
    if (!of_tag.ok()) return of_tag.status();
    rows = std::move(of_tag).value();
  } else {
    const Result<std::set<std::string>> all = store.LedgerTags();
    if (!all.ok()) return all.status();
    rows.assign(all.value().begin(), all.value().end());
  }
  if (Status status = ReadRecords(store, rows, view); !status.ok()) return status;
  if (Status status = ReadSums(store, rows, !tag.has_value(), hosts, view); !status.ok()) {
    return status;
  }
  if (Status status = ReadRates(store, tag, view); !status.ok()) return status;
  for (ClusterHost& host : view.hosts) {
    if (IsAlive(host.record)) TakeReport(host, view);
  }
  return view;
}

nlohmann::ordered_json ClusterJson(const ClusterView& view, const ClusterScope& scope) {
  ClusterTag sum;
  Json conditions = Json::object();
  Json versions = Json::object();
  for (const ClusterHost& host : view.hosts) {
    const char* const condition = HostCondition(host.record);
    conditions[condition] = conditions.value(condition, 0) + 1;
    const bool is_running = IsAlive(host.record) && !host.record.version.empty();
    if (!is_running) continue;
    versions[host.record.version] = versions.value(host.record.version, 0) + 1;
  }
  std::vector<const ClusterTag*> tags;
  std::uint64_t short_tags = 0;
  for (const auto& [name, tag] : view.tags) {
    if (!scope.shows(name)) continue;
    tags.push_back(&tag);
    short_tags += tag.short_hosts > 0 ? 1U : 0U;
    if (tag.is_snowflake()) continue;
    sum.rate_per_s += tag.rate_per_s;
    sum.active_leases += tag.active_leases;
    sum.held_ids += tag.held_ids;
    sum.ended.leased += tag.ended.leased;
    sum.ended.claimed += tag.ended.claimed;
    sum.ended.returned += tag.ended.returned;
    sum.ended.abandoned += tag.ended.abandoned;
  }
  const std::size_t shown = std::min<std::size_t>(tags.size(), scope.limit);
  const auto end = tags.begin() + static_cast<std::ptrdiff_t>(shown);
  std::partial_sort(tags.begin(), end, tags.end(), ComesBefore);
  Json list = Json::array();
  for (auto it = tags.begin(); it != end; ++it) list.push_back(TagJsonOf(**it));
  Json hosts = HostsJson(view, scope);
  const auto age =
      std::chrono::duration_cast<std::chrono::milliseconds>(MonotonicClock::now() - view.read_at);
  Json all = {{"hosts", hosts["total"]},         {"conditions", std::move(conditions)},
              {"versions", std::move(versions)}, {"tags", tags.size()},
              {"short_tags", short_tags},        {"rate_per_s", sum.rate_per_s}};
  AddParts(sum, all);
  return {{"age_ms", age.count()},           {"rate_window_s", kClusterRateWindow.count()},
          {"cluster", std::move(all)},       {"hosts", std::move(hosts["list"])},
          {"more_hosts", hosts["more"]},     {"tags", std::move(list)},
          {"more_tags", tags.size() - shown}};
}

}  // namespace idd::daemon
