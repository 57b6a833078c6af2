// SPDX-License-Identifier: Apache-2.0
//
// `audit`: checks that every leased id is accounted for. It reads one tag after the other, each at
// one moment, so that only one tag's journal is in memory. The journal is read over another
// connection than the one that takes leases, so the tag's rings are read before and after it. A
// finding is checked again, because a lease may have come and gone in between.
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

#include "admin/operations/ledger_audit.h"
#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

using LiveLeases = std::map<std::string, LeaseClosure, std::less<>>;

// A finding is reported when it was found this often ...
constexpr int kLooks = 4;
// ... with this much time in between: a commit whose answer was lost may come late.
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

struct AuditRun {
  std::optional<std::string> only;  // the one tag to audit, which must exist; nothing: all
  AuditScope scope = AuditScope::kThisHost;
  std::vector<std::string> tags;   // the last one is next
  std::vector<std::string> again;  // tags with findings
  int looks = 1;
  LiveLeases before;  // of the tag that is being read
  AuditReport report;
  AdminDone done;
};

void AuditNext(AdminContext& context, const std::shared_ptr<AuditRun>& run);

void EndAudit(AdminContext& context, AuditRun& run, const Status& status) {
  if (!status.ok()) {
    context.reports.Finish();
    return Fail(run.done, status);
  }
  context.reports.Write([report = std::move(run.report)] { return AuditText(report); }, run.done);
}

void OnAudited(AdminContext& context, const std::shared_ptr<AuditRun>& run, const std::string& tag,
               AuditReport report) {
  if (!report.ok() && run->looks < kLooks) {
    run->again.push_back(tag);
  } else {
    Append(std::move(report), run->report);
  }
  AuditNext(context, run);
}

void AuditTag(AdminContext& context, const std::shared_ptr<AuditRun>& run, const std::string& tag,
              Ledger ledger) {
  if (run->only.has_value() && ledger.tags.empty() && ledger.journal.empty()) {
    return EndAudit(context, *run, {Code::kNoSuchTag, "no such tag: '" + tag + "'"});
  }
  AuditInput input{.host = context.info.host_id,
                   .scope = run->scope,
                   .ledger = std::move(ledger),
                   .live = context.tags.LiveLeases(tag)};
  for (const auto& [token, lease] : input.live) {
    if (!run->before.contains(token)) input.newer.insert(token);
  }
  input.live.merge(run->before);
  context.reports.thread().Post([&context, run, tag, input = std::move(input)] {
    context.loop.Post(
        [&context, run, tag, report = RunAudit(input)] { OnAudited(context, run, tag, report); });
  });
}

void AuditNext(AdminContext& context, const std::shared_ptr<AuditRun>& run) {
  if (run->tags.empty() && run->again.empty()) return EndAudit(context, *run, Status::Ok());
  if (run->tags.empty()) {
    ++run->looks;
    run->tags.swap(run->again);
    return context.audit_pause.After(kBetweenLooks, [&context, run] { AuditNext(context, run); });
  }
  std::string tag = std::move(run->tags.back());
  run->tags.pop_back();
  run->before = context.tags.LiveLeases(tag);
  context.Read<Ledger>(
      [tag](StoreReader& store) { return store.ReadLedger(tag); },
      [&context, run, tag](Result<Ledger> ledger) {
        if (!ledger.ok()) return EndAudit(context, *run, ledger.status());
        // This job comes after the leases that were taken before the ledger was read, so they are
        // in a ring when it is done.
        context.worker.SubmitForMarks<bool>(
            [](HighWaterMarks&) -> Result<bool> { return true; },
            [&context, run, tag, ledger = std::move(ledger).value()](const Result<bool>&) mutable {
              AuditTag(context, run, tag, std::move(ledger));
            });
      });
}

}  // namespace

void Audit(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
           AdminDone done) {
  const auto only = TextField(request, "tag");
  const auto is_all_hosts = FlagField(request, "all_hosts");
  if (!only.ok()) return Fail(done, only.status());
  if (!is_all_hosts.ok()) return Fail(done, is_all_hosts.status());
  auto run = std::make_shared<AuditRun>();
  run->only = only.value();
  run->scope = is_all_hosts.value() ? AuditScope::kAllHosts : AuditScope::kThisHost;
  run->done = std::move(done);
  if (run->only.has_value()) {
    return context.reports.Begin([&context, run] {
      context.Read<std::vector<std::string>>(
          [tag = *run->only](StoreReader& store) { return store.RowsOf(tag); },
          [&context, run](Result<std::vector<std::string>> rows) {
            if (!rows.ok()) return EndAudit(context, *run, rows.status());
            if (rows.value().size() > 1) run->only.reset();  // its worker ids show that it exists
            run->tags = std::move(rows).value();
            AuditNext(context, run);
          });
    });
  }
  context.reports.Begin([&context, run, rights] {
    context.Read<std::set<std::string>>(
        [](StoreReader& store) { return store.LedgerTags(); },
        [&context, run, rights](Result<std::set<std::string>> tags) {
          if (!tags.ok()) return EndAudit(context, *run, tags.status());
          // A ring whose lease the journal lacks is a finding, and its tag may be known from
          // nowhere else.
          for (const auto& [token, lease] : context.tags.LiveLeases())
            tags.value().insert(lease.tag);
          for (const std::string& tag : tags.value()) {
            if (rights.MaySee(ServedName(tag))) run->tags.push_back(tag);
          }
          AuditNext(context, run);
        });
  });
}

}  // namespace idd::daemon
