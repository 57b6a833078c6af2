// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_CONFIG_RELOAD_H_
#define IDD_DAEMON_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "config/options.h"

namespace idd::daemon {

// The changes that a SIGHUP makes.
struct ReloadPlan {
  Options options;                       // to run with from now on
  std::vector<std::string> changed;      // keys of the file that take effect now
  std::vector<std::string> not_changed;  // keys that differ and need a restart

  [[nodiscard]] bool Changes(const std::string& key) const;
};

// `now`: what idd runs with; `asked`: what the configuration says. Pure.
[[nodiscard]] ReloadPlan PlanReload(const Options& now, const Options& asked);

// "database, access"; "nothing".
[[nodiscard]] std::string KeyList(const std::vector<std::string>& keys);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_CONFIG_RELOAD_H_
