// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_CONFIG_SETTING_SOURCE_H_
#define IDD_DAEMON_CONFIG_SETTING_SOURCE_H_

#include <string>

namespace idd::daemon {

// A setting in force and where it comes from, for `idctl config show`.
struct SettingSource {
  std::string key;     // of the file
  std::string value;   // as given, or the default; the database with its password
  std::string source;  // "default", "file", "environment" or "command line"
  std::string where;   // "path:line" or the variable; empty for the other sources
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_CONFIG_SETTING_SOURCE_H_
