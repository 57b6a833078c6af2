// SPDX-License-Identifier: Apache-2.0
#include "store/lease.h"

#include <array>

namespace idd::daemon {
namespace {

struct StateName {
  LeaseState state;
  const char* name;
};
constexpr std::array<StateName, 4> kStateNames = {{{LeaseState::kActive, "active"},
                                                   {LeaseState::kExhausted, "exhausted"},
                                                   {LeaseState::kReturned, "returned"},
                                                   {LeaseState::kAbandoned, "abandoned"}}};

}  // namespace

const char* LeaseStateName(LeaseState state) noexcept {
  for (const StateName& known : kStateNames) {
    if (known.state == state) return known.name;
  }
  return "unknown";
}

std::optional<LeaseState> ParseLeaseState(std::string_view name) noexcept {
  for (const StateName& known : kStateNames) {
    if (known.name == name) return known.state;
  }
  return std::nullopt;
}

std::uint64_t UsedLimitOf(const LeaseRecord& lease) noexcept {
  if (lease.state != LeaseState::kReturned) return lease.ids.limit;
  return lease.claimed == 0 ? 0 : lease.ids.first + lease.claimed;
}

}  // namespace idd::daemon
