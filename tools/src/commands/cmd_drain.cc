// SPDX-License-Identifier: Apache-2.0
//
// idctl drain, resume: take a tag or the whole host out of use, and return it to use.
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "client/admin_client.h"
#include "commands/commands.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

using std::chrono::milliseconds;

// The tails of thousands of tags go back one by one.
constexpr std::uint64_t kDrainTimeoutMs = 600'000;
// How long each request waits. idctl shows each reply and asks again.
constexpr milliseconds kBetweenLooks(200);

std::string NameOf(const DrainArguments& arguments, const char* command) {
  return arguments.tag ? std::string(command) + " " + Quote(*arguments.tag) : command;
}

// "tag 'orders'", "the host".
std::string ScopeOf(const Fields& reply) {
  const std::optional<std::string> tag = reply.OptionalText("tag");
  return tag ? "tag " + Quote(*tag) : "the host";
}

// Whether another request would gain nothing: all tails are back, the store is unavailable, or the
// reply is malformed.
bool IsOver(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  const bool is_done = reply.Flag("done");
  const bool is_up = reply.Text("store") == "up";
  return !error.ok() || is_done || !is_up;
}

// The newest reply, with the state before the drain from the first reply.
Result<JsonDocument> DrainAndWait(AdminClient& client, const DrainArguments& arguments,
                                  Deadline deadline) {
  constexpr const char* kWasDrained = "was_drained";
  AdminRequest request("drain");
  request.SetIfGiven("tag", arguments.tag);
  ProgressLine progress(STDERR_FILENO);
  JsonDocument before;  // `was_drained` of the first reply
  while (true) {
    const milliseconds wait = std::min(kBetweenLooks, deadline.remaining() / 2);
    request.Set("wait_ms", static_cast<std::uint64_t>(wait.count()));
    Result<JsonDocument> reply = client.Request(request, deadline);
    if (!reply.ok()) return reply;
    Json& document = reply.value().json();
    if (!IsObject(document)) return reply;  // the renderer reports the malformed field
    if (before.size() == 0) CopyField(document, kWasDrained, before.json());
    CopyField(before.json(), kWasDrained, document);
    if (IsOver(document) || wait < kBetweenLooks) return reply;
    progress.Show(DrainProgressText(document));
  }
}

Outcome Drain(const GlobalOptions& global, const DrainArguments& arguments, Output& out) {
  const std::string what = NameOf(arguments, "drain");
  const Deadline deadline =
      Deadline::After(milliseconds(global.timeout_ms.value_or(kDrainTimeoutMs)));
  Result<AdminClient> client = AdminClient::Connect(global.socket_path, deadline);
  if (!client.ok()) return FailureFrom(client.status(), what);
  const Result<JsonDocument> document = DrainAndWait(client.value(), arguments, deadline);
  if (!document.ok()) return FailureFrom(document.status(), what);
  const Result<std::string> text = RenderDrain(document.value().json());
  if (!text.ok()) return FailureFrom(text.status(), what);
  out.Write(global.as_json ? JsonText(global, document.value()) : text.value());
  const Status verdict = DrainVerdict(document.value().json());
  if (verdict.ok()) return std::nullopt;
  return FailureFrom(verdict, what);
}

Outcome Resume(const GlobalOptions& global, const DrainArguments& arguments, Output& out) {
  AdminCall call(NameOf(arguments, "resume"), "resume");
  call.request.SetIfGiven("tag", arguments.tag);
  call.render = RenderResume;
  return RunAdminCall(global, call, out);
}

}  // namespace

Result<std::string> RenderDrain(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  std::string text =
      ScopeOf(reply) + (reply.Flag("was_drained") ? " was drained already: " : " is drained: ");
  text += reply.CountText("ids_returned") + " ids handed back";
  if (reply.Text("scope") == "host") {
    text += ", of " + reply.CountText("tags");
    text += reply.Count("tags") == 1 ? " tag in use" : " tags in use";
  }
  if (reply.Count("ids_abandoned") != 0)
    text += ", " + reply.CountText("ids_abandoned") + " abandoned";
  if (reply.Count("ids_pending") != 0)
    text += ", " + reply.CountText("ids_pending") + " not back yet";
  if (!error.ok()) return error;
  return text + "\n";
}

Status DrainVerdict(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  const bool is_done = reply.Flag("done");
  const bool is_up = reply.Text("store") == "up";
  const std::string why = reply.OptionalText("store_error").value_or("it has not answered yet");
  const std::string pending = reply.CountText("ids_pending");
  if (!error.ok()) return error;
  if (is_done) return Status::Ok();
  const std::string what = "claims are stopped, but " + pending + " ids are not back: ";
  if (is_up) {
    return {Code::kSystem, what + "the store has not taken them yet; run it again to wait for it"};
  }
  return {Code::kSystem,
          what + "the store is down (" + why +
              "); idd returns them when the store answers; run the command again to check"};
}

std::string DrainProgressText(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  std::string text = "draining " + ScopeOf(reply) + ": " + reply.CountText("ids_returned") +
                     " ids handed back, " + reply.CountText("leases_pending") + " leases to go";
  return error.ok() ? text : std::string();
}

Result<std::string> RenderResume(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  std::string text =
      ScopeOf(reply) + (reply.Flag("was_drained") ? " is resumed" : " was not drained");
  const std::vector<std::string> others = reply.Texts("still_drained");
  if (reply.Text("scope") == "host" && !others.empty()) {
    text += "; still drained by name: ";
    for (const std::string& tag : others)
      text += (&tag == &others.front() ? "" : ", ") + Quote(tag);
  }
  if (!error.ok()) return error;
  return text + "\n";
}

void RegisterDrainCommands(Command root, Invocation& invocation) {
  std::optional<std::string>* const tag = &invocation.drain.tag;
  Command drain =
      root.AddCommand("drain", "Stop leasing and hand back unclaimed ids", "idctl drain orders");
  drain.AddTagName("TAG", "Only this tag; without it, every tag of this host", tag);
  SetAction(drain, invocation,
            [&invocation](Output& out) { return Drain(invocation.global, invocation.drain, out); });
  Command resume = root.AddCommand("resume", "End a drain", "idctl resume orders");
  resume.AddTagName("TAG", "The tag that was drained; without it, the host", tag);
  SetAction(resume, invocation, [&invocation](Output& out) {
    return Resume(invocation.global, invocation.drain, out);
  });
}

}  // namespace idd::tools
