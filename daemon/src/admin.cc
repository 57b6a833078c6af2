// SPDX-License-Identifier: Apache-2.0
#include "admin.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "audit.h"
#include "idd/wire/frames.h"
#include "logging.h"

namespace idd::daemon {
namespace {

using Request = nlohmann::json;
using Json = nlohmann::ordered_json;  // the keys in the order they are written here

// Each may read the whole journal; peers that ask without end must not delay the leases for ever.
constexpr int kMaxInFlight = 64;
// Leases in one answer to lease.list: what is asked for, at most, and without a word.
constexpr std::uint64_t kMaxListedLeases = 1'000'000;
constexpr std::uint64_t kDefaultListedLeases = 10'000;

std::string Dump(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Fail(const Admin::Done& done, const Status& status) {
  // UNAVAILABLE tells a client that idd is out of reach; here it is the store that is.
  const Status told = status.code() == Code::kUnavailable
                          ? Status(Code::kSystem, "the store is not available: " + status.message())
                          : status;
  done(told, Dump({{"error", told.message()}}));
}

// A request's field, or nothing when it is absent. kInvalid when it has another type.
Result<std::optional<std::string>> TextField(const Request& request, const char* key) {
  const auto it = request.find(key);
  if (it == request.end() || it->is_null()) return std::optional<std::string>();
  if (!it->is_string())
    return Status(Code::kInvalid, std::string("'") + key + "' must be a string");
  return std::optional<std::string>(it->get<std::string>());
}

Result<std::optional<std::uint64_t>> NumberField(const Request& request, const char* key) {
  const auto it = request.find(key);
  if (it == request.end() || it->is_null()) return std::optional<std::uint64_t>();
  if (!it->is_number_unsigned()) {
    return Status(Code::kInvalid, std::string("'") + key + "' must be a whole number, 0 or more");
  }
  return std::optional<std::uint64_t>(it->get<std::uint64_t>());
}

Result<std::string> TagField(const Request& request) {
  Result<std::optional<std::string>> tag = TextField(request, "tag");
  if (!tag.ok()) return tag.status();
  if (!tag.value().has_value()) return Status(Code::kInvalid, "'tag' is missing");
  if (Status status = wire::CheckTagName(*tag.value()); !status.ok()) return status;
  return *std::move(tag.value());
}

// Nothing when the field is absent.
Result<std::optional<TagAccess>> AccessField(const Request& request) {
  const Result<std::optional<std::string>> name = TextField(request, "access");
  if (!name.ok()) return name.status();
  if (!name.value().has_value()) return std::optional<TagAccess>();
  const std::optional<TagAccess> access = ParseTagAccess(*name.value());
  if (access.has_value()) return access;
  return Status(Code::kInvalid,
                "unknown access '" + *name.value() + "'; ring and socket are available");
}

Result<RefillChange> RefillFields(const Request& request) {
  const auto rule = TextField(request, "refill");
  const auto max_step = NumberField(request, "max_step");
  const auto max_prefetch = NumberField(request, "max_prefetch");
  const auto tolerance = NumberField(request, "outage_tolerance_s");
  for (const Status& status :
       {rule.status(), max_step.status(), max_prefetch.status(), tolerance.status()}) {
    if (!status.ok()) return status;
  }
  RefillChange refill{.max_step = max_step.value(), .max_prefetch = max_prefetch.value()};
  if (rule.value().has_value()) {
    refill.rule = ParseRefillRule(*rule.value());
    if (!refill.rule.has_value()) {
      return Status(Code::kInvalid,
                    "unknown refill '" + *rule.value() + "'; promise and leaf are available");
    }
  }
  if (tolerance.value().has_value()) {
    // Beyond what a signed number of seconds can hold it is as wrong as one second too long.
    const auto longest = static_cast<std::uint64_t>(kMaxOutageTolerance.count()) + 1;
    refill.outage_tolerance = std::chrono::seconds(std::min(*tolerance.value(), longest));
  }
  return refill;
}

Json TagJson(const TagRecord& record) {
  return {{"tag", record.tag},
          {"mode", record.mode},
          {"access", TagAccessName(record.access)},
          {"step", record.step},
          {"refill", RefillRuleName(record.refill.rule)},
          {"max_step", record.refill.max_step},
          {"max_prefetch", record.refill.max_prefetch},
          {"outage_tolerance_s", record.refill.outage_tolerance.count()},
          {"next_id", record.next_id},
          {"max_id", record.max_id},
          {"description", record.description},
          {"update_time", record.update_time}};
}

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

Json LeaseJson(const LeaseRecord& lease) {
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
          {"closed_at", lease.closed_at.empty() ? Json(nullptr) : Json(lease.closed_at)}};
}

Result<NewTag> ReadNewTag(const Request& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
  const auto mode = TextField(request, "mode");
  const auto access = AccessField(request);
  const auto description = TextField(request, "description");
  const auto step = NumberField(request, "step");
  const auto start = NumberField(request, "start");
  const auto max_id = NumberField(request, "max_id");
  auto refill = RefillFields(request);
  for (const Status& status : {mode.status(), access.status(), description.status(), step.status(),
                               start.status(), max_id.status(), refill.status()}) {
    if (!status.ok()) return status;
  }
  NewTag created;
  created.tag = std::move(tag).value();
  created.mode = mode.value().value_or("segment");
  if (created.mode == "snowflake" || created.mode == "ticket") {
    return Status(Code::kInvalid, "mode " + created.mode + " is not available in this version");
  }
  if (created.mode != "segment") {
    return Status(Code::kInvalid, "unknown mode '" + created.mode + "'; segment is available");
  }
  created.step = step.value().value_or(kDefaultStep);
  created.start = start.value();
  created.max_id = max_id.value();
  created.description = description.value().value_or("");
  created.access = access.value().value_or(TagAccess::kRing);
  created.refill = std::move(refill).value();
  return created;
}

Result<TagChange> ReadTagChange(const Request& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
  const auto description = TextField(request, "description");
  const auto step = NumberField(request, "step");
  const auto max_id = NumberField(request, "max_id");
  const auto access = AccessField(request);
  const auto refill = RefillFields(request);
  for (const Status& status :
       {description.status(), step.status(), max_id.status(), access.status(), refill.status()}) {
    if (!status.ok()) return status;
  }
  return TagChange{.tag = std::move(tag).value(),
                   .step = step.value(),
                   .max_id = max_id.value(),
                   .description = description.value(),
                   .access = access.value(),
                   .refill = refill.value()};
}

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

Admin::Admin(boost::asio::io_context& loop, DaemonInfo info, LeaseWorker& worker, TagService& tags)
    : info_(std::move(info)), worker_(worker), tags_(tags), loop_(loop) {}

Admin::~Admin() = default;

const std::map<std::string, Admin::Entry, std::less<>>& Admin::Operations() {
  static const std::map<std::string, Entry, std::less<>> operations = {
      {"tag.create", {&Admin::CreateTag, true}},
      {"tag.list", {&Admin::ListTags, false}},
      {"tag.show", {&Admin::ShowTag, false}},
      {"tag.set", {&Admin::ChangeTag, true}},
      {"tag.delete", {&Admin::DeleteTag, true}},
      {"status", {&Admin::ShowStatus, false}},
      {"lease.list", {&Admin::ListLeases, false}},
      {"host.list", {&Admin::ListHosts, false}},
      {"audit", {&Admin::Audit, false}}};
  return operations;
}

void Admin::Handle(const std::string& request, bool may_change, Done done) {
  const Request parsed = Request::parse(request, nullptr, false);
  const auto op = parsed.is_object() ? parsed.find("op") : parsed.end();
  if (!parsed.is_object() || op == parsed.end() || !op->is_string()) {
    Fail(done, {Code::kInvalid, "the request is not a JSON object with an 'op'"});
    return;
  }
  const auto entry = Operations().find(op->get<std::string>());
  if (entry == Operations().end()) {
    Fail(done, {Code::kInvalid, "unknown operation '" + op->get<std::string>() + "'"});
    return;
  }
  if (entry->second.changes && !may_change) {
    Fail(done, {Code::kDenied, entry->first + " is for root and the user that idd runs as"});
    return;
  }
  if (in_flight_ >= kMaxInFlight) {
    Fail(done, {Code::kSystem, "idd has too many administration requests under way"});
    return;
  }
  ++in_flight_;
  (this->*entry->second.operation)(
      parsed, [this, done = std::move(done)](const Status& status, const std::string& document) {
        --in_flight_;
        done(status, document);
      });
}

void Admin::CreateTag(const Request& request, Done done) {
  Result<NewTag> tag = ReadNewTag(request);
  if (!tag.ok()) return Fail(done, tag.status());
  worker_.Submit<TagRecord>(
      [tag = std::move(tag).value()](Store& store, HighWaterMarks&) {
        return store.CreateTag(tag);
      },
      [done = std::move(done)](const Result<TagRecord>& record) {
        if (!record.ok()) return Fail(done, record.status());
        log::Info("tag.created", {{"tag", record.value().tag}, {"step", record.value().step}});
        done(Status::Ok(), Dump({{"tag", TagJson(record.value())}}));
      });
}

void Admin::ListTags(const Request& /*request*/, Done done) {
  worker_.Submit<std::vector<TagRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListTags(); },
      [done = std::move(done)](const Result<std::vector<TagRecord>>& records) {
        if (!records.ok()) return Fail(done, records.status());
        Json tags = Json::array();
        for (const TagRecord& record : records.value()) tags.push_back(TagJson(record));
        done(Status::Ok(), Dump({{"tags", std::move(tags)}}));
      });
}

void Admin::ShowTag(const Request& request, Done done) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  worker_.Submit<Json>(
      [tag = std::move(tag).value()](Store& store, HighWaterMarks&) -> Result<Json> {
        const Result<TagRecord> record = store.FindTag(tag);
        if (!record.ok()) return record.status();
        const Result<std::vector<ReturnedRange>> returned = store.ListReturned(tag);
        if (!returned.ok()) return returned.status();
        Json document = TagJson(record.value());
        document["returned"] = Json::array();
        for (const ReturnedRange& range : returned.value()) {
          document["returned"].push_back(
              {{"host", range.host}, {"base", range.ids.first}, {"limit", range.ids.limit}});
        }
        return document;
      },
      [done = std::move(done)](const Result<Json>& document) {
        if (!document.ok()) return Fail(done, document.status());
        done(Status::Ok(), Dump({{"tag", document.value()}}));
      });
}

void Admin::ChangeTag(const Request& request, Done done) {
  Result<TagChange> change = ReadTagChange(request);
  if (!change.ok()) return Fail(done, change.status());
  worker_.Submit<TagRecord>([change = std::move(change).value()](
                                Store& store, HighWaterMarks&) { return store.ChangeTag(change); },
                            [this, done = std::move(done)](const Result<TagRecord>& record) {
                              if (!record.ok()) return Fail(done, record.status());
                              tags_.OnTagChanged(record.value());
                              log::Info("tag.changed",
                                        {{"tag", record.value().tag},
                                         {"step", record.value().step},
                                         {"access", TagAccessName(record.value().access)}});
                              done(Status::Ok(), Dump({{"tag", TagJson(record.value())}}));
                            });
}

void Admin::DeleteTag(const Request& request, Done done) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const auto force = request.find("force");
  if (force == request.end() || *force != true) {
    return Fail(done, {Code::kInvalid, "deleting a tag needs \"force\": true"});
  }
  worker_.Submit<bool>(
      [tag = tag.value()](Store& store, HighWaterMarks&) -> Result<bool> {
        if (Status status = store.DeleteTag(tag); !status.ok()) return status;
        return true;
      },
      [this, tag = tag.value(), done = std::move(done)](const Result<bool>& deleted) {
        if (!deleted.ok()) return Fail(done, deleted.status());
        tags_.OnTagDeleted(tag);
        log::Warning("tag.deleted", {{"tag", tag}});
        done(Status::Ok(), Dump({{"deleted", tag}}));
      });
}

Json Admin::DaemonJson() const {
  const auto uptime =
      std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - info_.started);
  return {{"version", info_.version},
          {"pid", ::getpid()},
          {"uptime_s", uptime.count()},
          {"host_id", info_.host_id},
          {"socket", info_.socket}};
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
Json Admin::TagsJson(const std::vector<TagRecord>& records,
                     const std::optional<std::string>& only) const {
  std::map<std::string, TagSnapshot> tags;
  for (const TagRecord& record : records) {
    TagSnapshot& tag = tags[record.tag];
    tag.mode = record.mode;
    tag.step = record.step;
    tag.refill = record.refill;
    tag.state = "ok";
  }
  for (TagSnapshot& snapshot : tags_.Snapshot()) tags[snapshot.tag] = std::move(snapshot);
  Json array = Json::array();
  for (const auto& [name, tag] : tags) {
    if (only.has_value() && name != *only) continue;
    std::uint64_t available = 0;
    Json segments = Json::array();
    for (const LeaseUse& use : tag.leases) {
      available += use.available();
      segments.push_back({{"base", use.lease.ids.first},
                          {"limit", use.lease.ids.limit},
                          {"next", use.lease.ids.first + use.claimed}});
    }
    const bool idle = tag.rate_per_s < 0.01;
    array.push_back(
        {{"tag", name},
         {"mode", tag.mode},
         {"step", tag.step},
         {"state", tag.state},
         {"claimed", tag.claimed},
         {"available", available},
         {"segments", std::move(segments)},
         {"rate_per_s", idle ? 0.0 : tag.rate_per_s},
         {"covered_s",
          idle ? Json(nullptr) : Json(static_cast<double>(available) / tag.rate_per_s)},
         {"promise", PromiseJson(tag, available)},
         {"exhausted_in_days",
          tag.exhausted_in_days.has_value() ? Json(*tag.exhausted_in_days) : Json(nullptr)},
         {"fallbacks", tag.fallbacks},
         {"leases", tag.leases_taken},
         {"last_error", tag.last_error.empty() ? Json(nullptr) : Json(tag.last_error)}});
  }
  return array;
}

void Admin::ShowStatus(const Request& request, Done done) {
  const auto only = TextField(request, "tag");
  if (!only.ok()) return Fail(done, only.status());
  const auto answer = [this, only = only.value(),
                       done = std::move(done)](const Result<std::vector<TagRecord>>& records) {
    Json tags = TagsJson(records.ok() ? records.value() : std::vector<TagRecord>(), only);
    if (only.has_value() && tags.empty() && records.ok()) {
      return Fail(done, {Code::kNoSuchTag, "no such tag: '" + *only + "'"});
    }
    done(Status::Ok(),
         Dump({{"daemon", DaemonJson()}, {"database", DatabaseJson()}, {"tags", std::move(tags)}}));
  };
  // While the store is away its jobs are slow to fail, and what is served does not depend on it.
  if (!tags_.store_health().up) return answer(Status(Code::kUnavailable, "the store is down"));
  worker_.Submit<std::vector<TagRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListTags(); }, answer);
}

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
  boost::asio::post(report_thread_, [this, make = std::move(make), done = std::move(done)] {
    boost::asio::post(loop_, [this, text = make(), done] {
      FinishReport();
      done(Status::Ok(), text);
    });
  });
}

}  // namespace idd::daemon
