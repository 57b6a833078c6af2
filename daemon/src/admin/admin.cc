// SPDX-License-Identifier: Apache-2.0
#include "admin/admin.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/logging.h"

namespace idd::daemon {
namespace {

// Parsing a longer request may take as long as a hundred claims over the socket.
constexpr std::size_t kMaxParsedOnTheLoop = 1024;

// Checks the tag that a request names, whatever the operation. The operation itself refuses a
// missing or invalid tag.
Status CheckRights(const AdminRequest& request, Needs needs, const PeerRights& rights) {
  if (needs == Needs::kAdministerAll) return rights.RequireAll();
  const auto tag = request.find("tag");
  const bool is_named = tag != request.end() && tag->is_string();
  if (!is_named && needs == Needs::kAdministerScope) return rights.RequireAll();
  if (!is_named) return Status::Ok();
  const Access needed = needs == Needs::kSee ? Access::kSocket : Access::kAdmin;
  return rights.Require(needed, tag->get<std::string>());
}

// No samples if the store has no terms.
void AddAgreement(const AgreementReport& agreement, FamilyBuilder& families) {
  for (const Metric* const metric :
       {&metric::kTerm, &metric::kWitnesses, &metric::kWitnessesThere, &metric::kIsWitness}) {
    families.Declare(*metric);
  }
  if (agreement.state == "none") return;
  const auto& witnesses = agreement.witnesses;
  const auto there = std::count_if(witnesses.begin(), witnesses.end(),
                                   [](const auto& witness) { return witness.is_there; });
  families.Add(metric::kTerm, static_cast<double>(agreement.term));
  families.Add(metric::kWitnesses, static_cast<double>(witnesses.size()));
  families.Add(metric::kWitnessesThere, static_cast<double>(there));
  families.Add(metric::kIsWitness, agreement.is_witness ? 1 : 0);
}

}  // namespace

Admin::Admin(EventLoop& loop, DaemonInfo info, AdminParts parts)
    : started_at_(UnixTimeOf(info.started)),
      context_(loop, std::move(info), parts),
      cluster_metrics_(loop, context_.cluster, parts.is_keeper) {
  for (const AdminOperation& operation : kAdminOperations) requests_[operation.name] = 0;
  context_.metrics.AddSource([this](FamilyBuilder& families) { AddFamilies(families); });
  context_.metrics.SetClusterSource([this] { return cluster_metrics_.tags(); });
}

void Admin::SetDatabase(std::string display_url, std::string url) {
  context_.info.database_url = std::move(display_url);
  context_.info.database = std::move(url);
  context_.cluster.Forget();
}

// The request is counted before it is parsed: requests that wait for the parser are under way too.
void Admin::Handle(std::string request, const PeerRights& rights, AdminDone done) {
  if (!budget_.Begin(rights)) {
    Fail(done, {Code::kSystem, "idd has too many administration requests under way"});
    return;
  }
  AdminDone last = [this, uid = rights.peer().uid, done = std::move(done)](const Status& status,
                                                                           std::string document) {
    budget_.End(uid);
    done(status, std::move(document));
  };
  if (!is_held_) return Parse(std::move(request), rights, last);
  held_.emplace_back([this, text = std::move(request), rights, last = std::move(last)] {
    Parse(text, rights, last);
  });
}

void Admin::GoOn() {
  is_held_ = false;
  cluster_metrics_.Start();
  for (const std::function<void()>& request : std::exchange(held_, {})) request();
}

void Admin::Parse(std::string request, const PeerRights& rights, const AdminDone& done) {
  if (request.size() <= kMaxParsedOnTheLoop) return Do(ParseRequest(request), rights, done);
  parse_thread_.Post([this, text = std::move(request), rights, done] {
    // Shared, as a task has to be copyable.
    context_.loop.Post([this, rights, done,
                        parsed = std::make_shared<const Result<AdminRequest>>(ParseRequest(text))] {
      Do(*parsed, rights, done);
    });
  });
}

void Admin::Do(const Result<AdminRequest>& request, const PeerRights& rights,
               const AdminDone& done) {
  if (!request.ok()) {
    ++unknown_requests_;
    return Fail(done, request.status());
  }
  const auto op = request.value().find("op")->get<std::string>();
  const auto* const operation =
      std::find_if(kAdminOperations.begin(), kAdminOperations.end(),
                   [&op](const AdminOperation& known) { return known.name == op; });
  if (operation == kAdminOperations.end()) {
    ++unknown_requests_;
    return Fail(done, {Code::kInvalid, "unknown operation '" + op + "'"});
  }
  ++requests_[operation->name];
  Status allowed = CheckRights(request.value(), operation->needs, rights);
  if (!allowed.ok()) return Fail(done, allowed.WithContext(op));
  operation->handler(context_, request.value(), rights, done);
}

// The metrics of idd itself.
void Admin::AddFamilies(FamilyBuilder& families) const {
  families.Add(metric::kBuildInfo, 1, {{"version", context_.info.version}});
  families.Add(metric::kStartTime, started_at_);
  for (const auto& [operation, count] : requests_) {
    families.Add(metric::kAdminRequests, static_cast<double>(count),
                 {{"operation", std::string(operation)}});
  }
  families.Add(metric::kAdminRequests, static_cast<double>(unknown_requests_),
               {{"operation", "unknown"}});
  families.Declare(metric::kLogEvents);
  for (const log::EventCount& counted : log::Counts()) {
    const char* const level = counted.level == log::Level::kError ? "error" : "warning";
    families.Add(metric::kLogEvents, static_cast<double>(counted.count),
                 {{"event", counted.event}, {"level", level}});
  }
  families.Add(metric::kLogSuppressed, static_cast<double>(log::SuppressedLines()));
  AddAgreement(context_.tags.store_health().agreement, families);
  cluster_metrics_.AddFamilies(families);
}

}  // namespace idd::daemon
