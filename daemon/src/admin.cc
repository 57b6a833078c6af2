// SPDX-License-Identifier: Apache-2.0
#include "admin.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "admin_fields.h"

namespace idd::daemon {
namespace {

// Each may read the whole journal; peers that ask without end must not delay the leases for ever.
constexpr int kMaxInFlight = 64;
// Of those, for all who do not administer all tags: operators find room.
constexpr int kMaxOfUsers = 32;

// Both numbers of the promise, and whether what is held covers it at the rate that the policy
// reckons with.
Json PromiseJson(const TagSnapshot& tag, std::uint64_t available) {
  const auto tolerance_s = tag.refill.outage_tolerance.count();
  const double needed = tag.reckoned_per_s * static_cast<double>(tolerance_s);
  return {{"refill", RefillRuleName(tag.refill.rule)},
          {"outage_tolerance_s", tolerance_s},
          {"max_prefetch", tag.refill.max_prefetch},
          {"reckoned_per_s", tag.reckoned_per_s},
          {"kept", static_cast<double>(available) >= needed}};
}

Json SnapshotJson(const TagSnapshot& tag) {
  std::uint64_t available = 0;
  Json segments = Json::array();
  for (const LeaseUse& use : tag.leases) {
    available += use.available();
    segments.push_back({{"base", use.lease.ids.first},
                        {"limit", use.lease.ids.limit},
                        {"next", use.lease.ids.first + use.claimed}});
  }
  const bool idle = tag.rate_per_s < 0.01;
  return {
      {"tag", tag.tag},
      {"mode", tag.mode},
      {"step", tag.step},
      {"state", tag.state},
      {"claimed", tag.claimed},
      {"available", available},
      {"segments", std::move(segments)},
      {"rate_per_s", idle ? 0.0 : tag.rate_per_s},
      {"covered_s", idle ? Json(nullptr) : Json(static_cast<double>(available) / tag.rate_per_s)},
      {"promise", PromiseJson(tag, available)},
      {"exhausted_in_days",
       tag.exhausted_in_days.has_value() ? Json(*tag.exhausted_in_days) : Json(nullptr)},
      {"fallbacks", tag.fallbacks},
      {"leases", tag.leases_taken},
      {"last_error", tag.last_error.empty() ? Json(nullptr) : Json(tag.last_error)}};
}

}  // namespace

Admin::Admin(EventLoop& loop, DaemonInfo info, LeaseWorker& worker, TagService& tags)
    : info_(std::move(info)),
      started_at_(UnixTimeOf(info_.started)),
      worker_(worker),
      tags_(tags),
      loop_(loop),
      metrics_(loop, tags) {
  metrics_.AddSource([this](FamilyBuilder& families) { AddFamilies(families); });
}

Admin::~Admin() = default;

const std::map<std::string, Admin::Entry, std::less<>>& Admin::Operations() {
  static const std::map<std::string, Entry, std::less<>> operations = {
      {"tag.create", {&Admin::CreateTag, Needs::kAdministerTag}},
      {"tag.list", {&Admin::ListTags, Needs::kSee}},
      {"tag.show", {&Admin::ShowTag, Needs::kSee}},
      {"tag.set", {&Admin::ChangeTag, Needs::kAdministerTag}},
      {"tag.delete", {&Admin::DeleteTag, Needs::kAdministerTag}},
      {"status", {&Admin::ShowStatus, Needs::kSee}},
      {"lease.list", {&Admin::ListLeases, Needs::kSee}},
      {"host.list", {&Admin::ListHosts, Needs::kSee}},
      {"audit", {&Admin::Audit, Needs::kSee}},
      {"whois", {&Admin::WhoIs, Needs::kSee}},
      {"import", {&Admin::Import, Needs::kAdministerAll}},
      {"import.progress", {&Admin::ShowImportProgress, Needs::kAdministerAll}},
      {"doctor", {&Admin::Diagnose, Needs::kSee}},
      {"metrics", {&Admin::ShowMetrics, Needs::kSee}},
      {"client.list", {&Admin::ListClients, Needs::kSee}},
      {"drain", {&Admin::Drain, Needs::kAdministerScope}},
      {"resume", {&Admin::Resume, Needs::kAdministerScope}}};
  return operations;
}

// A tag that is named is checked here, whichever operation it is; one that should be and is not, or
// makes no sense, is the operation's to refuse.
Status Admin::CheckRights(const Request& request, Needs needs, const PeerRights& rights) {
  if (needs == Needs::kAdministerAll) return rights.RequireAll();
  const auto tag = request.find("tag");
  const bool is_named = tag != request.end() && tag->is_string();
  if (!is_named && needs == Needs::kAdministerScope) return rights.RequireAll();
  if (!is_named) return Status::Ok();
  const Access needed = needs == Needs::kSee ? Access::kSocket : Access::kAdmin;
  return rights.Require(needed, tag->get<std::string>());
}

void Admin::SetDatabase(std::string display_url, std::string url) {
  info_.database_url = std::move(display_url);
  info_.database = std::move(url);
}

void Admin::Handle(const std::string& request, const PeerRights& rights, Done done) {
  const Request parsed = Request::parse(request, nullptr, false);
  const auto op = parsed.is_object() ? parsed.find("op") : parsed.end();
  if (!parsed.is_object() || op == parsed.end() || !op->is_string()) {
    ++requests_[""];
    Fail(done, {Code::kInvalid, "the request is not a JSON object with an 'op'"});
    return;
  }
  const auto entry = Operations().find(op->get<std::string>());
  if (entry == Operations().end()) {
    ++requests_[""];
    Fail(done, {Code::kInvalid, "unknown operation '" + op->get<std::string>() + "'"});
    return;
  }
  ++requests_[entry->first];
  Status allowed = CheckRights(parsed, entry->second.needs, rights);
  if (!allowed.ok()) return Fail(done, allowed.WithContext(entry->first));
  if (in_flight_ >= (rights.AdministersAll() ? kMaxInFlight : kMaxOfUsers)) {
    Fail(done, {Code::kSystem, "idd has too many administration requests under way"});
    return;
  }
  ++in_flight_;
  (this->*entry->second.operation)(
      parsed, rights,
      [this, done = std::move(done)](const Status& status, const std::string& document) {
        --in_flight_;
        done(status, document);
      });
}

Json Admin::DaemonJson() const {
  const auto uptime =
      std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - info_.started);
  return {{"version", info_.version},   {"pid", ::getpid()},
          {"uptime_s", uptime.count()}, {"host_id", info_.host_id},
          {"socket", info_.socket},     {"drained", tags_.drains().Has(kWholeHost)}};
}

Json Admin::DatabaseJson() const {
  const StoreHealth& health = tags_.store_health();
  const auto since =
      std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - health.since);
  return {{"url", info_.database_url},
          {"state", health.up ? "up" : "down"},
          {"last_error", health.last_error.empty() ? Json(nullptr) : Json(health.last_error)},
          {"since_s", health.since == MonotonicTime{} ? 0 : since.count()}};
}

// The tags of the store and, while it is away, those that this daemon serves.
Json Admin::TagsJson(const std::vector<TagRecord>& records, const Shows& shows) const {
  std::map<std::string, TagSnapshot> tags;
  for (const TagRecord& record : records) {
    TagSnapshot& tag = tags[record.tag];
    tag.tag = record.tag;
    tag.mode = record.mode;
    tag.step = record.step;
    tag.refill = record.refill;
    tag.state = tags_.drains().IsDrained(record.tag) ? "drained" : "ok";
  }
  for (TagSnapshot& snapshot : tags_.Snapshot()) tags[snapshot.tag] = std::move(snapshot);
  Json array = Json::array();
  for (const auto& [name, tag] : tags) {
    if (shows(name)) array.push_back(SnapshotJson(tag));
  }
  return array;
}

Json Admin::StatusJson(Json tags) const {
  return {{"daemon", DaemonJson()},
          {"database", DatabaseJson()},
          {"tags", std::move(tags)},
          {"tags_version", tags_.tags_version()}};
}

void Admin::ShowStatus(const Request& request, const PeerRights& rights, Done done) {
  const auto only = TextField(request, "tag");
  const auto which = TextField(request, "tags");
  if (!only.ok()) return Fail(done, only.status());
  if (!which.ok()) return Fail(done, which.status());
  if (which.value().value_or("all") == "unobserved" && !only.value().has_value()) {
    return ShowUnobserved(rights, done);
  }
  if (which.value().value_or("all") != "all") {
    return Fail(done, {Code::kInvalid, "'tags' must be 'all', or 'unobserved' without a 'tag'"});
  }
  const auto answer = [this, rights, only = only.value(),
                       done = std::move(done)](const Result<std::vector<TagRecord>>& records) {
    Json tags = TagsJson(records.ok() ? records.value() : std::vector<TagRecord>(),
                         [&](const std::string& tag) {
                           return only.has_value() ? tag == *only : rights.MaySee(tag);
                         });
    if (only.has_value() && tags.empty() && records.ok()) {
      return Fail(done, {Code::kNoSuchTag, "no such tag: '" + *only + "'"});
    }
    done(Status::Ok(), Dump(StatusJson(std::move(tags))));
  };
  // While the store is away its jobs are slow to fail, and what is served does not depend on it.
  if (!tags_.store_health().up) return answer(Status(Code::kUnavailable, "the store is down"));
  worker_.Submit<std::vector<TagRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListTags(); }, answer);
}

// For those who see the others' rings themselves, and often: the store is not asked.
void Admin::ShowUnobserved(const PeerRights& rights, const Done& done) const {
  const auto may_observe = [&rights](const std::string& tag) {
    return rights.Has(Access::kShm, tag);
  };
  Json tags = Json::array();
  for (const TagSnapshot& tag : tags_.Unobserved(may_observe)) {
    if (rights.MaySee(tag.tag)) tags.push_back(SnapshotJson(tag));
  }
  done(Status::Ok(), Dump(StatusJson(std::move(tags))));
}

void Admin::QueueReport(std::function<void()> start) {
  if (reporting_) {
    waiting_reports_.push_back(std::move(start));
    return;
  }
  reporting_ = true;
  start();
}

void Admin::FinishReport() {
  reporting_ = false;
  if (waiting_reports_.empty()) return;
  const std::function<void()> next = std::move(waiting_reports_.front());
  waiting_reports_.pop_front();
  QueueReport(next);
}

void Admin::MakeReport(std::function<std::string()> make, Done done) {
  report_thread_.Post([this, make = std::move(make), done = std::move(done)] {
    loop_.Post([this, text = make(), done] {
      FinishReport();
      done(Status::Ok(), text);
    });
  });
}

}  // namespace idd::daemon
