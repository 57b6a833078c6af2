// SPDX-License-Identifier: Apache-2.0
//
// idctl lease list, host list, host forget: the allocator's records of leases and hosts.
#include "commands/commands.h"
#include "commands/lease_table.h"
#include "commands/time_argument.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

constexpr std::uint64_t kLargestNumber = 9'223'372'036'854'775'807;

Outcome ListLeases(const GlobalOptions& global, const FilterArguments& filter, Output& out) {
  AdminCall call("lease list", "lease.list");
  call.request.SetIfGiven("tag", filter.tag);
  call.request.SetIfGiven("host", filter.host);
  call.request.SetIfGiven("state", filter.state);
  call.request.SetIfGiven("limit", filter.limit);
  call.request.SetIfGiven("since", filter.since);
  call.request.SetIfGiven("before", filter.before);
  call.render = ForScreen(out, RenderLeases);
  return RunAdminCall(global, call, out);
}

Outcome ForgetHost(const GlobalOptions& global, const HostArguments& arguments, Output& out) {
  AdminCall call("host forget", "host.forget");
  call.request.SetIfGiven("host", arguments.host);
  if (arguments.is_forced) call.request.Set("force", true);
  call.render = [&arguments](const Json&) -> Result<std::string> {
    return "forgot host " + Quote(arguments.host.value_or("")) +
           ": leasing no longer waits for it\n";
  };
  return RunAdminCall(global, call, out);
}

Outcome ListHosts(const GlobalOptions& global, Output& out) {
  AdminCall call("host list", "host.list");
  call.render = ForScreen(out, RenderHosts);
  return RunAdminCall(global, call, out);
}

void AddLeaseFilters(Command command, FilterArguments& filter) {
  command.AddTagName("--tag", "Only leases of this tag", &filter.tag);
  command.AddText("--host", "Only leases of this host", &filter.host).ValueName("NAME");
  command
      .AddChoice("--state", "Only leases in this state",
                 {"active", "exhausted", "returned", "abandoned"}, &filter.state)
      .ValueName("STATE");
  command.AddCount("--limit", "Maximum number of leases, the newest [10000]", {1, 1'000'000},
                   &filter.limit);
  AddPastTime(command, "--since",
              "Only leases taken since then: a time in UTC, or how long ago (12h, 7d)",
              &filter.since);
  command.AddNumber("--before", "The next page, as the page before it says", {1, kLargestNumber},
                    &filter.before);
}

}  // namespace

void RegisterLeaseCommands(Command root, Invocation& invocation) {
  Command lease =
      root.AddCommand("lease", "Show the journal of leases", "idctl lease list --tag orders");
  lease.RequireSubcommand();
  Command leases = lease.AddCommand("list", "List leases of all hosts",
                                    "idctl lease list --tag orders --state active");
  AddLeaseFilters(leases, invocation.filter);
  SetAction(leases, invocation, [&invocation](Output& out) {
    return ListLeases(invocation.global, invocation.filter, out);
  });

  Command host = root.AddCommand("host", "Show the hosts that lease", "idctl host list");
  host.RequireSubcommand();
  Command hosts =
      host.AddCommand("list", "List the hosts known to the allocator", "idctl --json host list");
  SetAction(hosts, invocation,
            [&invocation](Output& out) { return ListHosts(invocation.global, out); });
  Command forget =
      host.AddCommand("forget", "Stop waiting for a host that is off", "idctl host forget web-3");
  forget
      .AddText("HOST", "A name from 'idctl host list'; the host must be off", &invocation.host.host)
      .Required();
  forget.AddFlag("--force", "Even if the host was seen recently", &invocation.host.is_forced);
  SetAction(forget, invocation, [&invocation](Output& out) {
    return ForgetHost(invocation.global, invocation.host, out);
  });
}

Result<std::string> RenderLeases(const Json& document, std::size_t columns) {
  Status error;
  LeaseTable table("TAG", "STATE");
  const Fields reply(document, "reply", &error);
  for (const Fields& lease : reply.Objects("leases")) {
    table.Add(lease.Text("tag"), lease);
  }
  std::string more = reply.Flag("truncated") ? "Only the newest; --limit shows more" : "";
  // Older daemons have no pages.
  const std::optional<double> next = reply.OptionalNumber("before");
  if (next) more += ", --before " + reply.CountText("before") + " the next page";
  if (!error.ok()) return error;
  return table.Format(columns) + (more.empty() ? "" : WrapTo(more + ".", columns, 0) + "\n");
}

Result<std::string> RenderHosts(const Json& document, std::size_t columns) {
  Status error;
  Table table({{"HOST"},
               {"STATE"},
               {"FIRST-SEEN", Align::kLeft, 1},
               {"LAST-SEEN"},
               {"BOOT-ID", Align::kLeft, 2}});
  for (const Fields& host : Fields(document, "reply", &error).Objects("hosts")) {
    table.AddRow({host.Text("host"), host.OptionalText("state").value_or("-"),
                  host.Text("first_seen"), host.Text("last_seen"),
                  host.OptionalText("boot_id").value_or("")});
  }
  if (!error.ok()) return error;
  return table.Format(columns);
}

}  // namespace idd::tools
