// SPDX-License-Identifier: Apache-2.0
//
// idctl witness list, witness set: the hosts whose disks keep the ceilings.
#include <algorithm>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

// The hosts look every second or two, and a change takes several looks.
constexpr std::uint64_t kSetWaitMs = 15'000;

Outcome ListWitnesses(const GlobalOptions& global, Output& out) {
  AdminCall call("witness list", "witness.list");
  call.render = ForScreen(out, RenderWitnesses);
  return RunAdminCall(global, call, out);
}

// The hosts still change the list as soon as they can.
Status IsSet(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  if (reply.Texts("next").empty()) return error;
  return {Code::kSystem,
          "the hosts have not agreed yet; 'idctl witness list' shows when they have; if present "
          "witnesses will not return, use --force"};
}

Outcome SetWitnesses(const GlobalOptions& global, const WitnessArguments& arguments, Output& out) {
  AdminCall call("witness set", "witness.set");
  call.request.Set("hosts", arguments.hosts);
  if (arguments.is_forced) call.request.Set("force", true);
  call.timeout_ms = 2 * kSetWaitMs;
  call.request.Set("wait_ms",
                   std::min(kSetWaitMs, global.timeout_ms.value_or(call.timeout_ms) / 2));
  call.render = ForScreen(out, RenderWitnesses);
  call.verdict = IsSet;
  return RunAdminCall(global, call, out);
}

std::string StateOf(const Fields& witness) {
  if (witness.Flag("is_there")) return "there";
  const double silent_s = witness.Number("silent_s");
  return silent_s > 0 ? "silent for " + FormatDuration(silent_s) : "not in this term yet";
}

// "term 17, begun by web-1; 2 of 3 witnesses are there, a majority".
std::string TermLine(const Fields& reply, const std::vector<Fields>& witnesses) {
  const auto there = std::count_if(witnesses.begin(), witnesses.end(),
                                   [](const Fields& witness) { return witness.Flag("is_there"); });
  const bool has_majority = reply.Flag("has_majority");
  std::string text =
      "term " + reply.CountText("term") + ", begun by " + EscapeText(reply.Text("begun_by")) + "; ";
  if (witnesses.size() == 1) {
    return text + "the only witness is " + (has_majority ? "there" : "not there");
  }
  return text + std::to_string(there) + " of " + std::to_string(witnesses.size()) +
         " witnesses are there, " + (has_majority ? "a majority" : "no majority");
}

// The list that is to follow; empty if none is.
std::string NextLine(const Fields& reply) {
  std::string hosts;
  for (const std::string& host : reply.Texts("next")) {
    hosts += (hosts.empty() ? "" : ", ") + EscapeText(host);
  }
  if (hosts.empty()) return {};
  return "next: " + hosts + ", as soon as majorities of the present witnesses and of these note it";
}

std::string ReasonLine(const Fields& reply) {
  const std::optional<std::string> reason = reply.OptionalText("reason");
  if (!reason) return {};
  const bool waits = reply.Text("state") == "waiting";
  return (waits ? "leasing waits: " : "leasing only below the active ceilings: ") +
         EscapeText(*reason);
}

}  // namespace

void RegisterWitnessCommands(Command root, Invocation& invocation) {
  Command witness = root.AddCommand("witness", "Show or name the hosts that keep the ceilings",
                                    "idctl witness list");
  witness.RequireSubcommand();
  Command list =
      witness.AddCommand("list", "Show the term and its witnesses", "idctl --json witness list");
  SetAction(list, invocation,
            [&invocation](Output& out) { return ListWitnesses(invocation.global, out); });
  Command set = witness.AddCommand("set", "Name the witnesses: 1, 3 or 5 hosts",
                                   "idctl witness set web-1 web-2 web-3");
  set.AddTexts("HOST", "Ids or names from 'idctl host list'; the hosts must run",
               &invocation.witness.hosts)
      .Required();
  set.AddFlag("--force", "At once, without the present witnesses, which will not return",
              &invocation.witness.is_forced);
  SetAction(set, invocation, [&invocation](Output& out) {
    return SetWitnesses(invocation.global, invocation.witness, out);
  });
}

Result<std::string> RenderWitnesses(const Json& document, std::size_t columns) {
  Status error;
  const Fields reply(document, "reply", &error);
  const std::vector<Fields> witnesses = reply.Objects("witnesses");
  Table table({{"HOST"}, {"STATE"}});
  for (const Fields& witness : witnesses) table.AddRow({witness.Text("host"), StateOf(witness)});
  std::string text = table.Format(columns) + "\n";
  for (const std::string& line : {TermLine(reply, witnesses), NextLine(reply), ReasonLine(reply)}) {
    if (!line.empty()) text += WrapTo(line, columns, 2) + "\n";
  }
  if (!error.ok()) return error;
  return text;
}

}  // namespace idd::tools
