// SPDX-License-Identifier: Apache-2.0
//
// idctl lease list, host list, host forget: the allocator's records of leases and hosts.
#include <algorithm>
#include <string>
#include <vector>

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

// A host may hold tens of thousands of leases.
constexpr std::uint64_t kForgetTimeoutMs = 60'000;

Outcome ForgetHost(const GlobalOptions& global, const HostArguments& arguments, Output& out) {
  AdminCall call("host forget", "host.forget");
  call.request.SetIfGiven("host", arguments.host);
  if (arguments.is_forced) call.request.Set("force", true);
  call.timeout_ms = kForgetTimeoutMs;
  call.render = [&arguments](const Json& document) {
    return RenderForgotten(document, arguments.host.value_or(""));
  };
  return RunAdminCall(global, call, out);
}

Outcome ListHosts(const GlobalOptions& global, const HostArguments& arguments, Output& out) {
  AdminCall call("host list", "host.list");
  if (arguments.shows_all) call.request.Set("all", true);
  call.render = ForScreen(out, RenderHosts);
  return RunAdminCall(global, call, out);
}

void AddLeaseFilters(Command command, FilterArguments& filter) {
  command.AddTagName("--tag", "Only leases of this tag", &filter.tag);
  command.AddText("--host", "Only leases of this host: its id or its name", &filter.host)
      .ValueName("HOST");
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
  hosts.AddFlag("--all", "Also the hosts that were forgotten", &invocation.host.shows_all);
  SetAction(hosts, invocation, [&invocation](Output& out) {
    return ListHosts(invocation.global, invocation.host, out);
  });
  Command forget = host.AddCommand("forget", "End the leases of a host that will not return",
                                   "idctl host forget web-3");
  forget
      .AddText("HOST", "An id or name from 'idctl host list'; the host must be off",
               &invocation.host.host)
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

Result<std::string> RenderForgotten(const Json& document, const std::string& asked) {
  Status error;
  const Fields reply(document, "reply", &error);
  std::string text = "forgot host " + Quote(asked) + "\n";
  // An older daemon ends no leases.
  if (!reply.Has("leases")) return text;
  const std::uint64_t leases = reply.Count("leases");
  text += Counted(leases, "lease") + " of it, with " + Counted(reply.Count("ids"), "id") +
          ", and " + Counted(reply.Count("returned_ids"), "returned id") +
          " are abandoned; no host leases these ids again\n";
  if (!error.ok()) return error;
  return text;
}

Result<std::string> RenderHosts(const Json& document, std::size_t columns) {
  Status error;
  const std::vector<Fields> hosts = Fields(document, "reply", &error).Objects("hosts");
  // A host of an older idd has no name, so its id must stay.
  const bool have_names = std::all_of(hosts.begin(), hosts.end(), [](const Fields& host) {
    return host.OptionalText("name").has_value();
  });
  Table table({{"HOST", Align::kLeft, have_names ? 1 : 0},
               {"NAME"},
               {"ADDRESS", Align::kLeft, 3},
               {"STATE"},
               {"VERSION", Align::kLeft, 2},
               {"FIRST-SEEN", Align::kLeft, 5},
               {"LAST-SEEN", Align::kLeft, 4},
               {"BOOT-ID", Align::kLeft, 6}});
  for (const Fields& host : hosts) {
    // An older daemon reports no conditions.
    const std::string state = host.OptionalText("state").value_or("-");
    table.AddRow({host.Text("host"), host.OptionalText("name").value_or(""),
                  host.OptionalText("address").value_or(""),
                  host.OptionalText("condition").value_or(state),
                  host.OptionalText("version").value_or(""), host.Text("first_seen"),
                  host.Text("last_seen"), host.OptionalText("boot_id").value_or("")});
  }
  if (!error.ok()) return error;
  return table.Format(columns);
}

}  // namespace idd::tools
