// SPDX-License-Identifier: Apache-2.0
//
// `log.level`: shows or sets the level of the log.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

// The line is written at the more verbose of both levels, so that it is in the log if either has
// such lines.
void SetLevel(log::Level was, log::Level level, const PeerRights& rights) {
  log::SetLevel(std::min(was, level));
  log::Info(
      "log.level_set",
      {{"level", log::LevelName(level)}, {"was", log::LevelName(was)}, {"uid", rights.peer().uid}});
  log::SetLevel(level);
}

}  // namespace

void LogLevel(AdminContext& /*context*/, const AdminRequest& request, const PeerRights& rights,
              AdminDone done) {
  const Result<std::optional<std::string>> name = TextField(request, "level");
  if (!name.ok()) return Fail(done, name.status());
  const log::Level was = log::GetLevel();
  std::optional<log::Level> level = was;
  if (name.value().has_value()) level = log::ParseLevel(*name.value());
  if (!level.has_value()) {
    return Fail(done, {Code::kInvalid,
                       "unknown level '" + *name.value() + "'; use debug, info, warning or error"});
  }
  if (*level != was) SetLevel(was, *level, rights);
  done(Status::Ok(), Dump({{"level", log::LevelName(*level)}, {"was", log::LevelName(was)}}));
}

}  // namespace idd::daemon
