// SPDX-License-Identifier: Apache-2.0
#include "config/reload.h"

#include <algorithm>

namespace idd::daemon {
namespace {

template <typename T>
void Note(const char* key, const T& now, const T& asked, std::vector<std::string>& keys) {
  if (now != asked) keys.emplace_back(key);
}

// What is shown of the settings that keep their old values.
void KeepSources(const Options& now, const std::vector<std::string>& keys, Options& options) {
  for (SettingSource& setting : options.settings) {
    if (std::find(keys.begin(), keys.end(), setting.key) == keys.end()) continue;
    for (const SettingSource& old : now.settings) {
      if (old.key == setting.key) setting = old;
    }
  }
}

}  // namespace

bool ReloadPlan::Changes(const std::string& key) const {
  return std::find(changed.begin(), changed.end(), key) != changed.end();
}

ReloadPlan PlanReload(const Options& now, const Options& asked) {
  ReloadPlan plan{.options = asked, .changed = {}, .not_changed = {}};
  Note("database", now.database, asked.database, plan.changed);
  Note("lease_limit", now.lease_limit, asked.lease_limit, plan.changed);
  Note("journal_retention", now.journal_retention, asked.journal_retention, plan.changed);
  Note("host_address", now.host_address, asked.host_address, plan.changed);
  Note("log_level", now.log_level, asked.log_level, plan.changed);
  Note("metrics_textfile", now.metrics_textfile, asked.metrics_textfile, plan.changed);
  Note("limits", now.limits, asked.limits, plan.changed);
  Note("access", now.access, asked.access, plan.changed);
  Note("socket", now.socket, asked.socket, plan.not_changed);
  Note("state_dir", now.state_dir, asked.state_dir, plan.not_changed);
  Note("host_id", now.host_id, asked.host_id, plan.not_changed);
  Note("metrics_listen", now.metrics_listen, asked.metrics_listen, plan.not_changed);
  Note("log_format", now.log_format, asked.log_format, plan.not_changed);
  plan.options.socket = now.socket;
  plan.options.state_dir = now.state_dir;
  plan.options.host_id = now.host_id;
  plan.options.metrics_listen = now.metrics_listen;
  plan.options.log_format = now.log_format;
  KeepSources(now, plan.not_changed, plan.options);
  return plan;
}

std::string KeyList(const std::vector<std::string>& keys) {
  std::string list;
  for (const std::string& key : keys) list += (list.empty() ? "" : ", ") + key;
  return list.empty() ? "nothing" : list;
}

}  // namespace idd::daemon
