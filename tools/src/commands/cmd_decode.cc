// SPDX-License-Identifier: Apache-2.0
//
// idctl decode: the parts of snowflake ids, without the store.
#include <utility>

#include "commands/commands.h"
#include "idd/shm/abi.h"
#include "tags/snowflake_layout.h"

namespace idd::tools {
namespace {

// So that the request fits a frame.
constexpr std::size_t kMaxIds = 500;

Outcome Decode(const GlobalOptions& global, const DecodeArguments& arguments, Output& out) {
  if (arguments.ids.size() > kMaxIds) {
    return Failure{
        ExitStatus::kUsage, "decode",
        "at most 500 ids are decoded at once, got " + std::to_string(arguments.ids.size()),
        "use xargs -n 500"};
  }
  AdminCall call("decode " + Quote(arguments.tag), "decode");
  call.request.Set("tag", arguments.tag).Set("ids", arguments.ids);
  call.render = ForScreen(out, RenderDecode);
  call.verdict = DecodeVerdict;
  return RunAdminCall(global, call, out);
}

}  // namespace

Result<std::string> RenderDecode(const Json& document, std::size_t columns) {
  Status error;
  const Fields reply(document, "reply", &error);
  static_cast<void>(reply.Text("tag"));  // checks them
  static_cast<void>(reply.Text("mode"));
  Table table(
      {{"ID", Align::kRight}, {"TIME"}, {"WORKER", Align::kRight}, {"SEQUENCE", Align::kRight}});
  for (const Fields& parts : reply.Objects("parts")) {
    if (parts.Has("error")) {
      static_cast<void>(parts.Text("error"));  // DecodeVerdict() reports it
      table.AddRow({parts.CountText("id"), "", "", ""});
      continue;
    }
    PartsFields fields = ReadParts(parts);
    table.AddRow({std::move(fields.id), std::move(fields.time), std::move(fields.worker),
                  std::move(fields.sequence)});
  }
  if (!error.ok()) return error;
  return table.Format(columns);
}

Status DecodeVerdict(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  std::size_t count = 0;
  std::string first;
  for (const Fields& parts : reply.Objects("parts")) {
    if (!parts.Has("error")) continue;
    if (++count == 1) first = "id " + parts.CountText("id") + ": " + parts.Text("error");
  }
  if (!error.ok() || count == 0) return error;
  if (count == 1) return {Code::kSystem, first + "; is it an id of this tag?"};
  return {Code::kSystem, std::to_string(count) + " ids do not fit the layout, the first is " +
                             first + "; are they ids of this tag?"};
}

void RegisterDecodeCommand(Command root, Invocation& invocation) {
  Command decode = root.AddCommand("decode", "Show the time, worker and sequence of snowflake ids",
                                   "idctl decode orders 383123456789012345");
  decode.AddTagName("TAG", "The ids' tag, of mode snowflake", &invocation.decode.tag).Required();
  decode.AddNumbers("ID", "The ids, at most 500", {0, shm::kMaxLimit - 1}, &invocation.decode.ids)
      .ValueName("")
      .Required();
  SetAction(decode, invocation, [&invocation](Output& out) {
    return Decode(invocation.global, invocation.decode, out);
  });
}

}  // namespace idd::tools
