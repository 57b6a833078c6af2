// SPDX-License-Identifier: Apache-2.0
//
// idctl client list: the clients on this host, and the tags that they use.
#include <utility>

#include "client/admin_client.h"
#include "client/process_facts.h"
#include "commands/commands.h"
#include "idd/shm/abi.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

constexpr std::uint64_t kMaxUid = 0xfffffffe;

Outcome ListClients(const GlobalOptions& global, const ClientArguments& arguments, Output& out) {
  AdminRequest request("client.list");
  request.SetIfGiven("tag", arguments.tag);
  request.SetIfGiven("uid", arguments.uid);
  const auto timeout = std::chrono::milliseconds(global.timeout_ms.value_or(kAdminTimeoutMs));
  const Deadline deadline = Deadline::After(timeout);
  Result<AdminClient> client = AdminClient::Connect(global.socket_path, deadline);
  if (!client.ok()) return FailureFrom(client.status(), "client list");
  Result<JsonDocument> document = client.value().Request(request, deadline);
  if (!document.ok()) return FailureFrom(document.status(), "client list");
  AddProcessFacts(document.value().json(), "/proc");
  const Result<std::string> text =
      RenderClients(document.value().json(), ProbeScreen(out.fd()).columns);
  if (!text.ok()) return FailureFrom(text.status(), "client list");
  out.Write(global.as_json ? JsonText(global, document.value()) : text.value());
  return std::nullopt;
}

std::string Ago(const Fields& of, const char* key) {
  const std::optional<double> seconds = of.OptionalNumber(key);
  return seconds ? FormatDuration(*seconds) : "";
}

// The daemon sums up the uses beyond its limits without a tag name.
std::string TagOf(const Fields& use) { return use.OptionalText("tag").value_or("(others)"); }

// The kernel reports pid 0 for a process in another pid namespace.
std::string PidOf(const Fields& client) {
  return client.Count("pid") == 0 ? "" : client.CountText("pid");
}

void AddClient(const Fields& client, Table& table) {
  const std::vector<std::string> who = {PidOf(client),
                                        client.CountText("uid"),
                                        client.OptionalText("unit").value_or(""),
                                        client.OptionalText("command").value_or(""),
                                        Ago(client, "connected_s"),
                                        client.OptionalText("client_version").value_or(""),
                                        client.OptionalText("abi_version").value_or("")};
  const auto add = [&table, &who](std::vector<std::string> use) {
    std::vector<std::string> row = who;
    row.insert(row.end(), use.begin(), use.end());
    table.AddRow(std::move(row));
  };
  const std::vector<Fields> uses = client.Objects("tags");
  if (uses.empty()) add({"", "", "", "", ""});
  for (const Fields& use : uses) {
    add({TagOf(use), Ago(use, "attached_s"), use.CountText("requests"), use.CountText("ids"),
         use.CountText("dry_waits")});
  }
}

void AddGone(const Fields& use, Table& table) {
  table.AddRow({use.OptionalNumber("uid") ? use.CountText("uid") : "(others)", TagOf(use),
                use.CountText("connections"), use.CountText("attachments"),
                use.CountText("requests"), use.CountText("ids"), use.CountText("dry_waits")});
}

}  // namespace

Result<std::string> RenderClients(const Json& document, std::size_t columns) {
  Status error;
  const Fields reply(document, "reply", &error);
  Table clients({{"PID", Align::kRight},
                 {"UID", Align::kRight},
                 {"UNIT", Align::kLeft, 4},
                 {"COMMAND"},
                 {"CONNECTED", Align::kRight, 6},
                 {"VERSION", Align::kLeft, 8},
                 {"ABI", Align::kLeft, 7},
                 {"TAG"},
                 {"ATTACHED", Align::kRight, 3},
                 {"REQUESTS", Align::kRight, 2},
                 {"IDS", Align::kRight},
                 {"DRY-WAITS", Align::kRight, 5}});
  for (const Fields& client : reply.Objects("clients")) AddClient(client, clients);
  Table past({{"UID", Align::kRight},
              {"TAG"},
              {"CONNECTIONS", Align::kRight, 3},
              {"ATTACHMENTS", Align::kRight, 2},
              {"REQUESTS", Align::kRight, 1},
              {"IDS", Align::kRight},
              {"DRY-WAITS", Align::kRight, 4}});
  const std::vector<Fields> gone = reply.Objects("gone");
  for (const Fields& use : gone) AddGone(use, past);
  if (!error.ok()) return error;
  std::string text = clients.Format(columns);
  if (!gone.empty()) text += "\nClosed connections:\n" + past.Format(columns);
  return text;
}

void RegisterClientCommands(Command root, Invocation& invocation) {
  ClientArguments& arguments = invocation.client;
  Command client = root.AddCommand("client", "Show the clients of idd", "idctl client list");
  client.RequireSubcommand();
  Command list = client.AddCommand("list", "List connections and the tags they use",
                                   "idctl client list --tag orders");
  list.AddTagName("--tag", "Only those that use this tag", &arguments.tag);
  list.AddNumber("--uid", "Only those of this user id", {0, kMaxUid}, &arguments.uid);
  SetAction(list, invocation, [&invocation](Output& out) {
    return ListClients(invocation.global, invocation.client, out);
  });
}

}  // namespace idd::tools
