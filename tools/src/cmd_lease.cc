// SPDX-License-Identifier: Apache-2.0
//
// idctl lease list, host list: what the allocator's journal says.
#include <utility>

#include "commands.h"
#include "lease_table.h"

namespace idd::tools {
namespace {

Outcome ListLeases(const GlobalOptions& global, const FilterArguments& filter, Output& out) {
  AdminCall call;
  call.what = "lease list";
  call.request = {{"op", "lease.list"}};
  if (filter.tag) call.request["tag"] = *filter.tag;
  if (filter.host) call.request["host"] = *filter.host;
  if (filter.state) call.request["state"] = *filter.state;
  if (filter.limit) call.request["limit"] = *filter.limit;
  call.render = ForScreen(out, RenderLeases);
  return RunAdminCall(global, call, out);
}

Outcome ListHosts(const GlobalOptions& global, Output& out) {
  AdminCall call;
  call.what = "host list";
  call.request = {{"op", "host.list"}};
  call.render = ForScreen(out, RenderHosts);
  return RunAdminCall(global, call, out);
}

void AddLeaseFilters(CLI::App& command, FilterArguments& filter) {
  AddTagName(command, "--tag", "Only leases of this tag",
             [&filter](std::string tag) { filter.tag = std::move(tag); });
  AddText(command, "--host", "Only leases of this host", &filter.host)->type_name("NAME");
  AddChoice(command, "--state", "Only leases in this state",
            {"active", "exhausted", "returned", "abandoned"}, &filter.state)
      ->type_name("STATE");
  AddNumber(command, "--limit", "Only that many, the newest [10000]", {1, 1'000'000},
            &filter.limit);
}

}  // namespace

void RegisterLeaseCommands(CLI::App& app, Invocation& invocation) {
  CLI::App* lease =
      AddCommand(app, "lease", "Look at the journal of leases", "idctl lease list --tag orders");
  lease->require_subcommand(1);
  CLI::App* leases = AddCommand(*lease, "list", "List leases of all hosts",
                                "idctl lease list --tag orders --state active");
  AddLeaseFilters(*leases, invocation.filter);
  leases->callback([&invocation] {
    invocation.action = [&invocation](Output& out) {
      return ListLeases(invocation.global, invocation.filter, out);
    };
  });

  CLI::App* host = AddCommand(app, "host", "Look at the hosts that lease", "idctl host list");
  host->require_subcommand(1);
  CLI::App* hosts =
      AddCommand(*host, "list", "List the hosts known to the allocator", "idctl --json host list");
  hosts->callback([&invocation] {
    invocation.action = [&invocation](Output& out) { return ListHosts(invocation.global, out); };
  });
}

Result<std::string> RenderLeases(const Json& document, std::size_t columns) {
  Status error;
  LeaseTable table("TAG", "STATE");
  const Fields reply(document, "reply", &error);
  for (const Fields& lease : reply.Objects("leases")) {
    table.Add(lease.Text("tag"), lease);
  }
  const bool is_cut = reply.Flag("truncated");
  if (!error.ok()) return error;
  return table.Format(columns) + (is_cut ? "Only the newest; --limit shows more.\n" : "");
}

Result<std::string> RenderHosts(const Json& document, std::size_t columns) {
  Status error;
  Table table(
      {{"HOST"}, {"FIRST-SEEN", Align::kLeft, 1}, {"LAST-SEEN"}, {"BOOT-ID", Align::kLeft, 2}});
  for (const Fields& host : Fields(document, "reply", &error).Objects("hosts")) {
    table.AddRow({host.Text("host"), host.Text("first_seen"), host.Text("last_seen"),
                  host.OptionalText("boot_id").value_or("")});
  }
  if (!error.ok()) return error;
  return table.Format(columns);
}

}  // namespace idd::tools
