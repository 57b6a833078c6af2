// SPDX-License-Identifier: Apache-2.0
//
// idctl config show, log-level: the configuration of the running daemon.
#include <algorithm>
#include <utility>

#include "commands/commands.h"

namespace idd::tools {
namespace {

struct ShownSetting {
  std::string key;
  std::string value;
  std::string source;
};

// "environment IDD_SOCKET", "/etc/idd/idd.toml:12".
std::string SourceText(const std::string& source, const std::string& where) {
  if (source == "file" && !where.empty()) return where;
  if (source == "log.level") return "idctl log-level";
  return where.empty() ? source : source + " " + where;
}

std::vector<ShownSetting> ReadSettings(const Json& document, Status* error) {
  std::vector<ShownSetting> settings;
  for (const Fields& fields : Fields(document, "reply", error).Objects("settings")) {
    settings.push_back(
        {fields.Text("key"), fields.OptionalText("value").value_or(""),
         SourceText(fields.Text("source"), fields.OptionalText("where").value_or(""))});
  }
  return settings;
}

std::size_t WidestLine(std::string_view text) {
  std::size_t widest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    widest = std::max(widest, WidthInCharacters(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return widest;
}

// For a screen that is too narrow for a table.
std::string Stacked(const std::vector<ShownSetting>& settings, std::size_t columns) {
  std::string text;
  for (const ShownSetting& setting : settings) {
    text += BreakTo(EscapeText(setting.key), 0, columns);
    text += BreakTo(setting.value.empty() ? "-" : EscapeText(setting.value), 2, columns);
    text += BreakTo(EscapeText(setting.source), 2, columns);
  }
  return text;
}

Outcome ShowConfig(const GlobalOptions& global, Output& out) {
  AdminCall call("config show", "config.show");
  call.render = ForScreen(out, RenderConfig);
  return RunAdminCall(global, call, out);
}

Outcome SetLogLevel(const GlobalOptions& global, const LogArguments& arguments, Output& out) {
  AdminCall call("log-level", "log.level");
  call.request.SetIfGiven("level", arguments.level);
  call.render = RenderLogLevel;
  return RunAdminCall(global, call, out);
}

}  // namespace

void RegisterConfigCommands(Command root, Invocation& invocation) {
  Command config =
      root.AddCommand("config", "Show the configuration that idd uses", "idctl config show");
  config.RequireSubcommand();
  Command show = config.AddCommand("show", "Show each setting, and where it comes from",
                                   "idctl --json config show");
  SetAction(show, invocation,
            [&invocation](Output& out) { return ShowConfig(invocation.global, out); });

  Command level = root.AddCommand("log-level", "Show or set the level of the log of idd",
                                  "idctl log-level debug");
  level
      .AddChoice("LEVEL", "Until idd reloads its configuration or restarts",
                 {"debug", "info", "warning", "error"}, &invocation.log.level)
      .ValueName("");
  SetAction(level, invocation, [&invocation](Output& out) {
    return SetLogLevel(invocation.global, invocation.log, out);
  });
}

Result<std::string> RenderConfig(const Json& document, std::size_t columns) {
  Status error;
  const std::vector<ShownSetting> settings = ReadSettings(document, &error);
  if (!error.ok()) return error;
  Table table({{"SETTING"}, {"VALUE"}, {"SOURCE"}});
  for (const ShownSetting& setting : settings) {
    table.AddRow({setting.key, setting.value, setting.source});
  }
  std::string text = table.Format();
  if (columns != 0 && WidestLine(text) > columns) return Stacked(settings, columns);
  return text;
}

Result<std::string> RenderLogLevel(const Json& document) {
  Status error;
  const Fields fields(document, "reply", &error);
  const std::string level = EscapeText(fields.Text("level"));
  const std::string was = EscapeText(fields.Text("was"));
  if (!error.ok()) return error;
  if (level == was) return level + "\n";
  return level + ", was " + was + "\nuntil idd reloads or restarts\n";
}

}  // namespace idd::tools
