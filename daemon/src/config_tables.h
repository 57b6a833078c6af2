// SPDX-License-Identifier: Apache-2.0
//
// The tables of the configuration file, [limits] and [[access]]; what has a flag is options.cc's.
#ifndef IDD_DAEMON_CONFIG_TABLES_H_
#define IDD_DAEMON_CONFIG_TABLES_H_

#include <toml++/toml.h>

#include <string>
#include <string_view>
#include <vector>

#include "access_rules.h"
#include "idd/base/status.h"
#include "peer_limits.h"

namespace idd::daemon {

struct ConfigTables {
  LimitSettings limits;
  std::vector<AccessRule> access;
};

// A key of the file that ReadTables() reads.
[[nodiscard]] bool IsTableKey(std::string_view key);

// Names of users and groups are looked up, and have to be known. kInvalid with file and line.
[[nodiscard]] Result<ConfigTables> ReadTables(const toml::table& file, const std::string& path);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_CONFIG_TABLES_H_
