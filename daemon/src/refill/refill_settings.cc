// SPDX-License-Identifier: Apache-2.0
#include "refill/refill_settings.h"

namespace idd::daemon {

const char* RefillRuleName(RefillRule rule) noexcept {
  return rule == RefillRule::kLeaf ? "leaf" : "promise";
}

std::optional<RefillRule> ParseRefillRule(std::string_view name) noexcept {
  for (const RefillRule rule : {RefillRule::kPromise, RefillRule::kLeaf}) {
    if (name == RefillRuleName(rule)) return rule;
  }
  return std::nullopt;
}

}  // namespace idd::daemon
