// SPDX-License-Identifier: Apache-2.0
//
// idctl store init: idd makes its tables in another database.
#include <string>
#include <utility>
#include <vector>

#include "commands/commands.h"
#include "doctor/diagnosis.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

// A server that has just been started may take seconds to make tables.
constexpr std::uint64_t kInitTimeoutMs = 60'000;

Outcome InitStore(const GlobalOptions& global, Output& out) {
  AdminCall call("store init", "store.init");
  call.timeout_ms = kInitTimeoutMs;
  call.render = RenderStoreInit;
  return RunAdminCall(global, call, out);
}

}  // namespace

void RegisterStoreCommands(Command root, Invocation& invocation) {
  Command store = root.AddCommand("store", "Begin with another database", "idctl store init");
  store.RequireSubcommand();
  Command init = store.AddCommand(
      "init", "Make idd's tables in a database that has none, although this host has used another",
      "idctl store init");
  SetAction(init, invocation,
            [&invocation](Output& out) { return InitStore(invocation.global, out); });
}

Result<std::string> RenderStoreInit(const Json& document) {
  Status error;
  const Fields fields(document, "reply", &error);
  const std::string database = EscapeText(fields.Text("database"));
  const bool is_new = fields.Flag("created");
  std::vector<std::string> missing = fields.Texts("missing_tags");
  if (!error.ok()) return error;
  std::string text = is_new ? "made idd's tables in " + database + "\n"
                            : database + " has idd's tables; nothing was changed\n";
  if (missing.empty()) return text;
  for (std::string& tag : missing) tag = EscapeText(tag);
  return text + "it lacks " + ListSome(missing, "tag") +
         "\ncreate them ('idctl apply', 'idctl tag create') once every host uses it; they begin "
         "above the ids that the hosts were granted\n";
}

}  // namespace idd::tools
