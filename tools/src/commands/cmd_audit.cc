// SPDX-License-Identifier: Apache-2.0
//
// idctl audit: leased = claimed + available + returned + abandoned, for every tag.
#include "commands/commands.h"
#include "commands/time_argument.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

constexpr std::uint64_t kAuditTimeoutMs = 60'000;
// A full one reads every lease: some seconds for a million.
constexpr std::uint64_t kFullAuditTimeoutMs = 3'600'000;

Outcome Audit(const GlobalOptions& global, const FilterArguments& filter, Output& out) {
  AdminCall call(filter.tag ? "audit " + Quote(*filter.tag) : "audit", "audit");
  call.request.SetIfGiven("tag", filter.tag);
  if (filter.is_all_hosts) call.request.Set("all_hosts", true);
  if (filter.is_full) call.request.Set("full", true);
  call.request.SetIfGiven("since", filter.since);
  call.render = ForScreen(out, RenderAudit);
  call.verdict = AuditVerdict;
  call.timeout_ms = filter.is_full ? kFullAuditTimeoutMs : kAuditTimeoutMs;
  return RunAdminCall(global, call, out);
}

bool AddsUp(const Fields& tag) {
  std::uint64_t sum = 0;
  for (const char* part : {"claimed", "available", "returned", "abandoned"}) {
    if (__builtin_add_overflow(sum, tag.Count(part), &sum)) return false;
  }
  return sum == tag.Count("leased");
}

// Older daemons compare every lease and do not say so.
std::string ComparedLine(const Fields& reply) {
  if (!reply.Has("compared")) return "";
  const std::uint64_t all = reply.Count("leases");
  const std::uint64_t compared = reply.Count("compared");
  if (compared >= all) return "";
  return "Compared for ids in common: " + std::to_string(compared) + " of " + std::to_string(all) +
         " leases, those with the highest ids; --full compares all.\n";
}

}  // namespace

Result<std::string> RenderAudit(const Json& document, std::size_t columns) {
  Status error;
  const Fields reply(document, "reply", &error);
  Table table({{"TAG"},
               {"LEASED", Align::kRight},
               {"CLAIMED", Align::kRight, 2},
               {"AVAILABLE", Align::kRight, 4},
               {"RETURNED", Align::kRight, 3},
               {"ABANDONED", Align::kRight, 1},
               {"ADDS-UP"}});
  for (const Fields& tag : reply.Objects("tags")) {
    table.AddRow({tag.Text("tag"), tag.CountText("leased"), tag.CountText("claimed"),
                  tag.CountText("available"), tag.CountText("returned"), tag.CountText("abandoned"),
                  AddsUp(tag) ? "yes" : "no"});
  }
  std::string text = table.Format(columns);
  text += reply.Flag("ok") ? "\nok\n" : "\nnot ok\n";
  for (const std::string& finding : reply.Texts("findings")) text += EscapeText(finding) + "\n";
  text += WrapTo(ComparedLine(reply), columns, 0);
  if (!error.ok()) return error;
  return text;
}

Status AuditVerdict(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  for (const Fields& tag : reply.Objects("tags")) {
    if (AddsUp(tag)) continue;
    return Status(Code::kSystem, "the numbers of tag " + Quote(tag.Text("tag")) +
                                     " do not add up; compare 'idctl lease list' and idd's log");
  }
  const std::size_t findings = reply.Texts("findings").size();
  if (!reply.Flag("ok")) {
    return Status(Code::kSystem,
                  Counted(findings, "finding") + "; compare 'idctl lease list' and idd's log");
  }
  return error;
}

void RegisterAuditCommand(Command root, Invocation& invocation) {
  Command audit =
      root.AddCommand("audit", "Check that every leased id is accounted for", "idctl audit orders");
  audit.AddTagName("TAG", "Only this tag", &invocation.filter.tag);
  audit.AddFlag("--all-hosts",
                "Audit all hosts; ids of other hosts' active leases count as available",
                &invocation.filter.is_all_hosts);
  audit.AddFlag("--full", "Compare all leases and sums with one another, however long it takes",
                &invocation.filter.is_full);
  AddPastTime(audit, "--since",
              "Only leases that were taken since then: a time in UTC, or how long ago (12h, 7d)",
              &invocation.filter.since);
  SetAction(audit, invocation, [&invocation](Output& out) {
    return Audit(invocation.global, invocation.filter, out);
  });
}

}  // namespace idd::tools
