// SPDX-License-Identifier: Apache-2.0
//
// Admin: whether every leased id is accounted for. One tag after the other, each as of one moment,
// so that no more than one tag's journal is in memory. The journal is read over another connection
// than leases are taken with, so a tag is looked at together with its rings before and after; what
// is found is looked at again, as a lease may have come and gone in between.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "admin/admin.h"
#include "admin/admin_fields.h"
#include "admin/ledger_audit.h"

namespace idd::daemon {
namespace {

using LiveLeases = std::map<std::string, LeaseClosure, std::less<>>;

// A finding is reported when it was found this often ...
constexpr int kLooks = 4;
// ... with so much time in between: a commit whose answer was lost may come late.
constexpr std::chrono::seconds kBetweenLooks(2);

std::string AuditText(const AuditReport& report) {
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

void Append(AuditReport report, AuditReport& to) {
  to.tags.merge(report.tags);
  std::move(report.findings.begin(), report.findings.end(), std::back_inserter(to.findings));
}

}  // namespace

struct Admin::AuditRun {
  std::optional<std::string> only;  // it must be there
  AuditScope scope = AuditScope::kThisHost;
  std::vector<std::string> tags;   // the last one is next
  std::vector<std::string> again;  // with findings
  int looks = 1;
  LiveLeases before;  // of the tag that is being read
  AuditReport report;
  Done done;
};

void Admin::Audit(const Request& request, const PeerRights& rights, Done done) {
  const auto only = TextField(request, "tag");
  const auto is_all_hosts = FlagField(request, "all_hosts");
  if (!only.ok()) return Fail(done, only.status());
  if (!is_all_hosts.ok()) return Fail(done, is_all_hosts.status());
  auto run = std::make_shared<AuditRun>();
  run->only = only.value();
  run->scope = is_all_hosts.value() ? AuditScope::kAllHosts : AuditScope::kThisHost;
  run->done = std::move(done);
  if (run->only.has_value()) {
    run->tags = {*run->only};
    return QueueReport([this, run] { AuditNext(run); });
  }
  QueueReport([this, run, rights] {
    Read<std::set<std::string>>([](StoreReader& store) { return store.LedgerTags(); },
                                [this, run, rights](Result<std::set<std::string>> tags) {
                                  if (!tags.ok()) return EndAudit(*run, tags.status());
                                  // A ring whose lease the journal lacks is a finding, its tag may
                                  // be of nowhere else.
                                  for (const auto& [token, lease] : tags_.LiveLeases())
                                    tags.value().insert(lease.tag);
                                  for (const std::string& tag : tags.value()) {
                                    if (rights.MaySee(tag)) run->tags.push_back(tag);
                                  }
                                  AuditNext(run);
                                });
  });
}

void Admin::AuditNext(const std::shared_ptr<AuditRun>& run) {
  if (run->tags.empty() && run->again.empty()) return EndAudit(*run, Status::Ok());
  if (run->tags.empty()) {
    ++run->looks;
    run->tags.swap(run->again);
    return audit_pause_.After(kBetweenLooks, [this, run] { AuditNext(run); });
  }
  std::string tag = std::move(run->tags.back());
  run->tags.pop_back();
  run->before = tags_.LiveLeases(tag);
  Read<Ledger>([tag](StoreReader& store) { return store.ReadLedger(tag); },
               [this, run, tag](Result<Ledger> ledger) {
                 if (!ledger.ok()) return EndAudit(*run, ledger.status());
                 // Behind what was leased before the ledger was read, and is on its way to a ring.
                 worker_.SubmitForMarks<bool>(
                     [](HighWaterMarks&) -> Result<bool> { return true; },
                     [this, run, tag, ledger = std::move(ledger).value()](
                         const Result<bool>&) mutable { AuditTag(run, tag, std::move(ledger)); });
               });
}

void Admin::AuditTag(const std::shared_ptr<AuditRun>& run, const std::string& tag, Ledger ledger) {
  if (run->only.has_value() && ledger.tags.empty() && ledger.journal.empty()) {
    return EndAudit(*run, {Code::kNoSuchTag, "no such tag: '" + tag + "'"});
  }
  AuditInput input{.host = info_.host_id,
                   .scope = run->scope,
                   .ledger = std::move(ledger),
                   .live = tags_.LiveLeases(tag)};
  for (const auto& [token, lease] : input.live) {
    if (!run->before.contains(token)) input.newer.insert(token);
  }
  input.live.merge(run->before);
  report_thread_.Post([this, run, tag, input = std::move(input)] {
    loop_.Post([this, run, tag, report = RunAudit(input)] { OnAudited(run, tag, report); });
  });
}

void Admin::OnAudited(const std::shared_ptr<AuditRun>& run, const std::string& tag,
                      AuditReport report) {
  if (!report.ok() && run->looks < kLooks) {
    run->again.push_back(tag);
  } else {
    Append(std::move(report), run->report);
  }
  AuditNext(run);
}

void Admin::EndAudit(AuditRun& run, const Status& status) {
  if (!status.ok()) {
    FinishReport();
    return Fail(run.done, status);
  }
  MakeReport([report = std::move(run.report)] { return AuditText(report); }, run.done);
}

}  // namespace idd::daemon
