// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/admin_json.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "admin/shared/admin_context.h"
#include "admin/shared/snowflake_fields.h"
#include "idd/shm/ring_stats.h"

namespace idd::daemon {
namespace {

// Below this many ids a second, a tag is shown as idle.
constexpr double kIdlePerSecond = 0.01;

// The promise: its settings, its present length at the present rate, and whether the ids that it
// requires are held.
Json PromiseJson(const TagSnapshot& tag, std::uint64_t available) {
  const double tolerance_s = std::chrono::duration<double>(tag.refill.outage_tolerance).count();
  const Json length_s =
      tag.rate_per_s < kIdlePerSecond
          ? Json(nullptr)
          : Json(shm::PromiseSeconds(tag.promised_ids, tolerance_s, tag.rate_per_s));
  return {{"refill", RefillRuleName(tag.refill.rule)},
          {"outage_tolerance_s", tag.refill.outage_tolerance.count()},
          {"length_s", length_s},
          {"max_prefetch", tag.refill.max_prefetch},
          {"reckoned_per_s", tag.planning_rate_per_s},
          {"promised_ids", tag.promised_ids},
          {"kept", shm::IsPromiseKept(available, tag.promised_ids)}};
}

// Where a snowflake tag stands: the worker id that it leases from, and its time.
Json SnowflakeStateJson(const TagSnapshot& tag) {
  if (!tag.snowflake.has_value()) return nullptr;
  Json json = {{"clock", TagClockName(tag.snowflake->clock)},
               {"counter", nullptr},
               {"worker", nullptr},
               {"time", nullptr},
               {"leased_until", nullptr}};
  if (tag.leases.empty()) return json;
  const Lease& newest = tag.leases.back().lease;
  const std::optional<CounterOf> counter = ParseCounterName(newest.tag);
  json["counter"] = newest.tag;
  if (counter.has_value()) json["worker"] = counter->worker;
  const LeaseUse& oldest = tag.leases.front();
  json["time"] = TimeTextOf(*tag.snowflake, oldest.lease.ids.first + oldest.claimed);
  json["leased_until"] = TimeTextOf(*tag.snowflake, newest.ids.limit);
  return json;
}

std::int64_t SecondsSince(MonotonicTime since) {
  return std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - since).count();
}

}  // namespace

std::string Dump(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ErrorDocument(const std::string& message) { return Dump({{"error", message}}); }

Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json WaitsJson(const std::vector<WitnessWait>& waits) {
  Json list = Json::array();
  for (const WitnessWait& wait : waits) {
    list.push_back({{"host", wait.host}, {"silent_s", wait.silent_s}, {"has_come", wait.has_come}});
  }
  return list;
}

Json AgreementJson(const AgreementReport& agreement) {
  if (agreement.state == "none") return nullptr;
  Json witnesses = Json::array();
  for (const AgreementReport::Witness& witness : agreement.witnesses) {
    witnesses.push_back(
        {{"host", witness.host}, {"silent_s", witness.silent_s}, {"is_there", witness.is_there}});
  }
  return {{"state", agreement.state},
          {"term", agreement.term},
          {"begun_by", agreement.begun_by},
          {"witnesses", std::move(witnesses)},
          {"next", agreement.next},
          {"has_majority", agreement.has_majority},
          {"reason", OrNull(agreement.reason)}};
}

Json TagJson(const TagRecord& record) {
  return {{"tag", record.tag},
          {"mode", TagModeName(record.mode)},
          {"access", TagAccessName(record.access)},
          {"order", TagOrderName(record.order)},
          {"lane_block", record.lane_block},
          {"step", record.step},
          {"refill", RefillRuleName(record.refill.rule)},
          {"max_step", record.refill.max_step},
          {"max_prefetch", record.refill.max_prefetch},
          {"outage_tolerance_s", record.refill.outage_tolerance.count()},
          {"next_id", record.next_id},
          {"max_id", record.max_id},
          {"snowflake", record.snowflake ? LayoutJson(*record.snowflake) : Json(nullptr)},
          {"description", record.description},
          {"update_time", record.update_time}};
}

Json LanesJson(const TagSnapshot& tag) {
  if (!tag.lanes.has_value()) return nullptr;
  return {{"count", tag.lanes->count},
          {"block", tag.lanes->block},
          {"left", tag.lanes->left},
          {"dropped", tag.lanes->dropped}};
}

Json StatusTagJson(const TagSnapshot& tag) {
  std::uint64_t available = 0;
  Json segments = Json::array();
  for (const LeaseUse& use : tag.leases) {
    available += use.available();
    segments.push_back({{"base", use.lease.ids.first},
                        {"limit", use.lease.ids.limit},
                        {"next", use.lease.ids.first + use.claimed}});
  }
  const bool idle = tag.rate_per_s < kIdlePerSecond;
  return {
      {"tag", tag.tag},
      {"mode", TagModeName(tag.mode)},
      {"order", TagOrderName(tag.order)},
      {"step", tag.step},
      {"state", TagStateName(tag.state)},
      {"claimed", tag.claimed},
      {"available", available},
      {"segments", std::move(segments)},
      {"lanes", LanesJson(tag)},
      {"snowflake", SnowflakeStateJson(tag)},
      {"rate_per_s", idle ? 0.0 : tag.rate_per_s},
      {"covered_s", idle ? Json(nullptr) : Json(static_cast<double>(available) / tag.rate_per_s)},
      {"promise", PromiseJson(tag, available)},
      {"exhausted_in_days",
       tag.exhausted_in_days.has_value() ? Json(*tag.exhausted_in_days) : Json(nullptr)},
      {"fallbacks", tag.fallbacks},
      {"leases", tag.leases_taken},
      {"last_error", OrNull(tag.last_error)}};
}

Json DoctorTagJson(const TagSnapshot& tag, const TagRecord* record) {
  std::uint64_t available = 0;
  for (const LeaseUse& use : tag.leases) available += use.available();
  return {{"tag", tag.tag},
          {"mode", TagModeName(tag.mode)},
          {"order", TagOrderName(tag.order)},
          {"state", TagStateName(tag.state)},
          {"step", tag.step},
          {"available", available},
          {"rate_per_s", tag.rate_per_s},
          {"reckoned_per_s", tag.planning_rate_per_s},
          {"promised_ids", tag.promised_ids},
          {"outage_tolerance_s", tag.refill.outage_tolerance.count()},
          {"max_prefetch", tag.refill.max_prefetch},
          {"next_id", record == nullptr ? Json(nullptr) : Json(record->next_id)},
          {"max_id", record == nullptr ? Json(nullptr) : Json(record->max_id)},
          {"exhausted_in_days",
           tag.exhausted_in_days.has_value() ? Json(*tag.exhausted_in_days) : Json(nullptr)},
          {"last_error", OrNull(tag.last_error)}};
}

HostNames NamesOf(const std::vector<HostRecord>& hosts) {
  HostNames names;
  for (const HostRecord& host : hosts) {
    if (!host.name.empty()) names[host.host] = host.name;
  }
  return names;
}

Json LeaseJson(const LeaseRecord& lease, const HostNames& names) {
  const auto name = names.find(lease.host);
  return {{"token", lease.token},
          {"tag", lease.tag},
          {"host", lease.host},
          {"base", lease.ids.first},
          {"limit", lease.ids.limit},
          {"state", LeaseStateName(lease.state)},
          {"claimed", lease.claimed},
          {"returned", lease.returned},
          {"abandoned", lease.abandoned},
          {"leased_at", lease.leased_at},
          {"closed_at", OrNull(lease.closed_at)},
          {"host_name", name == names.end() ? Json(nullptr) : Json(name->second)}};
}

Json HostJson(const HostRecord& host) {
  return {{"host", host.host},
          {"first_seen", host.first_seen},
          {"last_seen", host.last_seen},
          {"boot_id", host.boot_id ? Json(*host.boot_id) : Json(nullptr)},
          {"name", OrNull(host.name)},
          {"address", OrNull(host.address)},
          {"version", OrNull(host.version)},
          {"condition", HostCondition(host)},
          {"silent_s", host.silent_s}};
}

Json DaemonJson(const DaemonInfo& info, bool is_drained) {
  return {{"version", info.version},
          {"pid", ::getpid()},
          {"uptime_s", SecondsSince(info.started)},
          {"host_id", info.host_id},
          {"socket", info.socket},
          {"drained", is_drained},
          {"host_name", OrNull(info.host_name)},
          {"host_address", OrNull(info.host_address)}};
}

Json DatabaseJson(const std::string& display_url, const StoreHealth& health) {
  return {{"url", display_url},
          {"state", health.up ? "up" : "down"},
          {"last_error", OrNull(health.last_error)},
          {"since_s", health.since == MonotonicTime{} ? 0 : SecondsSince(health.since)},
          {"agreement", AgreementJson(health.agreement)}};
}

std::map<std::string, TagSnapshot> AllTags(const std::vector<TagRecord>& records,
                                           std::vector<TagSnapshot> served,
                                           const DrainLedger::Scopes& drained) {
  std::map<std::string, TagSnapshot> tags;
  for (const TagRecord& record : records) {
    if (ParseCounterName(record.tag).has_value()) continue;  // of a worker id
    TagSnapshot& tag = tags[record.tag];
    tag.tag = record.tag;
    tag.mode = record.mode;
    tag.step = record.step;
    tag.snowflake = record.snowflake;
    tag.refill = record.refill;
    const bool is_drained = drained.contains(kWholeHost) || drained.contains(record.tag);
    tag.state = is_drained ? TagState::kDrained : TagState::kOk;
  }
  for (TagSnapshot& tag : served) tags[tag.tag] = std::move(tag);
  return tags;
}

}  // namespace idd::daemon
