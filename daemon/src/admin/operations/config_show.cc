// SPDX-License-Identifier: Apache-2.0
//
// `config.show`: the settings in force, and where each comes from.
#include <nlohmann/json.hpp>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

// The value that idd uses, if that is not the one of the configuration.
void Adjust(const AdminContext& context, SettingInForce& setting) {
  const char* const level = log::LevelName(log::GetLevel());
  if (setting.key == "log_level" && setting.value != level) {
    setting = {"log_level", level, "log.level", ""};
  }
  if (setting.key == "host_id" && setting.value.empty()) setting.value = context.info.host_id;
}

}  // namespace

void ShowConfig(AdminContext& context, const AdminRequest& /*request*/,
                const PeerRights& /*rights*/, AdminDone done) {
  Json settings = Json::array();
  if (context.list_settings) {
    for (SettingInForce& setting : context.list_settings()) {
      Adjust(context, setting);
      settings.push_back({{"key", setting.key},
                          {"value", OrNull(setting.value)},
                          {"source", setting.source},
                          {"where", OrNull(setting.where)}});
    }
  }
  done(Status::Ok(), Dump({{"settings", std::move(settings)}}));
}

}  // namespace idd::daemon
