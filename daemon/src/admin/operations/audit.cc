// SPDX-License-Identifier: Apache-2.0
//
// `audit`: checks that every leased id is accounted for. It reads one tag after the other, each at
// one moment: the sums of its leases, and so many of the leases themselves that a fixed amount of
// memory is enough. The journal is read over another connection than the one that takes leases, so
// the tag's rings are read before and after it. A finding is checked again, because a lease may
// have come and gone in between.
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
#include "idd/base/clock.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

using LiveLeases = std::map<std::string, LeaseClosure, std::less<>>;

// A finding is reported when the same one was found this often ...
constexpr int kLooks = 4;
// ... with this much time in between: a commit whose answer was lost may come late.
constexpr std::chrono::seconds kBetweenLooks(2);

// An audit keeps the database busy, which other connections notice on a server with few processors.
// So it pauses after each tag, in times of what it took, and in all for up to kPausesInAll.
constexpr int kPauses = 3;
constexpr std::chrono::nanoseconds kPausesInAll = std::chrono::seconds(1);

// A normal audit compares so many leases with one another, those with the highest ids: of all tags
// together about kCompared, and of each tag from kLeastOfTag to kPage.
constexpr std::size_t kCompared = 200'000;
constexpr std::size_t kLeastOfTag = 500;
constexpr std::size_t kPage = 4'000;

struct LeaseCounts {
  std::uint64_t all = 0;
  // Of these, as many as there are if no lease was left out that has a row and kept ids.
  std::uint64_t compared = 0;
};

std::string AuditText(const AuditReport& report, const LeaseCounts& leases) {
  Json tags = Json::array();
  for (const auto& [tag, account] : report.tags) {
    tags.push_back({{"tag", tag},
                    {"leased", account.leased},
                    {"claimed", account.claimed},
                    {"available", account.available},
                    {"returned", account.returned},
                    {"abandoned", account.abandoned}});
  }
  return Dump({{"ok", report.ok()},
               {"tags", std::move(tags)},
               {"findings", report.findings},
               {"leases", leases.all},
               {"compared", leases.compared}});
}

void Append(AuditReport report, AuditReport& to) {
  to.tags.merge(report.tags);
  std::move(report.findings.begin(), report.findings.end(), std::back_inserter(to.findings));
}

// What the store has of one row of leaf_alloc.
struct AuditRead {
  Ledger ledger;
  LeaseCounts leases;
  std::vector<std::string> findings;  // of leases that are not in the ledger
};

Result<std::vector<LeaseSums>> SumSince(StoreReader& store, const std::string& tag,
                                        const std::string& since) {
  std::map<std::string, LeaseSums> by_host;
  LeaseFilter filter{.tag = tag, .host = std::nullopt, .state = std::nullopt};
  filter.newest = kPage;
  filter.since = since;
  while (true) {
    const Result<std::vector<LeaseRecord>> page = store.ListLeases(filter);
    if (!page.ok()) return page.status();
    for (const LeaseSums& sums : AddUp(page.value())) {
      LeaseSums& host = by_host[sums.host];
      host.tag = sums.tag;
      host.host = sums.host;
      host.ended.leases += sums.ended.leases;
      host.ended.leased += sums.ended.leased;
      host.ended.claimed += sums.ended.claimed;
      host.ended.returned += sums.ended.returned;
      host.ended.abandoned += sums.ended.abandoned;
    }
    if (page.value().size() < kPage) break;
    filter.before = page.value().front().seq;
  }
  std::vector<LeaseSums> all;
  for (auto& [host, sums] : by_host) all.push_back(std::move(sums));
  return all;
}

// Compares the leases that are not in the ledger, page by page, and the sums with their rows.
Status CompareRest(StoreReader& store, const std::string& tag, AuditRead& read) {
  std::uint64_t below = shm::kMaxLimit;
  std::set<std::string> findings;
  for (const LeaseRecord& lease : read.ledger.journal) {
    if (lease.state != LeaseState::kActive) below = std::min(below, UsedLimitOf(lease));
  }
  std::optional<LeaseRecord> lowest;
  while (true) {
    Result<std::vector<LeaseRecord>> page = store.ListByIds(tag, below, kPage);
    if (!page.ok()) return page.status();
    std::vector<LeaseRecord>& leases = page.value();
    const bool is_last = leases.size() < kPage;
    if (leases.empty()) break;
    const LeaseRecord last = leases.back();
    const auto is_lowest = [&lowest](const LeaseRecord& lease) {
      return lease.token == lowest->token;
    };
    if (lowest.has_value() && std::none_of(leases.begin(), leases.end(), is_lowest)) {
      leases.push_back(*lowest);
    }
    for (std::string& finding : FindSharedIds(leases, read.ledger.returned)) {
      findings.insert(std::move(finding));
    }
    // The next page begins with the leases that end where this one does; if all of this one do,
    // they share their ids anyway.
    if (is_last) break;
    below = UsedLimitOf(last) == below ? below - 1 : UsedLimitOf(last);
    lowest = last;
  }
  Result<std::vector<std::string>> differences = store.CheckSums(tag);
  if (!differences.ok()) return differences.status();
  read.findings.assign(findings.begin(), findings.end());
  std::move(differences.value().begin(), differences.value().end(),
            std::back_inserter(read.findings));
  return Status::Ok();
}

struct AuditRun {
  std::optional<std::string> only;  // the one tag to audit, which must exist; nothing: all
  AuditScope scope = AuditScope::kThisHost;
  bool is_full = false;  // compare all leases
  std::string since;     // account for leases since then; empty: all
  std::size_t most = kPage;
  LeaseCounts leases;
  std::vector<std::string> tags;                       // the last one is next
  std::vector<std::string> again;                      // tags with findings
  std::map<std::string, std::set<std::string>> found;  // the findings, by tag
  int looks = 1;
  std::chrono::nanoseconds longest_pause{};  // after a tag
  MonotonicTime began{};                     // with the tag that is being read
  LiveLeases before;                         // of the tag that is being read
  AuditReport report;
  AdminDone done;
};

void AuditNext(AdminContext& context, const std::shared_ptr<AuditRun>& run);

void EndAudit(AdminContext& context, AuditRun& run, const Status& status) {
  if (!status.ok()) {
    context.reports.Finish();
    return Fail(run.done, status);
  }
  context.reports.Write(
      [report = std::move(run.report), leases = run.leases] { return AuditText(report, leases); },
      run.done);
}

Result<AuditRead> ReadForAudit(StoreReader& store, const std::string& tag, std::size_t most,
                               const std::string& since, bool is_full) {
  Result<Ledger> ledger = store.ReadLedger(tag, most);
  if (!ledger.ok()) return ledger.status();
  AuditRead read{.ledger = std::move(ledger).value(), .leases = {}, .findings = {}};
  read.leases.compared = read.ledger.journal.size();
  for (const LeaseSums& sums : read.ledger.sums) {
    read.leases.all += sums.active_leases + sums.ended.leases;
  }
  if (!since.empty()) {
    Result<std::vector<LeaseSums>> sums = SumSince(store, tag, since);
    if (!sums.ok()) return sums.status();
    read.ledger.sums = std::move(sums).value();
  }
  if (is_full) {
    if (Status status = CompareRest(store, tag, read); !status.ok()) return status;
  }
  const auto is_ended = [](const LeaseRecord& lease) { return lease.state != LeaseState::kActive; };
  const auto ended =
      std::count_if(read.ledger.journal.begin(), read.ledger.journal.end(), is_ended);
  if (is_full || static_cast<std::size_t>(ended) < most) read.leases.compared = read.leases.all;
  return read;
}

void OnAudited(AdminContext& context, const std::shared_ptr<AuditRun>& run, const std::string& tag,
               AuditReport report) {
  // Leases that came and went, each between the reads of one look, are no findings.
  if (run->looks > 1) {
    const std::set<std::string>& before = run->found[tag];
    std::erase_if(report.findings,
                  [&before](const std::string& finding) { return !before.contains(finding); });
  }
  if (!report.ok() && run->looks < kLooks) {
    run->again.push_back(tag);
    run->found[tag] = {report.findings.begin(), report.findings.end()};
  } else {
    Append(std::move(report), run->report);
  }
  if (run->tags.empty()) return AuditNext(context, run);
  const std::chrono::nanoseconds pause = kPauses * (MonotonicClock::now() - run->began);
  context.audit_pause.After(std::min(pause, run->longest_pause),
                            [&context, run] { AuditNext(context, run); });
}

void AuditTag(AdminContext& context, const std::shared_ptr<AuditRun>& run, const std::string& tag,
              AuditRead read) {
  const bool is_known =
      !read.ledger.tags.empty() || !read.ledger.journal.empty() || !read.ledger.sums.empty();
  if (run->only.has_value() && !is_known && read.leases.all == 0) {
    return EndAudit(context, *run, {Code::kNoSuchTag, "no such tag: '" + tag + "'"});
  }
  if (run->looks == 1) {
    run->leases.all += read.leases.all;
    run->leases.compared += read.leases.compared;
  }
  AuditInput input{.host = context.info.host_id,
                   .scope = run->scope,
                   .ledger = std::move(read.ledger),
                   .since = run->since,
                   .live = context.tags.LiveLeases(tag)};
  for (const auto& [token, lease] : input.live) {
    if (!run->before.contains(token)) input.newer.insert(token);
  }
  input.live.merge(run->before);
  context.reports.thread().Post(
      [&context, run, tag, input = std::move(input), findings = std::move(read.findings)] {
        AuditReport report = RunAudit(input);
        report.findings.insert(report.findings.end(), findings.begin(), findings.end());
        context.loop.Post([&context, run, tag, report = std::move(report)] {
          OnAudited(context, run, tag, report);
        });
      });
}

void AuditNext(AdminContext& context, const std::shared_ptr<AuditRun>& run) {
  if (run->tags.empty() && run->again.empty()) return EndAudit(context, *run, Status::Ok());
  if (run->tags.empty()) {
    ++run->looks;
    run->tags.swap(run->again);
    return context.audit_pause.After(kBetweenLooks, [&context, run] { AuditNext(context, run); });
  }
  if (run->began == MonotonicTime{}) run->longest_pause = kPausesInAll / run->tags.size();
  run->began = MonotonicClock::now();
  std::string tag = std::move(run->tags.back());
  run->tags.pop_back();
  run->before = context.tags.LiveLeases(tag);
  context.Read<AuditRead>(
      [tag, most = run->most, since = run->since, is_full = run->is_full](StoreReader& store) {
        return ReadForAudit(store, tag, most, since, is_full);
      },
      [&context, run, tag](Result<AuditRead> read) {
        if (!read.ok()) return EndAudit(context, *run, read.status());
        // This job comes after the leases that were taken before the ledger was read, so they are
        // in a ring when it is done.
        context.worker.SubmitForMarks<bool>(
            [](HighWaterMarks&) -> Result<bool> { return true; },
            [&context, run, tag, read = std::move(read).value()](const Result<bool>&) mutable {
              AuditTag(context, run, tag, std::move(read));
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
  const auto is_full = FlagField(request, "full");
  if (!is_full.ok()) return Fail(done, is_full.status());
  const auto since = TimeField(request, "since");
  if (!since.ok()) return Fail(done, since.status());
  auto run = std::make_shared<AuditRun>();
  run->only = only.value();
  run->scope = is_all_hosts.value() ? AuditScope::kAllHosts : AuditScope::kThisHost;
  run->is_full = is_full.value();
  run->since = since.value().value_or("");
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
          run->most = std::clamp(kCompared / std::max<std::size_t>(run->tags.size(), 1),
                                 kLeastOfTag, kPage);
          AuditNext(context, run);
        });
  });
}

}  // namespace idd::daemon
