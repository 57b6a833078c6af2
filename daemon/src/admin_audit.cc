// SPDX-License-Identifier: Apache-2.0
//
// Admin: whether every leased id is accounted for. One tag after the other, each as of one moment:
// the store's thread is free for leases in between, and no more than one tag's journal is in
// memory.
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "admin.h"
#include "admin_fields.h"
#include "audit.h"

namespace idd::daemon {
namespace {

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
  std::vector<std::string> tags;  // the last one is next
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
    worker_.Submit<std::set<std::string>>(
        [](Store& store, HighWaterMarks&) { return store.LedgerTags(); },
        [this, run, rights](Result<std::set<std::string>> tags) {
          if (!tags.ok()) return EndAudit(*run, tags.status());
          // A ring whose lease the journal lacks is a finding, its tag may be of nowhere else.
          for (const auto& [token, lease] : tags_.LiveLeases()) tags.value().insert(lease.tag);
          for (const std::string& tag : tags.value()) {
            if (rights.MaySee(tag)) run->tags.push_back(tag);
          }
          AuditNext(run);
        });
  });
}

void Admin::AuditNext(const std::shared_ptr<AuditRun>& run) {
  if (run->tags.empty()) return EndAudit(*run, Status::Ok());
  std::string tag = std::move(run->tags.back());
  run->tags.pop_back();
  worker_.Submit<Ledger>([tag](Store& store, HighWaterMarks&) { return store.ReadLedger(tag); },
                         [this, run, tag](Result<Ledger> ledger) {
                           if (!ledger.ok()) return EndAudit(*run, ledger.status());
                           AuditTag(run, tag, std::move(ledger).value());
                         });
}

void Admin::AuditTag(const std::shared_ptr<AuditRun>& run, const std::string& tag, Ledger ledger) {
  if (run->only.has_value() && ledger.tags.empty() && ledger.journal.empty()) {
    return EndAudit(*run, {Code::kNoSuchTag, "no such tag: '" + tag + "'"});
  }
  // Completions come in the order of their jobs: no lease of a later job is in a ring yet, and
  // those of all earlier ones are.
  AuditInput input{.host = info_.host_id,
                   .scope = run->scope,
                   .ledger = std::move(ledger),
                   .live = tags_.LiveLeases(tag)};
  report_thread_.Post([this, run, input = std::move(input)] {
    loop_.Post([this, run, report = RunAudit(input)]() mutable {
      Append(std::move(report), run->report);
      AuditNext(run);
    });
  });
}

void Admin::EndAudit(AuditRun& run, const Status& status) {
  if (!status.ok()) {
    FinishReport();
    return Fail(run.done, status);
  }
  MakeReport([report = std::move(run.report)] { return AuditText(report); }, run.done);
}

}  // namespace idd::daemon
