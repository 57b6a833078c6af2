// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_OPTIONS_H_
#define IDD_DAEMON_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "access_rules.h"
#include "idd/base/status.h"
#include "lease_budget.h"
#include "logging.h"
#include "peer_limits.h"

namespace idd::daemon {

// What idd was told, from flags, environment (IDD_<OPTION>) and file, in this order of precedence.
struct Options {
  std::string config_file;  // empty: none was read
  std::string database = "sqlite:/var/lib/idd/idd.db";
  std::string socket = "/run/idd/idd.sock";
  std::string state_dir = "/var/lib/idd";
  std::uint32_t lease_limit = kDefaultLeasesPerSecond;  // leases a second, of all tags
  std::string host_id;                                  // empty: derived from the machine id
  std::string metrics_listen;                           // HOST:PORT; empty: nobody listens
  std::string metrics_textfile;                         // empty: none is written
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;
  LimitSettings limits;
  std::vector<AccessRule> access;
  bool check_config = false;
  std::vector<std::string> arguments;  // as given, for a reload
};

// Either options to run with, or what to print and the exit status to end with (--help, --version,
// wrong usage).
struct ParsedOptions {
  std::optional<Options> options;
  std::string output;
  int exit_status = 0;
};

[[nodiscard]] ParsedOptions ParseOptions(const std::vector<std::string>& arguments);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_OPTIONS_H_
