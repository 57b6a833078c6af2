// SPDX-License-Identifier: Apache-2.0
#include "config/options.h"

#include <sys/un.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "config/config_tables.h"
#include "config/make_store.h"
#include "platform/host_id.h"
#include "platform/journal_stream.h"
#include "platform/listen_address.h"
#include "platform/name_service.h"
#include "platform/path_error.h"
#include "sql/mysql_url.h"
#include "store/store.h"

namespace idd::daemon {
namespace {

constexpr int kExitUsage = 2;
constexpr const char* kServiceUser = "idd";
constexpr std::size_t kMaxSocketPathBytes = sizeof(sockaddr_un::sun_path) - 1;

// One setting. `name` is its flag; its key in the file has '_' for '-', and its environment
// variable is IDD_ and that key in upper case.
struct Setting {
  const char* name;
  const char* help;
  std::string value;       // as given; the default until then
  bool is_number = false;  // in the file
  std::string where = {};  // "path:line: " if the value comes from the file
};

using Settings = std::vector<Setting>;

Settings DefaultSettings() {
  const Options defaults;
  return {
      {"database",
       "URL of the allocator: sqlite:PATH, or mysql://USER@HOST/DATABASE for many hosts",
       defaults.database},
      {"socket", "path of the listening Unix socket", defaults.socket},
      {"state-dir", "state directory of this host", defaults.state_dir},
      {"host-id", "this host's name in the lease journal (default: from the machine id)", ""},
      {"host-address", "address of this host for people, as idctl host list shows it", ""},
      {"lease-limit", "maximum leases per second of this host, over all tags",
       std::to_string(defaults.lease_limit), true},
      {"journal-retention",
       "how long the journal keeps a lease that has ended: a number and s, m, h"
       " or d, or 0 indefinitely",
       "90d"},
      {"metrics-listen", "serve Prometheus metrics over HTTP at this address and port", ""},
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

// Takes the settings from the file that neither a flag nor a variable has set.
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
    if (app.get_option(std::string("--") + setting->name)->count() != 0) continue;
    setting->value = *text;
    setting->where = key.where;
  }
  return Status::Ok();
}

bool IsOnCommandLine(const std::vector<std::string>& arguments, const std::string& name) {
  const std::string flag = "--" + name;
  return std::any_of(arguments.begin(), arguments.end(), [&flag](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  });
}

// Where the value of the option comes from; `where` is its place in the file, if it is from there.
SettingSource SourceOf(const CLI::App& app, const std::vector<std::string>& arguments,
                       const Setting& setting) {
  SettingSource found{FileKey(setting.name), setting.value, "default", ""};
  if (!setting.where.empty()) {
    found.source = "file";
    found.where = setting.where.substr(0, setting.where.rfind(": "));
  } else if (IsOnCommandLine(arguments, setting.name)) {
    found.source = "command line";
  } else if (app.get_option(std::string("--") + setting.name)->count() != 0) {
    found.source = "environment";
    found.where = Variable(setting.name);
  }
  return found;
}

// "path:line: log_level <what>" of a value from the file, else "log-level <what>".
Status Wrong(const Setting& setting, const std::string& what) {
  const std::string name = setting.where.empty() ? setting.name : FileKey(setting.name);
  return {Code::kInvalid, setting.where + name + " " + what};
}

// Adds the setting's position to a message that already names the setting.
Status Locate(const Setting& setting, const Status& status) {
  return {status.code(), setting.where + status.message()};
}

Result<log::Level> ParseLevel(const Setting& setting) {
  const std::optional<log::Level> level = log::ParseLevel(setting.value);
  if (level.has_value()) return *level;
  return Wrong(setting, "must be debug, info, warning or error, got '" + setting.value + "'");
}

Result<log::Format> ParseFormat(const Setting& setting) {
  if (setting.value == "text") return log::Format::kText;
  if (setting.value == "json") return log::Format::kJson;
  return Wrong(setting, "must be text or json, got '" + setting.value + "'");
}

Result<std::uint32_t> ParseLeaseLimit(const Setting& setting) {
  constexpr std::uint32_t kMax = 1'000'000;
  const std::string& text = setting.value;
  std::uint32_t limit = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, limit);
  if (parsed.ec == std::errc{} && parsed.ptr == end && limit >= 1 && limit <= kMax) return limit;
  return Wrong(setting,
               "must be a whole number from 1 to " + std::to_string(kMax) + ", got '" + text + "'");
}

// A path in the file must not depend on the directory that idd was started in, which is "/" for the
// unit and any other for a shell. Paths in flags and variables may be relative.
Status CheckIsAbsolute(const Setting& setting, const std::string& path, const std::string& rule,
                       const std::string& example) {
  if (setting.where.empty() || path.starts_with('/')) return Status::Ok();
  return Wrong(setting, rule + ", as \"" + example + "\", got '" + path +
                            "'; a relative path depends on idd's working directory");
}

Status CheckUrlPaths(const Setting& setting, const MysqlUrl& url) {
  const std::array<std::pair<const char*, const std::string*>, 5> paths = {
      {{"unix_socket", &url.unix_socket},
       {"ssl_ca", &url.ssl_ca},
       {"ssl_cert", &url.ssl_cert},
       {"ssl_key", &url.ssl_key},
       {"server_public_key", &url.server_public_key}}};
  for (const auto& [name, path] : paths) {
    if (path->empty()) continue;
    const std::string rule = std::string("must have an absolute path in ") + name;
    Status status = CheckIsAbsolute(setting, *path, rule, name + std::string("=/etc/idd/FILE"));
    if (!status.ok()) return status;
  }
  // A name without '/' is a credential's.
  if (url.password_file.find('/') == std::string::npos) return Status::Ok();
  return CheckIsAbsolute(setting, url.password_file, "must have an absolute path in password_file",
                         "password_file=/etc/idd/password");
}

Status CheckDatabase(const Setting& setting) {
  const auto store = MakeStore(setting.value, {.id = "check", .boot_id = "", .instance = ""});
  if (!store.ok()) return Locate(setting, store.status());
  if (setting.value.starts_with(kSqliteScheme)) {
    return CheckIsAbsolute(setting, setting.value.substr(kSqliteScheme.size()),
                           "must name an absolute path", "sqlite:/var/lib/idd/idd.db");
  }
  const Result<MysqlUrl> url = ParseOwnMysqlUrl(setting.value);
  return url.ok() ? CheckUrlPaths(setting, url.value()) : Locate(setting, url.status());
}

// Nothing: indefinitely.
Result<std::optional<std::chrono::seconds>> ParseRetention(const Setting& setting) {
  constexpr std::array<std::pair<char, std::int64_t>, 4> kUnits = {
      {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}}};
  constexpr std::int64_t kMostDays = 36'500;
  std::int64_t number = 0;
  const std::string& text = setting.value;
  if (text == "0") return std::optional<std::chrono::seconds>();
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  for (const auto& [unit, seconds] : kUnits) {
    const bool is_it = parsed.ec == std::errc{} && parsed.ptr + 1 == end && *parsed.ptr == unit;
    if (!is_it || number < 1 || number > kMostDays * 86'400 / seconds) continue;
    return std::optional(std::chrono::seconds(number * seconds));
  }
  return Wrong(setting,
               "must be a time of at most " + std::to_string(kMostDays) +
                   " days, as \"90d\", \"12h\", \"30m\" or \"10s\", or \"0\" indefinitely, got '" +
                   text + "'");
}

// Both off unless they are set.
Status CheckMetrics(const Setting& listen, const Setting& textfile) {
  const std::string& file = textfile.value;
  if (file.find('\0') != std::string::npos || file.ends_with('/')) {
    return Wrong(textfile, "must be the path of a file, got '" + file + "'");
  }
  if (!file.empty()) {
    Status status =
        CheckIsAbsolute(textfile, file, "must be an absolute path", "/run/idd/idd.prom");
    if (!status.ok()) return status;
  }
  if (listen.value.empty()) return Status::Ok();
  Status status = CheckListenAddress(listen.value);
  return status.ok() ? status : Locate(listen, status);
}

Status CheckFolders(const Setting& socket, const Setting& state_dir) {
  for (const Setting* setting : {&socket, &state_dir}) {
    if (setting->value.empty()) return Wrong(*setting, "must not be empty");
    if (setting->value.find('\0') != std::string::npos) {
      return Wrong(*setting, "must not contain a NUL");
    }
  }
  if (socket.value.size() > kMaxSocketPathBytes) {
    return Wrong(socket, "must have at most " + std::to_string(kMaxSocketPathBytes) +
                             " bytes, got " + std::to_string(socket.value.size()));
  }
  Status status =
      CheckIsAbsolute(socket, socket.value, "must be an absolute path", "/run/idd/idd.sock");
  if (!status.ok()) return status;
  return CheckIsAbsolute(state_dir, state_dir.value, "must be an absolute path", "/var/lib/idd");
}

// Checks what can be checked without touching anything.
Result<Options> Validate(Settings& settings) {
  Options options;
  const auto setting = [&](const char* key) -> const Setting& {
    return *FindSetting(settings, key);
  };
  options.database = setting("database").value;
  options.socket = setting("socket").value;
  options.state_dir = setting("state_dir").value;
  options.host_id = setting("host_id").value;
  options.host_address = setting("host_address").value;
  const Result<std::uint32_t> limit = ParseLeaseLimit(setting("lease_limit"));
  if (!limit.ok()) return limit.status();
  options.lease_limit = limit.value();
  const auto retention = ParseRetention(setting("journal_retention"));
  if (!retention.ok()) return retention.status();
  options.journal_retention = retention.value();
  options.metrics_listen = setting("metrics_listen").value;
  options.metrics_textfile = setting("metrics_textfile").value;
  const Result<log::Level> level = ParseLevel(setting("log_level"));
  if (!level.ok()) return level.status();
  options.log_level = level.value();
  const Result<log::Format> format = ParseFormat(setting("log_format"));
  if (!format.ok()) return format.status();
  options.log_format = format.value();
  for (const Status& status : {CheckMetrics(setting("metrics_listen"), setting("metrics_textfile")),
                               CheckFolders(setting("socket"), setting("state_dir")),
                               CheckDatabase(setting("database"))}) {
    if (!status.ok()) return status;
  }
  if (Status status = CheckHostAddress(options.host_address); !status.ok()) {
    return Locate(setting("host_address"), status);
  }
  if (!options.host_id.empty()) {
    const Status status = CheckHostId(options.host_id);
    if (!status.ok()) return Locate(setting("host_id"), status);
  }
  return options;
}

// Checks that this user can read the password and the files of TLS now. Only --check-config does
// this, because idd also starts without its database. Adds to `unchecked` what cannot be checked
// from here.
Status CheckFiles(const Setting& database, std::string& unchecked) {
  if (database.value.starts_with(kSqliteScheme)) return Status::Ok();
  const Result<MysqlUrl> url = ParseOwnMysqlUrl(database.value);
  if (!url.ok()) return Locate(database, url.status());
  for (const auto& [name, path] : std::array<std::pair<const char*, const std::string*>, 3>{
           {{"ssl_ca", &url.value().ssl_ca},
            {"ssl_cert", &url.value().ssl_cert},
            {"ssl_key", &url.value().ssl_key}}}) {
    if (path->empty() || ::access(path->c_str(), R_OK) == 0) continue;
    return Wrong(database, std::string("has an ") + name + ", '" + *path +
                               "', that this user, uid " + std::to_string(::geteuid()) +
                               ", cannot read: " + PathError(*path, errno));
  }
  const std::string& file = url.value().password_file;
  if (file.empty()) return Status::Ok();
  const bool is_credential = file.find('/') == std::string::npos;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read only.
  if (is_credential && std::getenv("CREDENTIALS_DIRECTORY") == nullptr) {
    unchecked = "; not checked: the credential '" + file + "', which only the service gets";
    return Status::Ok();
  }
  const Result<std::string> password = PasswordOf(url.value());
  if (!password.ok()) {
    return Wrong(database, "has a password_file that this user, uid " +
                               std::to_string(::geteuid()) +
                               ", cannot use: " + password.status().message());
  }
  if (!password.value().empty()) return Status::Ok();
  return Wrong(database, "has a password_file, '" + file +
                             "', whose first line is empty; it must be the password");
}

// The output of --check-config for a valid configuration.
std::string ValidText(const Options& options, const std::string& unchecked) {
  const std::string uid = "uid " + std::to_string(::geteuid());
  std::string what = "no file; flags, variables and defaults only";
  if (!options.config_file.empty()) what = options.config_file + ", as " + uid + " reads it";
  if (!options.skipped_file.empty()) {
    what = "flags, variables and defaults only; " + uid + " may not read " + options.skipped_file;
  }
  return "idd: the configuration is valid (" + what + ")" + unchecked + "\n";
}

// A service must not run without its rules because they have become unreadable, whatever the type
// of its unit.
bool IsService() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read only.
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  return is_set("NOTIFY_SOCKET") || is_set("LISTEN_PID") || IsJournal();
}

// Whether a person started this idd, and not the host or its service manager.
bool IsOrdinaryUser() {
  const uid_t uid = ::geteuid();
  const Result<std::optional<std::uint32_t>> service = FindUser(kServiceUser);
  return uid != 0 && service.ok() && uid != service.value() && !IsService();
}

// Options that an ordinary user has given, or that follow from those given, make an idd that has
// nothing to do with the host's own. Its socket and its state directory are beside its SQLite file
// unless it names others. Returns the options that are missing for such an idd.
std::string SetOwnPlaces(const CLI::App& app, Settings& settings) {
  const auto is_given = [&app](const Setting& setting) {
    return app.get_option(std::string("--") + setting.name)->count() != 0;
  };
  const Setting& database = *FindSetting(settings, "database");
  if (!is_given(database)) return "--database";
  const bool is_file = database.value.starts_with(kSqliteScheme);
  const std::filesystem::path file = is_file ? database.value.substr(kSqliteScheme.size()) : "";
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  std::string missing;
  for (Setting* setting : {FindSetting(settings, "socket"), FindSetting(settings, "state_dir")}) {
    if (is_given(*setting)) continue;
    if (!is_file) missing += (missing.empty() ? "--" : " and --") + std::string(setting->name);
    if (is_file)
      setting->value = std::string_view(setting->name) == "socket" ? folder + "/idd.sock" : folder;
  }
  return missing;
}

// What users may not expect of the rules.
std::string Notes(const Options& options) {
  const std::string left_out = TagsWithoutGroups(options.access);
  if (left_out.empty()) return "";
  return "idd: note: members of group idd may not claim from " + left_out +
         ": if rules name a tag, only these rules govern it; add groups = [\"idd\"] to a rule if "
         "they should\n";
}

ParsedOptions Usage(const std::string& message) {
  return {.options = std::nullopt, .output = "idd: " + message + "\n", .exit_status = kExitUsage};
}

}  // namespace

ParsedOptions ParseOptions(const std::vector<std::string>& arguments,
                           const std::string& default_config) {
  CLI::App app(
      "Leases segments of cluster-unique ids and serves them to every process of this host.",
      "idd");
  Settings settings = DefaultSettings();
  std::string config = default_config;
  ConfigTables tables;
  tables.settings = DefaultLimits();
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
      "\na flag overrides a variable, a variable overrides the file. Only the file can define who "
      "may use which tag.\n\n"
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
  const bool is_config_given = app.get_option("--config")->count() != 0;
  Result<std::optional<std::string>> text = ConfigFile::Text(config);
  std::string skipped;
  const bool is_person = IsOrdinaryUser();
  const std::string missing = is_person ? SetOwnPlaces(app, settings) : "";
  if (text.status().code() == Code::kDenied && !is_config_given) {
    if (!is_person) return Usage(text.status().message());
    if (!missing.empty()) {
      return Usage(text.status().message() + "; for an idd of your own, also give " + missing);
    }
    text = std::optional<std::string>();
    skipped = config;
  }
  if (!text.ok()) return Usage(text.status().message());
  const bool has_file = text.value().has_value();
  if (!has_file && is_config_given) {
    return Usage("cannot read the configuration " + config + ": " + PathError(config, ENOENT));
  }
  if (has_file) {
    const Result<ConfigFile> file = ConfigFile::Parse(*text.value(), config);
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
  options.value().config_file = has_file ? config : "";
  options.value().skipped_file = skipped;
  options.value().check_config = check_config;
  options.value().arguments = arguments;
  std::vector<SettingSource>& sources = options.value().settings;
  sources.push_back(SourceOf(app, arguments, {"config", "", options.value().config_file}));
  for (const Setting& setting : settings) sources.push_back(SourceOf(app, arguments, setting));
  sources.insert(sources.end(), tables.settings.begin(), tables.settings.end());
  std::string output;
  if (check_config) {
    std::string unchecked;
    const Status status = CheckFiles(*FindSetting(settings, "database"), unchecked);
    if (!status.ok()) return Usage(status.message());
    output = ValidText(options.value(), unchecked) + Notes(options.value());
  }
  return {.options = std::move(options).value(), .output = std::move(output), .exit_status = 0};
}

}  // namespace idd::daemon
