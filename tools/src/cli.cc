// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
#include <sstream>
#include <utility>

#include "admin_client.h"
#include "commands.h"
#include "idd/base/clock.h"
#include "idd/base/url_password.h"
#include "idd/wire/channel.h"
#include "idd/wire/frames.h"
#include "progress_ticker.h"

namespace idd::tools {
namespace {

constexpr const char* kDescription =
    "idctl inspects and administers idd, which gives every process on this host cluster-unique "
    "ids.";
constexpr const char* kFooter =
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no such tag, 4 daemon not reachable,\n"
    "5 nothing to claim before the deadline, 6 not permitted.\n"
    "Example: idctl tag create orders --step 10000 && idctl claim orders -n 3";

Failure UsageFailure(std::string why, const std::string& command) {
  return Failure{ExitStatus::kUsage, "wrong usage", WithoutPassword(std::move(why)),
                 "see '" + command + " --help'"};
}

void AddGlobalOptions(CLI::App& app, GlobalOptions& global) {
  app.add_option("--socket", global.socket_path,
                 "The daemon's socket [$IDD_SOCKET, else /run/idd/idd.sock]")
      ->type_name("PATH")
      ->take_last()
      ->check(CheckSocketArgument, "");
  app.add_flag("--json", global.as_json, "Print one JSON document");
  AddNumber(
      app, "--timeout",
      "The longest wait for the daemon [5000; claim: 500; audit: 60000; import, drain: 600000]",
      {1, wire::kMaxTimeoutMs}, &global.timeout_ms)
      ->type_name("MS");
}

void BuildParser(CLI::App& app, Invocation& invocation) {
  app.name("idctl");
  app.footer(kFooter);
  app.fallthrough();  // inherited: the global options may stand behind the command, too
  app.require_subcommand(1);
  app.set_version_flag("--version", "idctl " IDD_VERSION);
  AddGlobalOptions(app, invocation.global);
  RegisterTagCommands(app, invocation);
  RegisterClaimCommand(app, invocation);
  RegisterBenchCommand(app, invocation);
  RegisterStatusCommand(app, invocation);
  RegisterTopCommand(app, invocation);
  RegisterLeaseCommands(app, invocation);
  RegisterAuditCommand(app, invocation);
  RegisterWhoIsCommand(app, invocation);
  RegisterDoctorCommand(app, invocation);
  RegisterImportCommand(app, invocation);
  RegisterMetricsCommand(app, invocation);
  RegisterDrainCommands(app, invocation);
  RegisterClientCommands(app, invocation);
}

// "idctl tag create": as far as the command line was understood.
std::string CommandPath(const CLI::App& app) {
  std::string path = "idctl";
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  return path;
}

// The parser's sentence, or a clearer one for the two most frequent mistakes.
std::string UsageText(const CLI::ParseError& error, const CLI::App& app) {
  const int code = error.get_exit_code();
  const bool is_missing = code == static_cast<int>(CLI::ExitCodes::RequiredError);
  if (!is_missing && code != static_cast<int>(CLI::ExitCodes::ExtrasError)) return error.what();
  const std::vector<std::string> unknown = app.remaining(true);
  if (!unknown.empty()) return "unknown argument " + Quote(unknown.front());
  const std::string text = error.what();
  return text == "A subcommand is required" ? "no command given" : text;
}

Outcome Execute(CLI::App& app, Invocation& invocation, Output& out) {
  GlobalOptions& global = invocation.global;
  if (global.socket_path.empty()) global.socket_path = wire::DefaultSocketPath();
  if (const std::string why = CheckSocketArgument(global.socket_path); !why.empty()) {
    return UsageFailure("IDD_SOCKET: " + why, CommandPath(app));
  }
  return invocation.action(out);
}

Outcome ParseAndExecute(int argc, const char* const* argv, Output& out, int err_fd) {
  CLI::App app(kDescription);
  Invocation invocation;
  invocation.global.progress_fd = err_fd;
  BuildParser(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success)) {
      return UsageFailure(UsageText(error, app), CommandPath(app));
    }
    std::ostringstream text;  // --help and --version are "errors" to CLI11
    app.exit(error, text, text);
    out.Write(text.str());
    return std::nullopt;
  }
  return Execute(app, invocation, out);
}

// The command's own failure goes before one of the output. A reader that has seen enough (a broken
// pipe) needs no message.
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

CLI::App* AddCommand(CLI::App& parent, const char* name, const char* summary, const char* example) {
  CLI::App* command = parent.add_subcommand(name, summary);
  command->footer(std::string("Global options: --socket PATH, --json, --timeout MS; see 'idctl "
                              "--help'.\nExample: ") +
                  example);
  return command;
}

CLI::Option* AddTagName(CLI::App& command, const char* name, const char* help,
                        std::function<void(std::string)> set) {
  const bool is_positional = *name != '-';  // those are shown by their name alone
  return command
      .add_option_function<std::string>(
          name, [set = std::move(set)](const std::string& tag) { set(tag); }, help)
      ->type_name(is_positional ? "" : "TAG")
      ->take_last()
      ->check(CheckTagArgument, "");
}

CLI::Option* AddNumber(CLI::App& command, const char* name, const char* help, NumberRange range,
                       std::optional<std::uint64_t>* number) {
  const auto check = [range](const std::string& text) {
    std::uint64_t ignored = 0;
    return ParseNumber(text, range, &ignored);
  };
  const auto set = [range, number](const std::string& text) {
    std::uint64_t value = 0;
    if (ParseNumber(text, range, &value).empty()) *number = value;
  };
  return command.add_option_function<std::string>(name, set, help)
      ->type_name("N")
      ->take_last()
      ->check(check, "");
}

CLI::Option* AddText(CLI::App& command, const char* name, const char* help,
                     std::optional<std::string>* text) {
  return command
      .add_option_function<std::string>(
          name, [text](const std::string& value) { *text = value; }, help)
      ->type_name("TEXT")
      ->take_last()
      ->check(CheckTextArgument, "");
}

CLI::Option* AddChoice(CLI::App& command, const char* name, const char* help,
                       std::vector<std::string> choices, std::optional<std::string>* choice) {
  std::string list;
  for (const std::string& item : choices) list += (list.empty() ? "" : ", ") + item;
  const std::string full_help = std::string(help) + ": " + list;
  const auto check = [choices = std::move(choices), list](const std::string& text) {
    const bool is_known = std::find(choices.begin(), choices.end(), text) != choices.end();
    return is_known ? "" : Quote(text) + " is not one of " + list;
  };
  return command
      .add_option_function<std::string>(
          name, [choice](const std::string& value) { *choice = value; }, full_help)
      ->take_last()
      ->check(check, "");
}

std::string CheckTagArgument(const std::string& tag) { return wire::CheckTagName(tag).message(); }

std::string CheckTextArgument(const std::string& text) {
  if (!IsUtf8(text)) return "the text is not UTF-8";
  if (text.size() > kMaxTextBytes) {
    return "the text is longer than " + std::to_string(kMaxTextBytes) + " bytes";
  }
  return {};
}

std::string CheckSocketArgument(const std::string& path) {
  constexpr std::size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty()) return "the socket's path is empty";
  if (path.size() > kMaxPathBytes) {
    return "the socket's path is longer than " + std::to_string(kMaxPathBytes) + " bytes";
  }
  return {};
}

std::string ParseNumber(const std::string& text, NumberRange range, std::uint64_t* number) {
  const char* const end = text.data() + text.size();
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value, 10);
  const bool is_number = stop == end && error == std::errc();
  if (!is_number || value < range.min || value > range.max) {
    return Quote(text) + " is not a whole number from " + std::to_string(range.min) + " to " +
           std::to_string(range.max);
  }
  *number = value;
  return {};
}

Outcome RunAdminCall(const GlobalOptions& global, const AdminCall& call, Output& out) {
  const auto timeout_ms = global.timeout_ms.value_or(call.timeout_ms);
  const Deadline deadline = Deadline::After(std::chrono::milliseconds(timeout_ms));
  Result<AdminClient> client = AdminClient::Connect(global.socket_path, deadline);
  if (!client.ok()) return FailureFrom(client.status(), call.what);
  Result<Json> document = [&] {
    const ProgressTicker ticker(global.progress_fd, [&call](std::chrono::seconds passed) {
      const std::string how_far = call.progress ? call.progress() : std::string();
      return "idctl " + call.what + ": " + (how_far.empty() ? "" : how_far + ", ") +
             FormatDuration(static_cast<double>(passed.count()));
    });
    return client.value().Request(call.request, deadline);
  }();
  if (!document.ok()) return FailureFrom(document.status(), call.what);
  Result<std::string> text = call.render(document.value());
  if (!text.ok()) return FailureFrom(text.status(), call.what);
  out.Write(global.as_json ? document.value().dump(2) + "\n" : text.value());
  if (!call.verdict) return std::nullopt;
  if (Status verdict = call.verdict(document.value()); !verdict.ok()) {
    return FailureFrom(verdict, call.what);
  }
  return std::nullopt;
}

}  // namespace idd::tools
