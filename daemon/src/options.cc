// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <sys/un.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <map>

#include "config_tables.h"
#include "host_id.h"
#include "metrics_server.h"
#include "store/store.h"

namespace idd::daemon {
namespace {

constexpr const char* kDefaultConfig = "/etc/idd/idd.toml";
constexpr int kExitUsage = 2;
constexpr std::size_t kMaxSocketPathBytes = sizeof(sockaddr_un::sun_path) - 1;

// One setting: its flag; the file's key is the same with '_', the variable IDD_ and upper case.
struct Setting {
  const char* name;
  const char* help;
  std::string value;       // as given; the default until then
  bool is_number = false;  // in the file
};

using Settings = std::vector<Setting>;

Settings DefaultSettings() {
  const Options defaults;
  return {
      {"database", "URL of the allocator: sqlite:PATH", defaults.database},
      {"socket", "path of the listening Unix socket", defaults.socket},
      {"state-dir", "directory for what this host must remember", defaults.state_dir},
      {"host-id", "this host's name in the lease journal (default: from the machine id)", ""},
      {"lease-limit", "leases per second that this host takes at most, of all tags together",
       std::to_string(defaults.lease_limit), true},
      {"metrics-listen", "serve Prometheus metrics by HTTP at this address and port", ""},
      {"metrics-textfile", "keep Prometheus metrics in this file, for node_exporter", ""},
      {"log-level", "debug, info, warning or error", "info"},
      {"log-format", "text or json", "text"},
  };
}

std::string FileKey(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string Variable(const std::string& name) {
  std::string upper = FileKey(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return "IDD_" + upper;
}

Setting* FindSetting(Settings& settings, std::string_view file_key) {
  const auto it = std::find_if(settings.begin(), settings.end(), [&](const Setting& setting) {
    return FileKey(setting.name) == file_key;
  });
  return it == settings.end() ? nullptr : &*it;
}

// Takes from the file what neither a flag nor a variable has set.
Status TakeSettings(const ConfigFile& file, const CLI::App& app, Settings& settings) {
  for (const ConfigKey& key : file.Keys()) {
    Setting* setting = FindSetting(settings, key.name);
    if (setting == nullptr) {
      return {Code::kInvalid, key.where + "unknown key '" + key.name + "'"};
    }
    std::optional<std::string> text = key.text;
    if (setting->is_number) {
      text = key.number ? std::optional(std::to_string(*key.number)) : std::nullopt;
    }
    if (!text) {
      return {Code::kInvalid, key.where + "'" + key.name + "' must be a " +
                                  (setting->is_number ? "whole number" : "string")};
    }
    if (app.get_option(std::string("--") + setting->name)->count() == 0) setting->value = *text;
  }
  return Status::Ok();
}

Result<log::Level> ParseLevel(const std::string& text) {
  static const std::map<std::string, log::Level> levels = {{"debug", log::Level::kDebug},
                                                           {"info", log::Level::kInfo},
                                                           {"warning", log::Level::kWarning},
                                                           {"error", log::Level::kError}};
  const auto it = levels.find(text);
  if (it != levels.end()) return it->second;
  return Status(Code::kInvalid,
                "log-level must be debug, info, warning or error, not '" + text + "'");
}

Result<log::Format> ParseFormat(const std::string& text) {
  if (text == "text") return log::Format::kText;
  if (text == "json") return log::Format::kJson;
  return Status(Code::kInvalid, "log-format must be text or json, not '" + text + "'");
}

Result<std::uint32_t> ParseLeaseLimit(const std::string& text) {
  constexpr std::uint32_t kMost = 1'000'000;
  std::uint32_t limit = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, limit);
  if (parsed.ec == std::errc{} && parsed.ptr == end && limit >= 1 && limit <= kMost) return limit;
  return Status(Code::kInvalid, "lease-limit must be a whole number from 1 to " +
                                    std::to_string(kMost) + ", not '" + text + "'");
}

// Both off unless they are set.
Status CheckMetrics(const Options& options) {
  const std::string& file = options.metrics_textfile;
  if (file.find('\0') != std::string::npos || file.ends_with('/')) {
    return {Code::kInvalid, "metrics-textfile must be the path of a file, not '" + file + "'"};
  }
  if (options.metrics_listen.empty()) return Status::Ok();
  return CheckListenAddress(options.metrics_listen);
}

// Checks what can be checked without touching anything.
Result<Options> Validate(Settings& settings) {
  Options options;
  const auto value = [&](const char* key) { return FindSetting(settings, key)->value; };
  options.database = value("database");
  options.socket = value("socket");
  options.state_dir = value("state_dir");
  options.host_id = value("host_id");
  const Result<std::uint32_t> limit = ParseLeaseLimit(value("lease_limit"));
  if (!limit.ok()) return limit.status();
  options.lease_limit = limit.value();
  options.metrics_listen = value("metrics_listen");
  options.metrics_textfile = value("metrics_textfile");
  if (Status status = CheckMetrics(options); !status.ok()) return status;
  const Result<log::Level> level = ParseLevel(value("log_level"));
  if (!level.ok()) return level.status();
  options.log_level = level.value();
  const Result<log::Format> format = ParseFormat(value("log_format"));
  if (!format.ok()) return format.status();
  options.log_format = format.value();
  if (options.socket.empty() || options.state_dir.empty()) {
    return Status(Code::kInvalid, "socket and state-dir must not be empty");
  }
  if (options.socket.size() > kMaxSocketPathBytes ||
      options.socket.find('\0') != std::string::npos) {
    return Status(Code::kInvalid, "socket must have at most " +
                                      std::to_string(kMaxSocketPathBytes) + " bytes and no NUL");
  }
  if (options.state_dir.find('\0') != std::string::npos) {
    return Status(Code::kInvalid, "state-dir must not contain a NUL");
  }
  if (!options.host_id.empty()) {
    if (Status status = CheckHostId(options.host_id); !status.ok()) return status;
  }
  const auto store = MakeStore(options.database, {.id = "check", .boot_id = "", .instance = ""});
  if (!store.ok()) return store.status();
  return options;
}

ParsedOptions Usage(const std::string& message) {
  return {.options = std::nullopt, .output = "idd: " + message + "\n", .exit_status = kExitUsage};
}

}  // namespace

ParsedOptions ParseOptions(const std::vector<std::string>& arguments) {
  CLI::App app(
      "Leases segments of cluster-unique ids and serves them to every process of this host.",
      "idd");
  Settings settings = DefaultSettings();
  std::string config = kDefaultConfig;
  ConfigTables tables;
  bool check_config = false;
  app.set_version_flag("--version", std::string("idd ") + IDD_VERSION);
  app.add_option("--config", config, "TOML configuration")
      ->envname("IDD_CONFIG")
      ->capture_default_str();
  for (Setting& setting : settings) {
    app.add_option(std::string("--") + setting.name, setting.value, setting.help)
        ->envname(Variable(setting.name))
        ->capture_default_str();
  }
  app.add_flag("--check-config", check_config, "check the configuration and exit");
  app.footer(
      "Every option is also a key of the file (state_dir = \"...\") and a variable (IDD_STATE_DIR);"
      "\na flag beats a variable, a variable beats the file. Who may use which tag is said in the "
      "file alone.\n\n"
      "Example: idd --database sqlite:/var/lib/idd/idd.db --socket /run/idd/idd.sock");
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return {.options = std::nullopt, .output = app.help(), .exit_status = 0};
  } catch (const CLI::CallForVersion& version) {
    return {
        .options = std::nullopt, .output = std::string(version.what()) + "\n", .exit_status = 0};
  } catch (const CLI::ParseError& error) {
    return Usage(std::string(error.what()) + "; see idd --help");
  }
  const bool config_given = app.get_option("--config")->count() != 0;
  const bool read_file = config_given || ::access(kDefaultConfig, F_OK) == 0;
  if (read_file) {
    if (::access(config.c_str(), R_OK) != 0)
      return Usage("cannot read the configuration " + config);
    std::error_code ignored;
    if (std::filesystem::is_directory(config, ignored)) {
      return Usage("the configuration " + config + " is a directory");
    }
    const Result<ConfigFile> file = ConfigFile::Read(config);
    if (!file.ok()) return Usage(file.status().message());
    if (Status status = TakeSettings(file.value(), app, settings); !status.ok())
      return Usage(status.message());
    Result<ConfigTables> read = file.value().ReadTables();
    if (!read.ok()) return Usage(read.status().message());
    tables = std::move(read).value();
  }
  Result<Options> options = Validate(settings);
  if (!options.ok()) return Usage(options.status().message());
  options.value().limits = tables.limits;
  options.value().access = std::move(tables.access);
  options.value().config_file = read_file ? config : "";
  options.value().check_config = check_config;
  options.value().arguments = arguments;
  return {.options = std::move(options).value(), .output = "", .exit_status = 0};
}

}  // namespace idd::daemon
