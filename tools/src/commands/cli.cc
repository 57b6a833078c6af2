// SPDX-License-Identifier: Apache-2.0
#include "commands/cli.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "client/admin_client.h"
#include "commands/commands.h"
#include "idd/base/clock.h"
#include "idd/base/url_password.h"
#include "idd/wire/channel.h"
#include "idd/wire/frames.h"
#include "terminal/progress_ticker.h"
#include "terminal/suggestion.h"

namespace idd::tools {
namespace {

constexpr TimeRange kWaitRange = {0, 600, 1000, BareTime::kAllowed};

constexpr const char* kDescription =
    "idctl inspects and administers idd, which gives every process on this host cluster-unique "
    "ids.";
constexpr const char* kFooter =
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such tag, 4 daemon not reachable,\n"
    "5 nothing to claim before the deadline, 6 not permitted, 7 exists already.\n"
    "Example: idctl tag create orders --step 10000 && idctl claim orders -n 3";

// The longest wait for the names of tags that a misspelt one may stand for.
constexpr std::chrono::milliseconds kSuggestionTimeout(2000);

Failure UsageFailure(std::string why, const std::string& command, std::string suggestion = {}) {
  return Failure{ExitStatus::kUsage, "wrong usage", WithoutPassword(std::move(why)),
                 "see '" + command + " --help'", std::move(suggestion)};
}

// The tags that the command line names.
std::vector<std::string> NamedTags(const Invocation& invocation) {
  std::vector<std::string> names = invocation.tag.tags;
  for (const std::string& name : {invocation.tag.tag, invocation.claim.tag, invocation.bench.tag,
                                  invocation.whois.tag, invocation.decode.tag}) {
    names.push_back(name);
  }
  for (const auto& name : {invocation.filter.tag, invocation.drain.tag, invocation.client.tag}) {
    names.push_back(name.value_or(""));
  }
  return names;
}

// Empty if the daemon does not answer at once.
std::vector<std::string> KnownTags(const std::string& socket_path) {
  const Deadline deadline = Deadline::After(kSuggestionTimeout);
  Result<AdminClient> client = AdminClient::Connect(socket_path, deadline);
  if (!client.ok()) return {};
  const Result<JsonDocument> reply = client.value().Request(AdminRequest("tag.list"), deadline);
  if (!reply.ok()) return {};
  Status error;
  std::vector<std::string> names;
  for (const Fields& tag : Fields(reply.value().json(), "reply", &error).Objects("tags")) {
    names.push_back(tag.Text("tag"));
  }
  return names;
}

// The tag that was probably meant by the one that does not exist, or an empty string.
std::string SuggestTag(const Invocation& invocation) {
  const std::vector<std::string> known = KnownTags(invocation.global.socket_path);
  for (const std::string& name : NamedTags(invocation)) {
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (name.empty() || is_known) continue;
    if (std::optional<std::string> nearest = Nearest(name, known)) return *std::move(nearest);
  }
  return {};
}

void AddGlobalOptions(Command root, GlobalOptions& global) {
  const auto read_socket = [&global](const std::string& text) {
    std::string why = CheckSocketArgument(text);
    if (why.empty()) global.socket_path = text;
    return why;
  };
  root.AddArgument("--socket", "The daemon's socket [$IDD_SOCKET, else /run/idd/idd.sock]",
                   read_socket)
      .ValueName("PATH");
  root.AddFlag("--json", "Print one JSON document", &global.as_json);
  root.AddFlag("--json-strings", "The same, with integers as strings, which JavaScript keeps exact",
               &global.has_text_integers);
  root.AddTime("--timeout",
               "The longest wait for the daemon, in milliseconds without a unit [5s; claim: 500ms; "
               "audit, apply: 1m; import, drain: 10m]",
               {1, wire::kMaxTimeoutMs, 1, BareTime::kAllowed}, &global.timeout_ms);
}

void AddCommands(Command root, Invocation& invocation) {
  AddGlobalOptions(root, invocation.global);
  RegisterTagCommands(root, invocation);
  RegisterApplyCommand(root, invocation);
  RegisterClaimCommand(root, invocation);
  RegisterBenchCommand(root, invocation);
  RegisterStatusCommand(root, invocation);
  RegisterTopCommand(root, invocation);
  RegisterLeaseCommands(root, invocation);
  RegisterWitnessCommands(root, invocation);
  RegisterAuditCommand(root, invocation);
  RegisterWhoIsCommand(root, invocation);
  RegisterDecodeCommand(root, invocation);
  RegisterDoctorCommand(root, invocation);
  RegisterImportCommand(root, invocation);
  RegisterStoreCommands(root, invocation);
  RegisterMetricsCommand(root, invocation);
  RegisterDrainCommands(root, invocation);
  RegisterClientCommands(root, invocation);
  RegisterConfigCommands(root, invocation);
}

Outcome Execute(const CommandLine& line, Invocation& invocation, Output& out) {
  GlobalOptions& global = invocation.global;
  global.as_json = global.as_json || global.has_text_integers;
  if (global.socket_path.empty()) global.socket_path = wire::DefaultSocketPath();
  if (const std::string why = CheckSocketArgument(global.socket_path); !why.empty()) {
    return UsageFailure("IDD_SOCKET: " + why, line.CommandPath());
  }
  Outcome outcome = invocation.action(out);
  if (outcome.has_value() && outcome->exit == ExitStatus::kNoSuchTag) {
    outcome->suggestion = SuggestTag(invocation);
  }
  return outcome;
}

Outcome ParseAndExecute(int argc, const char* const* argv, Output& out, int err_fd) {
  CommandLine line({.name = "idctl",
                    .description = kDescription,
                    .footer = kFooter,
                    .version = "idctl " IDD_VERSION});
  Invocation invocation;
  invocation.global.progress_fd = err_fd;
  AddCommands(line.root(), invocation);
  CommandLine::Parsed parsed = line.Parse(argc, argv);
  switch (parsed.kind) {
    case CommandLine::Kind::kWrongUsage:
      return UsageFailure(std::move(parsed.text), line.CommandPath(), std::move(parsed.suggestion));
    case CommandLine::Kind::kHelp:
      out.Write(parsed.text);
      return std::nullopt;
    case CommandLine::Kind::kCommand:
      break;
  }
  return Execute(line, invocation, out);
}

// The command's own failure takes precedence over an output error. A reader that closed its pipe
// needs no message.
Outcome FlushOutcome(Outcome outcome, Output& out) {
  const bool is_written = out.Flush();
  if (outcome.has_value() || is_written) return outcome;
  Failure failure{ExitStatus::kFailed, "write to standard output",
                  std::generic_category().message(out.error()), "check where the output goes"};
  if (out.error() == EPIPE) failure.what.clear();
  return failure;
}

}  // namespace

ExitStatus RunIdctl(int argc, const char* const* argv, int out_fd, int err_fd) noexcept {
  Output err(err_fd);
  try {
    Output out(out_fd);
    const Outcome outcome = FlushOutcome(ParseAndExecute(argc, argv, out, err_fd), out);
    if (!outcome.has_value()) return ExitStatus::kDone;
    if (!outcome->what.empty()) err.Write(FormatFailure(*outcome));
    err.Flush();
    return outcome->exit;
  } catch (const std::exception& error) {
    err.Write("idctl: internal error: ");
    err.Write(EscapeText(error.what()));
    err.Write("; please report it with the command line\n");
    err.Flush();
    return ExitStatus::kFailed;
  }
}

void SetAction(Command command, Invocation& invocation, Action action) {
  command.OnChosen([&invocation, action = std::move(action)] { invocation.action = action; });
}

std::string JsonText(const GlobalOptions& global, const JsonDocument& document) {
  return (global.has_text_integers ? document.WithTextIntegers() : document).Indented() + "\n";
}

std::string JsonLine(const GlobalOptions& global, const JsonDocument& document) {
  return (global.has_text_integers ? document.WithTextIntegers() : document).Compact() + "\n";
}

Outcome RunAdminCall(const GlobalOptions& global, const AdminCall& call, Output& out) {
  const auto timeout_ms = global.timeout_ms.value_or(call.timeout_ms);
  const Deadline deadline = Deadline::After(std::chrono::milliseconds(timeout_ms));
  Result<AdminClient> client = AdminClient::Connect(global.socket_path, deadline);
  if (!client.ok()) return FailureFrom(client.status(), call.what);
  Result<JsonDocument> document = [&] {
    const ProgressTicker ticker(global.progress_fd, [&call](std::chrono::seconds passed) {
      const std::string how_far = call.progress ? call.progress() : std::string();
      return "idctl " + call.what + ": " + (how_far.empty() ? "" : how_far + ", ") +
             FormatDuration(static_cast<double>(passed.count()));
    });
    return client.value().Request(call.request, deadline);
  }();
  if (!document.ok()) return FailureFrom(document.status(), call.what);
  Result<std::string> text = call.render(document.value().json());
  if (!text.ok()) return FailureFrom(text.status(), call.what);
  if (call.refuse) {
    if (Outcome refused = call.refuse(document.value().json())) return refused;
  }
  out.Write(global.as_json ? JsonText(global, document.value()) : text.value());
  if (call.verdict) {
    const Status verdict = call.verdict(document.value().json());
    if (!verdict.ok()) return FailureFrom(verdict, call.what);
  }
  if (!call.warns_of_claims) return std::nullopt;
  return WarnOfClaims(call.what, document.value().json());
}

void AddWaitOption(Command command, std::optional<std::uint64_t>* wait_s) {
  command
      .AddTime("--wait",
               "How long to wait until ids can be claimed, as the witnesses must note each new "
               "range; in seconds without a unit",
               kWaitRange, wait_s)
      .Default(std::to_string(kDefaultWaitS).c_str());
}

std::uint64_t WaitMs(std::optional<std::uint64_t> wait_s, std::uint64_t timeout_ms) {
  return std::min(wait_s.value_or(kDefaultWaitS) * 1000, timeout_ms / 2);
}

void SetWait(const GlobalOptions& global, std::optional<std::uint64_t> wait_s, AdminCall& call) {
  call.warns_of_claims = true;
  call.timeout_ms += wait_s.value_or(kDefaultWaitS) * 1000;
  if (!wait_s && !global.timeout_ms) return;  // idd's default
  call.request.Set("wait_ms", WaitMs(wait_s, global.timeout_ms.value_or(2 * call.timeout_ms)));
}

Outcome WarnOfClaims(const std::string& what, const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  if (!reply.Has("claimable") || reply.Flag("claimable")) return std::nullopt;
  const std::string reason = reply.OptionalText("reason").value_or("the reason is not known");
  return Failure{ExitStatus::kDone, what, "done, but ids cannot be claimed yet: " + reason, ""};
}

}  // namespace idd::tools
