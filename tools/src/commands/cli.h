// SPDX-License-Identifier: Apache-2.0
//
// The command line: the parts that every command shares.
#ifndef IDD_TOOLS_COMMANDS_CLI_H_
#define IDD_TOOLS_COMMANDS_CLI_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/admin_request.h"
#include "client/json_document.h"
#include "client/json_fields.h"
#include "idd/base/status.h"
#include "tags/tag_settings.h"
#include "terminal/command_line.h"
#include "terminal/exit_status.h"
#include "terminal/output.h"

namespace idd::tools {

// Options that every command accepts, before or after its name.
struct GlobalOptions {
  std::string socket_path;
  bool as_json = false;
  bool has_text_integers = false;           // in the JSON
  std::optional<std::uint64_t> timeout_ms;  // nothing: the command's default
  int progress_fd = -1;                     // where long work reports its progress
};

struct TagArguments : TagSettings {
  std::optional<std::uint64_t> wait_s;
  bool is_forced = false;
  bool is_exist_ok = false;
  std::vector<std::string> tags;  // of tag export
};

struct LogArguments {
  std::optional<std::string> level;  // nothing: shows it
};

struct ApplyArguments {
  std::optional<std::string> file;  // "-": standard input
  std::optional<std::uint64_t> wait_s;
  bool is_dry_run = false;
  bool deletes = false;
  bool is_forced = false;
};

struct ClaimArguments {
  std::string tag;
  std::optional<std::uint64_t> count;
};

struct BenchArguments {
  std::string tag;
  std::optional<std::uint64_t> processes;
  std::optional<std::uint64_t> threads;
  std::optional<std::uint64_t> seconds;
  std::optional<std::uint64_t> batch;
  std::optional<std::uint64_t> block;
  std::optional<std::string> order;
};

struct ImportArguments {
  std::optional<std::string> source;
  std::optional<std::string> from;
  std::optional<std::string> table;
  std::optional<std::string> prefix;
  std::optional<std::uint64_t> step;
  std::optional<std::string> mode;
  std::optional<std::uint64_t> wait_s;
  bool is_dry_run = false;
};

struct FilterArguments {
  std::optional<std::string> tag;
  std::optional<std::string> host;
  std::optional<std::string> state;
  std::optional<std::uint64_t> limit;
  std::optional<std::uint64_t> before;  // a place in the journal
  std::optional<std::string> since;     // UTC
  bool is_all_hosts = false;
  bool is_full = false;
};

struct TopArguments {
  double interval_s = 1;
  std::optional<std::string> sort;
  std::optional<std::string> filter;
  std::optional<std::uint64_t> count;
  bool is_once = false;
  bool is_all_hosts = false;
  std::optional<std::uint64_t> limit;  // with is_all_hosts: of hosts, and of tags
};

struct DrainArguments {
  std::optional<std::string> tag;  // nothing: the whole host
};

struct ClientArguments {
  std::optional<std::string> tag;
  std::optional<std::uint64_t> uid;
};

struct WhoIsArguments {
  std::string tag;
  std::optional<std::uint64_t> id;
};

struct DecodeArguments {
  std::string tag;
  std::vector<std::uint64_t> ids;
};

struct HostArguments {
  std::optional<std::string> host;
  bool is_forced = false;
  bool shows_all = false;  // forgotten ones, too
};

struct WitnessArguments {
  std::vector<std::string> hosts;
  bool is_forced = false;
};

struct DoctorArguments {
  bool shows_all = false;
};

// Runs the chosen command.
using Action = std::function<Outcome(Output& out)>;

// One parsed command line. The commands register with the parser, which writes here; the chosen
// command leaves its action. Nothing runs during parsing.
struct Invocation {
  GlobalOptions global;
  TagArguments tag;
  ClaimArguments claim;
  BenchArguments bench;
  FilterArguments filter;
  TopArguments top;
  WhoIsArguments whois;
  DecodeArguments decode;
  ImportArguments import;
  HostArguments host;
  WitnessArguments witness;
  DoctorArguments doctor;
  DrainArguments drain;
  ClientArguments client;
  ApplyArguments apply;
  LogArguments log;
  Action action;
};

// Runs idctl with its output on two descriptors, and returns its exit status. Never throws.
[[nodiscard]] ExitStatus RunIdctl(int argc, const char* const* argv, int out_fd,
                                  int err_fd) noexcept;

// --- For the commands.

void SetAction(Command command, Invocation& invocation, Action action);

// What --json prints: one document with a field a line, or several with a line each.
[[nodiscard]] std::string JsonText(const GlobalOptions& global, const JsonDocument& document);
[[nodiscard]] std::string JsonLine(const GlobalOptions& global, const JsonDocument& document);

inline constexpr std::uint64_t kAdminTimeoutMs = 5000;

// One admin request and how its reply is handled.
struct AdminCall {
  AdminCall(std::string what_for, std::string_view op) : what(std::move(what_for)), request(op) {}

  std::string what;  // the command's name in messages: "tag show 'orders'"
  AdminRequest request;
  // Returns the text for people, or an error if the document is malformed. Also called for --json,
  // so that a script never gets a document that lacks a documented field.
  std::function<Result<std::string>(const Json& document)> render;
  // Optional: a failure instead of the document (the tag already exists).
  std::function<Outcome(const Json& document)> refuse;
  // Optional: an error after the document is printed (the audit does not add up).
  std::function<Status(const Json& document)> verdict;
  // Whether the document says if ids of the tags can be claimed; if they cannot, that is a warning.
  bool warns_of_claims = false;
  std::uint64_t timeout_ms = kAdminTimeoutMs;  // unless --timeout says otherwise
  // Optional: the progress shown on a terminal; must be quick; called on any thread. Without it the
  // elapsed time is shown.
  std::function<std::string()> progress;
};
[[nodiscard]] Outcome RunAdminCall(const GlobalOptions& global, const AdminCall& call, Output& out);

// How long a command waits until ids of the tags that it has made or changed can be claimed.
inline constexpr std::uint64_t kDefaultWaitS = 5;
void AddWaitOption(Command command, std::optional<std::uint64_t>* wait_s);
// The wait of a request that has `timeout_ms`, unless --wait was given: an answer must come before
// the timeout.
[[nodiscard]] std::uint64_t WaitMs(std::optional<std::uint64_t> wait_s, std::uint64_t timeout_ms);
// Makes the call wait, and warn if it has waited for nothing.
void SetWait(const GlobalOptions& global, std::optional<std::uint64_t> wait_s, AdminCall& call);
// A warning if the reply to `what` says that ids of its tags cannot be claimed yet.
[[nodiscard]] Outcome WarnOfClaims(const std::string& what, const Json& document);

}  // namespace idd::tools

#endif  // IDD_TOOLS_COMMANDS_CLI_H_
