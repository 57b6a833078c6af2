// SPDX-License-Identifier: Apache-2.0
//
// idctl import: take tags over from another generator's table.
#include <chrono>

#include "client/admin_client.h"
#include "commands/commands.h"
#include "idd/base/clock.h"
#include "idd/shm/abi.h"

namespace idd::tools {
namespace {

// Tens of thousands of tags take minutes.
constexpr std::uint64_t kImportTimeoutMs = 600'000;

// Asked for over a separate connection; empty when there is nothing to show.
std::string HowFar(const std::string& socket_path) {
  const Deadline deadline = Deadline::After(std::chrono::milliseconds(300));
  Result<AdminClient> client = AdminClient::Connect(socket_path, deadline);
  if (!client.ok()) return {};
  const Result<JsonDocument> document =
      client.value().Request(AdminRequest("import.progress"), deadline);
  if (!document.ok()) return {};
  Status error;
  const Fields reply(document.value().json(), "reply", &error);
  const std::string done = reply.CountText("done");
  const std::string rows = reply.CountText("rows");
  if (!error.ok() || !reply.Flag("under_way")) return "waiting for its turn";
  return rows == "0" ? "reading the source" : done + " of " + rows + " rows";
}

Outcome Import(const GlobalOptions& global, const ImportArguments& arguments, Output& out) {
  const std::string source = arguments.source.value_or("");  // the parser requires it
  AdminCall call("import " + source, "import");
  call.timeout_ms = kImportTimeoutMs;
  call.request.Set("source", source);
  call.request.SetIfGiven("from", arguments.from);
  call.request.SetIfGiven("table", arguments.table);
  call.request.SetIfGiven("prefix", arguments.prefix);
  call.request.SetIfGiven("step", arguments.step);
  call.request.SetIfGiven("mode", arguments.mode);
  if (arguments.is_dry_run) call.request.Set("dry_run", true);
  SetWait(global, arguments.wait_s, call);
  call.render = ForScreen(out, RenderImport);
  call.verdict = ImportVerdict;
  call.progress = [&global] { return HowFar(global.socket_path); };
  return RunAdminCall(global, call, out);
}

bool IsRefused(const Fields& tag) { return tag.Text("action") == "refused"; }

// The reason, and the previous position of a lifted tag.
std::string Why(const Fields& tag) {
  std::string why = tag.OptionalText("reason").value_or("");
  if (!tag.Text("action").ends_with("lift") && tag.Text("action") != "lifted") return why;
  return "was at " + tag.CountText("from") + (why.empty() ? "" : "; " + why);
}

}  // namespace

Result<std::string> RenderImport(const Json& document, std::size_t columns) {
  Status error;
  const Fields reply(document, "reply", &error);
  Table table(
      {{"TAG"}, {"ACTION"}, {"NEXT-ID", Align::kRight, 1}, {"STEP", Align::kRight, 2}, {"WHY"}});
  std::size_t rows = 0;
  std::size_t refused = 0;
  for (const Fields& tag : reply.Objects("tags")) {
    ++rows;
    if (IsRefused(tag)) ++refused;
    table.AddRow({tag.Text("tag"), tag.Text("action"),
                  IsRefused(tag) ? "" : tag.CountText("next_id"),
                  IsRefused(tag) ? "" : tag.CountText("step"), Why(tag)});
  }
  std::string text = table.Format(columns) + "\n" + std::to_string(rows) + " rows of " +
                     EscapeText(reply.Text("source")) + ", " + std::to_string(refused) +
                     " refused" + (reply.Flag("dry_run") ? "; nothing was written\n" : "\n");
  for (const std::string& warning : reply.Texts("warnings")) {
    text += "warning: " + EscapeText(warning) + "\n";
  }
  if (!error.ok()) return error;
  return text;
}

Status ImportVerdict(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  std::size_t refused = 0;
  for (const Fields& tag : reply.Objects("tags")) {
    if (IsRefused(tag)) ++refused;
  }
  const std::vector<std::string> warnings = reply.Texts("warnings");
  if (!error.ok()) return error;
  if (!warnings.empty()) return {Code::kSystem, warnings.front()};
  if (refused == 0) return Status::Ok();
  return {Code::kSystem, std::to_string(refused) + (refused == 1 ? " row was" : " rows were") +
                             " refused; correct them as the output says, and import again"};
}

// Generators of which there is nothing to import, by the names that users try.
std::vector<WrongChoice> NeedNoImport() {
  const std::string leaf =
      "needs no import: name Leaf's database as the database of idd, which uses the table "
      "leaf_alloc as its own";
  const std::string snowflake =
      "needs no import: a tag that is created with --mode snowflake begins at the time of the "
      "clock";
  return {{"leaf", leaf},
          {"leaf_alloc", leaf},
          {"leaf-segment", leaf},
          {"leaf-snowflake", snowflake},
          {"snowflake", snowflake},
          {"sonyflake", snowflake},
          {"uid-generator", snowflake}};
}

void RegisterImportCommand(Command root, Invocation& invocation) {
  ImportArguments& arguments = invocation.import;
  Command command = root.AddCommand(
      "import", "Import tags from another generator's table, above all its ids",
      "idctl import tinyid --from 'mysql://reader@db1/tinyid?password_file=/etc/idd/tinyid' "
      "--dry-run");
  command
      .AddChoice("SOURCE", "The generator that the table belongs to",
                 {"tinyid", "cosid", "common-sequence", "flickr"}, &arguments.source,
                 NeedNoImport())
      .ValueName("")
      .Required();
  command.AddText("--from", "The table's database, mysql://... [idd's own]", &arguments.from)
      .ValueName("URL");
  command
      .AddText("--table", "The table [tiny_id_info, cosid, common_sequence, Tickets64]",
               &arguments.table)
      .ValueName("NAME");
  command.AddText("--prefix", "Prefix of the tag names", &arguments.prefix);
  command.AddCount("--step", "Smallest number of ids in a lease [the row's, else 1000]",
                   {1, shm::kMaxLimit - 1}, &arguments.step);
  command
      .AddChoice("--mode", "Mode of created tags [ticket for flickr, else segment]",
                 {"segment", "ticket"}, &arguments.mode)
      .ValueName("MODE");
  AddWaitOption(command, &arguments.wait_s);
  command.AddFlag("--dry-run", "Show the changes without writing them", &arguments.is_dry_run);
  SetAction(command, invocation, [&invocation](Output& out) {
    return Import(invocation.global, invocation.import, out);
  });
}

}  // namespace idd::tools
