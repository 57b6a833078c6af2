// SPDX-License-Identifier: Apache-2.0
//
// idctl whois: the host and the lease that an id comes from.
#include "commands/commands.h"
#include "commands/lease_table.h"
#include "commands/snowflake_layout.h"
#include "idd/shm/abi.h"

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
  if (!is_found) return parts ? what : std::string();
  return what + "\n" + table.Format(columns);
}

Status WhoIsVerdict(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  const bool is_found = !reply.Objects("leases").empty();
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
