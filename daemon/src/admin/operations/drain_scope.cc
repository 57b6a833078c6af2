// SPDX-License-Identifier: Apache-2.0
#include "admin/operations/drain_scope.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace idd::daemon {

Result<std::string> ReadScope(const AdminRequest& request) {
  const Result<std::optional<std::string>> tag = TextField(request, "tag");
  if (!tag.ok()) return tag.status();
  if (!tag.value().has_value()) return std::string(kWholeHost);
  return TagField(request);
}

Json ScopeJson(const std::string& scope) {
  const bool is_host = scope == kWholeHost;
  return {{"scope", is_host ? "host" : "tag"}, {"tag", is_host ? Json(nullptr) : Json(scope)}};
}

}  // namespace idd::daemon
