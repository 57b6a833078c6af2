// SPDX-License-Identifier: Apache-2.0
//
// The configuration file: its keys, which options.cc assigns to settings, and its tables, [limits]
// and [[access]].
#ifndef IDD_DAEMON_CONFIG_CONFIG_TABLES_H_
#define IDD_DAEMON_CONFIG_CONFIG_TABLES_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/access_rules.h"
#include "access/peer_limits.h"
#include "config/setting_source.h"
#include "idd/base/status.h"

namespace idd::daemon {

struct ConfigTables {
  LimitSettings limits;
  std::vector<AccessRule> access;
  std::vector<SettingSource> settings;  // each limit, and each rule in words
};

// The limits without a file.
[[nodiscard]] std::vector<SettingSource> DefaultLimits();

// A key of the file outside its tables.
struct ConfigKey {
  std::string name;
  std::string where;                   // "path:line: ", for error messages
  std::optional<std::string> text;     // if the value is a text
  std::optional<std::int64_t> number;  // if it is a number
};

// A parsed TOML file. This class does not know what its keys mean.
//
// Thread safety: none.
class ConfigFile {
 public:
  // The text of the file at `path`, or nothing if there is no such file. kDenied if this user may
  // not read it, kInvalid for another reason: its access rules and its database must not be
  // ignored.
  [[nodiscard]] static Result<std::optional<std::string>> Text(const std::string& path);
  // kInvalid with file and line; `path` is what messages call it.
  [[nodiscard]] static Result<ConfigFile> Parse(std::string_view text, const std::string& path);

  ConfigFile(ConfigFile&& other) noexcept;
  ConfigFile& operator=(ConfigFile&& other) noexcept;
  ~ConfigFile();

  // All keys except those of the tables.
  [[nodiscard]] std::vector<ConfigKey> Keys() const;
  // Looks up the names of users and groups, which must exist. kInvalid with file and line.
  [[nodiscard]] Result<ConfigTables> ReadTables() const;

 private:
  struct Content;
  explicit ConfigFile(std::unique_ptr<Content> content);

  std::unique_ptr<Content> content_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_CONFIG_CONFIG_TABLES_H_
