// SPDX-License-Identifier: Apache-2.0
#include "config/config_tables.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

#include "idd/base/error_text.h"
#include "idd/base/scoped_fd.h"
#include "platform/name_service.h"
#include "platform/path_error.h"

namespace idd::daemon {
namespace {

constexpr std::string_view kLimits = "limits";
constexpr const char* kConnections = "connections_per_uid";
constexpr const char* kRequests = "requests_per_second_per_uid";
constexpr std::string_view kAccess = "access";
constexpr std::int64_t kMaxPerSecond = 1'000'000'000;
constexpr std::int64_t kMaxConnectionLimit = 1'000'000;
constexpr std::size_t kMaxPatternBytes = 128;  // as a tag's name
// One less than the largest number, which means "no user" or "no group" to the kernel.
constexpr std::int64_t kMaxUserId = std::numeric_limits<uid_t>::max() - std::int64_t{1};

// A position in the file, for error messages.
class ConfigPlace {
 public:
  ConfigPlace(const std::string& path, const toml::node& node)
      : where_(path + ":" + std::to_string(node.source().begin.line) + ": ") {}
  // "path:line: "
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  [[nodiscard]] Status Wrong(const std::string& what) const {
    return {Code::kInvalid, where_ + what};
  }

 private:
  std::string where_;
};

Status CheckKeys(const toml::table& table, const std::vector<std::string_view>& known,
                 const std::string& path) {
  for (const auto& [key, node] : table) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    return ConfigPlace(path, node).Wrong("unknown key '" + std::string(key.str()) + "'");
  }
  return Status::Ok();
}

Result<std::uint64_t> ReadNumber(const toml::node& node, const char* key, std::int64_t most,
                                 const std::string& path) {
  const auto number = node.value_exact<std::int64_t>();
  if (number.has_value() && *number >= 1 && *number <= most) {
    return static_cast<std::uint64_t>(*number);
  }
  return ConfigPlace(path, node)
      .Wrong(std::string("'") + key + "' must be a whole number from 1 to " + std::to_string(most));
}

Result<LimitSettings> ReadLimits(const toml::node& node, const std::string& path) {
  LimitSettings limits;
  const toml::table* table = node.as_table();
  if (table == nullptr) return ConfigPlace(path, node).Wrong("'limits' must be a table, [limits]");
  if (Status status = CheckKeys(*table, {kConnections, kRequests}, path); !status.ok()) {
    return status;
  }
  if (const toml::node* found = table->get(kConnections)) {
    const auto number = ReadNumber(*found, kConnections, kMaxConnectionLimit, path);
    if (!number.ok()) return number.status();
    limits.connections_per_uid = number.value();
  }
  if (const toml::node* found = table->get(kRequests)) {
    const auto number = ReadNumber(*found, kRequests, kMaxPerSecond, path);
    if (!number.ok()) return number.status();
    limits.requests_per_s_per_uid = number.value();
  }
  return limits;
}

using FindId = Result<std::optional<std::uint32_t>> (*)(const std::string& name);

std::vector<SettingSource> LimitSources(const LimitSettings& limits) {
  const std::string prefix = std::string(kLimits) + ".";
  return {{prefix + kConnections, std::to_string(limits.connections_per_uid), "default", ""},
          {prefix + kRequests, std::to_string(limits.requests_per_s_per_uid), "default", ""}};
}

// A list of names or numbers. An absent list is empty; a list that is given but empty is an error.
Result<std::vector<std::uint32_t>> ReadIds(const toml::table& rule, const char* key, FindId find,
                                           const std::string& path) {
  std::vector<std::uint32_t> ids;
  const toml::node* node = rule.get(key);
  if (node == nullptr) return ids;
  const toml::array* array = node->as_array();
  const std::string what = std::string("'") + key + "'";
  if (array == nullptr || array->empty()) {
    return ConfigPlace(path, *node)
        .Wrong(what + " must be a list of names or numbers, and not empty");
  }
  for (const toml::node& element : *array) {
    const auto number = element.value_exact<std::int64_t>();
    const auto name = element.value_exact<std::string>();
    if (number.has_value() && *number >= 0 && *number <= kMaxUserId) {
      ids.push_back(static_cast<std::uint32_t>(*number));
    } else if (name.has_value()) {
      const Result<std::optional<std::uint32_t>> found = find(*name);
      if (!found.ok()) return ConfigPlace(path, element).Wrong(found.status().message());
      const std::optional<std::uint32_t> id = found.value();
      if (!id.has_value()) {
        return ConfigPlace(path, element)
            .Wrong("'" + *name + "' in " + what + " is not known here");
      }
      ids.push_back(*id);
    } else {
      return ConfigPlace(path, element).Wrong(what + " must contain only names and numbers");
    }
  }
  return ids;
}

Result<std::vector<std::string>> ReadPatterns(const toml::table& rule, const std::string& path) {
  const toml::node* node = rule.get("tags");
  if (node == nullptr) return ConfigPlace(path, rule).Wrong("a rule needs 'tags'");
  const toml::array* array = node->as_array();
  if (array == nullptr || array->empty()) {
    return ConfigPlace(path, *node).Wrong("'tags' must be a list of names, and not empty");
  }
  std::vector<std::string> patterns;
  for (const toml::node& element : *array) {
    const auto pattern = element.value_exact<std::string>();
    if (!pattern.has_value()) {
      return ConfigPlace(path, element).Wrong("'tags' must contain only names");
    }
    if (pattern->empty() || pattern->size() > kMaxPatternBytes) {
      return ConfigPlace(path, element)
          .Wrong("'tags' must have names of 1 to " + std::to_string(kMaxPatternBytes) +
                 " bytes, got one of " + std::to_string(pattern->size()));
    }
    patterns.push_back(*pattern);
  }
  return patterns;
}

Status ReadGrant(const toml::table& table, const std::string& path, AccessRule& rule) {
  const toml::node* access = table.get("access");
  const toml::node* limit = table.get("ids_per_second");
  if (access == nullptr && limit == nullptr) {
    return ConfigPlace(path, table).Wrong("a rule needs 'access': socket, shm or admin");
  }
  rule.access = Access::kSocket;
  if (access != nullptr) {
    const auto known = ParseAccess(access->value_exact<std::string>().value_or(""));
    if (!known.has_value()) {
      return ConfigPlace(path, *access).Wrong("'access' must be 'socket', 'shm' or 'admin'");
    }
    rule.access = *known;
  }
  if (limit == nullptr) return Status::Ok();
  if (rule.access == Access::kAdmin) {
    return ConfigPlace(path, *limit).Wrong("'ids_per_second' must not be set with access 'admin'");
  }
  const auto number = ReadNumber(*limit, "ids_per_second", kMaxPerSecond, path);
  if (!number.ok()) return number.status();
  rule.access = Access::kSocket;  // claims from memory are not counted
  rule.ids_per_s = number.value();
  return Status::Ok();
}

Result<AccessRule> ReadRule(const toml::table& table, const std::string& path) {
  Status status = CheckKeys(table, {"tags", "users", "groups", "access", "ids_per_second"}, path);
  if (!status.ok()) return status;
  AccessRule rule;
  auto patterns = ReadPatterns(table, path);
  if (!patterns.ok()) return patterns.status();
  rule.tags = std::move(patterns).value();
  auto users = ReadIds(table, "users", FindUser, path);
  if (!users.ok()) return users.status();
  rule.users = std::move(users).value();
  auto groups = ReadIds(table, "groups", FindGroup, path);
  if (!groups.ok()) return groups.status();
  rule.groups = std::move(groups).value();
  if (rule.users.empty() && rule.groups.empty()) {
    return ConfigPlace(path, table).Wrong("a rule needs 'users' or 'groups'");
  }
  status = ReadGrant(table, path, rule);
  if (!status.ok()) return status;
  return rule;
}

Result<std::vector<AccessRule>> ReadAccess(const toml::node& node, const std::string& path) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return ConfigPlace(path, node).Wrong("'access' must be tables, [[access]]");
  std::vector<AccessRule> rules;
  for (const toml::node& element : *array) {
    const toml::table* table = element.as_table();
    if (table == nullptr)
      return ConfigPlace(path, element).Wrong("'access' must be tables, [[access]]");
    Result<AccessRule> rule = ReadRule(*table, path);
    if (!rule.ok()) return rule.status();
    rules.push_back(std::move(rule).value());
  }
  return rules;
}

template <typename T>
std::string Listed(const char* what, const std::vector<T>& items) {
  std::string text;
  for (const T& item : items) {
    text += text.empty() ? std::string(what) : ",";
    if constexpr (std::is_same_v<T, std::string>) {
      text += item;
    } else {
      text += std::to_string(item);
    }
  }
  return text;
}

// "shm to orders*,billing for uids 1000 gids 5".
std::string RuleInWords(const AccessRule& rule) {
  std::string text = AccessName(rule.access);
  if (rule.ids_per_s) text += ", " + std::to_string(*rule.ids_per_s) + " ids per second,";
  return text + Listed(" to ", rule.tags) + " for" + Listed(" uids ", rule.users) +
         Listed(" gids ", rule.groups);
}

std::string Position(const std::string& path, const toml::node& node) {
  return path + ":" + std::to_string(node.source().begin.line);
}

// The limits and rules of a file whose tables are valid, with their lines.
std::vector<SettingSource> SourcesOf(const toml::table& file, const std::string& path,
                                     const ConfigTables& tables) {
  std::vector<SettingSource> sources = LimitSources(tables.limits);
  for (SettingSource& limit : sources) {
    const toml::node* const found = file[kLimits][limit.key.substr(kLimits.size() + 1)].node();
    if (found == nullptr) continue;
    limit.source = "file";
    limit.where = Position(path, *found);
  }
  const toml::array* const rules = file.get_as<toml::array>(kAccess);
  for (std::size_t i = 0; i < tables.access.size(); ++i) {
    sources.push_back({std::string(kAccess), RuleInWords(tables.access[i]), "file",
                       Position(path, *rules->get(i))});
  }
  return sources;
}

Status Unreadable(const std::string& path, const std::string& why, Code code = Code::kInvalid) {
  return {code, "cannot read the configuration " + path + ": " + why};
}

// A refusal is reported with what grants it.
std::string WhyNotRead(const std::string& path, int error) {
  if (error != EACCES && error != EPERM) return PathError(path, error);
  return ErrorText(error) + "; let the user of idd, here uid " + std::to_string(::geteuid()) +
         ", read the file and its directory, or name another with --config";
}

Result<std::optional<std::string>> ReadWhole(int fd, const std::string& path) {
  constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
    return Unreadable(path, "it is a directory");
  std::string text;
  std::array<char, 4096> piece{};
  while (text.size() <= kMaxFileBytes) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unreadable(path, WhyNotRead(path, errno));
    if (got == 0) return std::optional<std::string>(std::move(text));
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  return Unreadable(path, "it has more than 16 MiB");
}

Status ParseFailure(const toml::parse_error& error, const std::string& path) {
  return {Code::kInvalid, path + ":" + std::to_string(error.source().begin.line) + ": " +
                              std::string(error.description())};
}

}  // namespace

struct ConfigFile::Content {
  toml::table table;
  std::string path;
};

ConfigFile::ConfigFile(std::unique_ptr<Content> content) : content_(std::move(content)) {}
ConfigFile::ConfigFile(ConfigFile&& other) noexcept = default;
ConfigFile& ConfigFile::operator=(ConfigFile&& other) noexcept = default;
ConfigFile::~ConfigFile() = default;

std::vector<SettingSource> DefaultLimits() { return LimitSources({}); }

Result<std::optional<std::string>> ConfigFile::Text(const std::string& path) {
  const ScopedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (fd.valid()) return ReadWhole(fd.get(), path);
  const int error = errno;
  struct stat link {};
  const bool is_absent = error == ENOENT || error == ENOTDIR;
  if (is_absent && ::lstat(path.c_str(), &link) != 0) return std::optional<std::string>();
  if (is_absent) return Unreadable(path, "a symbolic link to nothing");
  const Code code = error == EACCES ? Code::kDenied : Code::kInvalid;
  return Unreadable(path, WhyNotRead(path, error), code);
}

Result<ConfigFile> ConfigFile::Parse(std::string_view text, const std::string& path) {
  try {
    return ConfigFile(std::make_unique<Content>(Content{toml::parse(text, path), path}));
  } catch (const toml::parse_error& error) {
    return ParseFailure(error, path);
  }
}

std::vector<ConfigKey> ConfigFile::Keys() const {
  std::vector<ConfigKey> keys;
  for (const auto& [key, node] : content_->table) {
    if (key == kLimits || key == kAccess) continue;
    keys.push_back({.name = std::string(key.str()),
                    .where = ConfigPlace(content_->path, node).where(),
                    .text = node.value_exact<std::string>(),
                    .number = node.value_exact<std::int64_t>()});
  }
  return keys;
}

Result<ConfigTables> ConfigFile::ReadTables() const {
  ConfigTables tables;
  if (const toml::node* node = content_->table.get(kLimits)) {
    const Result<LimitSettings> limits = ReadLimits(*node, content_->path);
    if (!limits.ok()) return limits.status();
    tables.limits = limits.value();
  }
  if (const toml::node* node = content_->table.get(kAccess)) {
    Result<std::vector<AccessRule>> access = ReadAccess(*node, content_->path);
    if (!access.ok()) return access.status();
    tables.access = std::move(access).value();
  }
  tables.settings = SourcesOf(content_->table, content_->path, tables);
  return tables;
}

}  // namespace idd::daemon
