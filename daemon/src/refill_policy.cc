// SPDX-License-Identifier: Apache-2.0
#include "refill_policy.h"

#include "leaf_policy.h"
#include "promise_policy.h"

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

std::unique_ptr<RefillPolicy> MakeRefillPolicy(const RefillSettings& settings) {
  if (settings.rule == RefillRule::kLeaf) return std::make_unique<LeafPolicy>(settings);
  return std::make_unique<PromisePolicy>(settings);
}

}  // namespace idd::daemon
