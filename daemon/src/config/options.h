// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_CONFIG_OPTIONS_H_
#define IDD_DAEMON_CONFIG_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "access/access_rules.h"
#include "access/peer_limits.h"
#include "config/setting_source.h"
#include "idd/base/status.h"
#include "platform/logging.h"

namespace idd::daemon {

inline constexpr std::uint32_t kDefaultLeasesPerSecond = 1000;
inline constexpr std::chrono::seconds kDefaultJournalRetention{90 * 86'400};

// The options of idd, from flags, environment (IDD_<OPTION>) and file, in this order of precedence.
struct Options {
  std::string config_file;  // empty: none was read
  // The default file, if this user may not read it and does not need it: the idd is a private one.
  std::string skipped_file;
  std::string database = "sqlite:/var/lib/idd/idd.db";
  std::string socket = "/run/idd/idd.sock";
  std::string state_dir = "/var/lib/idd";
  std::uint32_t lease_limit = kDefaultLeasesPerSecond;  // leases a second, for all tags together
  // How long a lease that has ended keeps its row in the journal; nothing: indefinitely.
  std::optional<std::chrono::seconds> journal_retention = kDefaultJournalRetention;
  std::string host_id;           // empty: derived from the machine id
  std::string host_address;      // where people find this host; may be empty
  std::string metrics_listen;    // HOST:PORT; empty: idd does not listen
  std::string metrics_textfile;  // empty: none is written
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;
  LimitSettings limits;
  std::vector<AccessRule> access;
  bool check_config = false;
  std::vector<std::string> arguments;   // as given, for a reload
  std::vector<SettingSource> settings;  // all of the above, and their sources
};

inline constexpr const char* kDefaultConfig = "/etc/idd/idd.toml";

// Either options to run with, or what to print and the exit status to end with (--help, --version,
// wrong usage). With --check-config, options and what to print.
struct ParsedOptions {
  std::optional<Options> options;
  std::string output;
  int exit_status = 0;
};

// A configuration file that exists and cannot be read, or has an error, is wrong usage: idd never
// runs on the defaults instead. Only `default_config` may be absent. It is also skipped if this
// user may not read it and runs a private idd: another user than root and the service's, who has
// named database, socket and state directory, and not the file, and no service manager has started
// idd.
[[nodiscard]] ParsedOptions ParseOptions(const std::vector<std::string>& arguments,
                                         const std::string& default_config = kDefaultConfig);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_CONFIG_OPTIONS_H_
