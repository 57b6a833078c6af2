// SPDX-License-Identifier: Apache-2.0
#include "admin/admin.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "admin/admin_fields.h"

namespace idd::daemon {
namespace {

// Each may read the whole journal; peers that ask without end must not delay the leases
// indefinitely.
constexpr int kMaxInFlight = 64;
// Of those, for all who do not administer all tags: operators find room.
constexpr int kMaxOfUsers = 32;
// Of those, for one of them: the others find room.
constexpr int kMaxOfOneUser = 16;
// Parsing what is longer may take as long as a hundred claims by the socket.
constexpr std::size_t kMaxParsedOnTheLoop = 1024;

// How long `status` waits for the store, unless the request says otherwise.
constexpr std::uint64_t kStatusPatienceMs = 500;
constexpr std::uint64_t kMaxStatusPatienceMs = 600'000;

// Below so many ids a second a tag is shown as idle.
constexpr double kIdlePerSecond = 0.01;

// Both numbers of the promise, how long it is now at the present rate, and whether what is to be
// held for it is held.
Json PromiseJson(const TagSnapshot& tag, std::uint64_t available) {
  const Json length_s = tag.rate_per_s < kIdlePerSecond
                            ? Json(nullptr)
                            : Json(PromiseSeconds(tag.refill, tag.promised_ids, tag.rate_per_s));
  return {{"refill", RefillRuleName(tag.refill.rule)},
          {"outage_tolerance_s", tag.refill.outage_tolerance.count()},
          {"length_s", length_s},
          {"max_prefetch", tag.refill.max_prefetch},
          {"reckoned_per_s", tag.reckoned_per_s},
          {"kept", static_cast<double>(available) >= tag.promised_ids}};
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
  const bool idle = tag.rate_per_s < kIdlePerSecond;
  return {
      {"tag", tag.tag},
      {"mode", tag.mode},
      {"step", tag.step},
      {"state", TagStateName(tag.state)},
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

// Answered by what comes first, the store's list or the end of the patience.
struct Admin::StatusCall {
  StatusCall(EventLoop& loop, PeerRights peer_rights, std::optional<std::string> only_tag,
             Done when_done)
      : rights(std::move(peer_rights)),
        only(std::move(only_tag)),
        done(std::move(when_done)),
        patience(loop) {}

  const PeerRights rights;
  const std::optional<std::string> only;
  const Done done;
  Timer patience;
  bool is_answered = false;
};

Admin::Admin(EventLoop& loop, DaemonInfo info, Parts parts)
    : info_(std::move(info)),
      started_at_(UnixTimeOf(info_.started)),
      worker_(parts.worker),
      tags_(parts.tags),
      clients_(parts.clients),
      loop_(loop),
      count_peers_(std::move(parts.count_peers)),
      metrics_(parts.metrics),
      audit_pause_(loop),
      open_reader_(std::move(parts.open_reader)) {
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
      {"host.forget", {&Admin::ForgetHost, Needs::kAdministerAll}},
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

// Before it is parsed: requests that wait for that are under way, too.
bool Admin::HasRoomFor(const PeerRights& rights) const {
  if (rights.AdministersAll()) return in_flight_ < kMaxInFlight;
  const auto of_user = in_flight_of_.find(rights.peer().uid);
  return in_flight_ < kMaxOfUsers &&
         (of_user == in_flight_of_.end() || of_user->second < kMaxOfOneUser);
}

void Admin::Handle(std::string request, const PeerRights& rights, Done done) {
  if (!HasRoomFor(rights)) {
    Fail(done, {Code::kSystem, "idd has too many administration requests under way"});
    return;
  }
  ++in_flight_;
  const uid_t uid = rights.peer().uid;
  ++in_flight_of_[uid];
  Done last = [this, uid, done = std::move(done)](const Status& status,
                                                  const std::string& document) {
    --in_flight_;
    if (--in_flight_of_[uid] == 0) in_flight_of_.erase(uid);
    done(status, document);
  };
  if (!is_held_) return Parse(std::move(request), rights, last);
  held_.emplace_back([this, text = std::move(request), rights, last = std::move(last)] {
    Parse(text, rights, last);
  });
}

void Admin::GoOn() {
  is_held_ = false;
  for (const std::function<void()>& request : std::exchange(held_, {})) request();
}

void Admin::Parse(std::string request, const PeerRights& rights, const Done& done) {
  if (request.size() <= kMaxParsedOnTheLoop) return Do(ParseRequest(request), rights, done);
  parse_thread_.Post([this, text = std::move(request), rights, done] {
    // Shared, as a task has to be copyable.
    loop_.Post([this, parsed = std::make_shared<const Result<Request>>(ParseRequest(text)), rights,
                done] { Do(*parsed, rights, done); });
  });
}

void Admin::Do(const Result<Request>& request, const PeerRights& rights, const Done& done) {
  if (!request.ok()) {
    ++requests_[""];
    return Fail(done, request.status());
  }
  const auto op = request.value().find("op")->get<std::string>();
  const auto entry = Operations().find(op);
  if (entry == Operations().end()) {
    ++requests_[""];
    return Fail(done, {Code::kInvalid, "unknown operation '" + op + "'"});
  }
  ++requests_[entry->first];
  Status allowed = CheckRights(request.value(), entry->second.needs, rights);
  if (!allowed.ok()) return Fail(done, allowed.WithContext(entry->first));
  (this->*entry->second.operation)(request.value(), rights, done);
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
          {"since_s", health.since == MonotonicTime{} ? 0 : since.count()},
          {"fence", FenceJson(health.fence)}};
}

Json Admin::FenceJson(const FenceReport& fence) {
  if (fence.state == "none") return nullptr;
  Json waits = Json::array();
  for (const FenceWait& wait : fence.waits) {
    waits.push_back({{"host", wait.host},
                     {"silent_s", wait.silent_ms / 1000},
                     {"left_s", wait.left_ms ? Json(*wait.left_ms / 1000) : Json(nullptr)}});
  }
  return {{"state", fence.state},
          {"waits_for", std::move(waits)},
          {"reason", fence.reason.empty() ? Json(nullptr) : Json(fence.reason)}};
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
    tag.state = tags_.drains().IsDrained(record.tag) ? TagState::kDrained : TagState::kOk;
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
  const auto wait_ms = NumberField(request, "wait_ms");
  if (!wait_ms.ok()) return Fail(done, wait_ms.status());
  const std::uint64_t patience_ms = wait_ms.value().value_or(kStatusPatienceMs);
  if (patience_ms > kMaxStatusPatienceMs) {
    return Fail(
        done, {Code::kInvalid, "'wait_ms' must be at most " + std::to_string(kMaxStatusPatienceMs) +
                                   ", got " + std::to_string(patience_ms)});
  }
  const auto call = std::make_shared<StatusCall>(loop_, rights, only.value(), std::move(done));
  // While the store is down its jobs are slow to fail, and what is served does not depend on it.
  if (!tags_.store_health().up) {
    return AnswerStatus(*call, Status(Code::kUnavailable, "the store is down"));
  }
  call->patience.After(std::chrono::milliseconds(patience_ms), [this, call, patience_ms] {
    AnswerStatus(*call, Status(Code::kTimeout, "the store has not listed its tags within " +
                                                   std::to_string(patience_ms) +
                                                   " ms; is it locked or slow?"));
  });
  to_list_.push_back(call);
  ListForStatus();
}

void Admin::ListForStatus() {
  std::erase_if(to_list_, [](const auto& call) { return call->is_answered; });
  if (is_listing_ || to_list_.empty()) return;
  is_listing_ = true;
  listing_ = std::exchange(to_list_, {});
  worker_.Submit<std::vector<TagRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListTags(); },
      [this](const Result<std::vector<TagRecord>>& records) { OnListed(records); });
}

void Admin::OnListed(const Result<std::vector<TagRecord>>& records) {
  is_listing_ = false;
  for (const auto& call : std::exchange(listing_, {})) AnswerStatus(*call, records);
  ListForStatus();
}

void Admin::AnswerStatus(StatusCall& call, const Result<std::vector<TagRecord>>& records) const {
  if (call.is_answered) return;
  call.is_answered = true;
  call.patience.Cancel();
  const std::optional<std::string>& only = call.only;
  Json tags = TagsJson(records.ok() ? records.value() : std::vector<TagRecord>(),
                       [&](const std::string& tag) {
                         return only.has_value() ? tag == *only : call.rights.MaySee(tag);
                       });
  if (only.has_value() && tags.empty() && records.ok()) {
    return Fail(call.done, {Code::kNoSuchTag, "no such tag: '" + *only + "'"});
  }
  const bool is_late = records.status().code() == Code::kTimeout;
  if (only.has_value() && tags.empty() && is_late) {
    return Fail(call.done, {Code::kSystem, records.status().message()});
  }
  Json document = StatusJson(std::move(tags));
  // A store that hangs is not down yet: the first job that it fails is still under way.
  Json& error = document["database"]["last_error"];
  if (is_late && error.is_null()) error = records.status().message();
  call.done(Status::Ok(), Dump(document));
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
  if (waiting_reports_.empty()) {
    if (reads_under_way_ == 0) report_thread_.Post([this] { reader_.reset(); });
    return;
  }
  const std::function<void()> next = std::move(waiting_reports_.front());
  waiting_reports_.pop_front();
  QueueReport(next);
}

// On the report thread.
Result<StoreReader*> Admin::OpenToRead(const std::string& url) {
  if (reader_ != nullptr && reader_url_ == url) return reader_.get();
  reader_.reset();
  Result<std::unique_ptr<StoreReader>> reader = open_reader_(url);
  if (!reader.ok()) return reader.status();
  reader_ = std::move(reader).value();
  reader_url_ = url;
  return reader_.get();
}

void Admin::OnRead() {
  if (--reads_under_way_ > 0 || reporting_) return;
  report_thread_.Post([this] { reader_.reset(); });
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
