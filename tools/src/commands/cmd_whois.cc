// SPDX-License-Identifier: Apache-2.0
//
// idctl whois: the host and the lease that an id comes from.
#include "commands/commands.h"
#include "commands/lease_table.h"
#include "idd/shm/abi.h"
#include "tags/snowflake_layout.h"

namespace idd::tools {
namespace {

Outcome WhoIs(const GlobalOptions& global, const WhoIsArguments& arguments, Output& out) {
  const std::uint64_t id = arguments.id.value_or(0);  // the parser requires it
  AdminCall call("whois " + Quote(arguments.tag) + " " + std::to_string(id), "whois");
  call.request.Set("tag", arguments.tag).Set("id", id);
  call.render = ForScreen(out, RenderWhoIs);
  call.verdict = WhoIsVerdict;
  return RunAdminCall(global, call, out);
}

std::string PartsLine(const Fields& parts) {
  const PartsFields fields = ReadParts(parts);
  return "time " + EscapeText(fields.time) + ", worker " + fields.worker + ", sequence " +
         fields.sequence + "\n";
}

// Of folded leases; older daemons fold none.
std::vector<Fields> FoldedOf(const Fields& reply) {
  return reply.Has("folded") ? reply.Objects("folded") : std::vector<Fields>();
}

// The hosts whose folded leases had the id.
std::string FoldedText(const std::vector<Fields>& folded, std::size_t columns) {
  std::string text = folded.size() == 1 ? "Its lease is folded. Known of it:\n\n"
                                        : "Its lease is folded. It was one of these hosts':\n\n";
  Table table({{"HOST"}, {"MONTH"}, {"IDS"}});
  for (const Fields& one : folded) {
    table.AddRow({one.Text("host"), one.Text("month"), one.Flag("exact") ? "exact" : "about"});
  }
  return text + table.Format(columns);
}

}  // namespace

Result<std::string> RenderWhoIs(const Json& document, std::size_t columns) {
  Status error;
  const Fields reply(document, "reply", &error);
  // Null for other modes, and missing in replies of an older idd.
  const std::optional<Fields> parts =
      reply.Has("parts") ? reply.OptionalObject("parts") : std::nullopt;
  LeaseTable table("ID-STATE", "LEASE",
                   parts ? LeaseTable::Bounds::kTime : LeaseTable::Bounds::kNumbers);
  bool is_found = false;
  for (const Fields& lease : reply.Objects("leases")) {
    is_found = true;
    table.Add(lease.Text("id_state"), lease);
  }
  std::string what = "id " + reply.CountText("id") + " of tag " + Quote(reply.Text("tag")) + "\n";
  if (parts) what += PartsLine(*parts);
  if (!error.ok()) return error;
  const std::vector<Fields> folded = FoldedOf(reply);
  const std::string folded_text = folded.empty() ? "" : FoldedText(folded, columns);
  if (!error.ok()) return error;
  if (!folded.empty()) return what + "\n" + folded_text;
  if (!is_found) return parts ? what : std::string();
  return what + "\n" + table.Format(columns);
}

Status WhoIsVerdict(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  const bool is_found = !reply.Objects("leases").empty() || !FoldedOf(reply).empty();
  if (!error.ok() || is_found) return error;
  return {Code::kSystem, reply.OptionalText("reason").value_or("no lease has it") +
                             "; see 'idctl lease list --tag'"};
}

void RegisterWhoIsCommand(Command root, Invocation& invocation) {
  Command whois =
      root.AddCommand("whois", "Show the host and lease of an id", "idctl whois orders 4711");
  whois.AddTagName("TAG", "The id's tag", &invocation.whois.tag).Required();
  whois.AddNumber("ID", "The id", {0, shm::kMaxLimit - 1}, &invocation.whois.id)
      .ValueName("")
      .Required();
  SetAction(whois, invocation,
            [&invocation](Output& out) { return WhoIs(invocation.global, invocation.whois, out); });
}

}  // namespace idd::tools
