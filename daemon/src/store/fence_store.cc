// SPDX-License-Identifier: Apache-2.0
#include "store/fence_store.h"

#include <array>

namespace idd::daemon {
namespace {

struct MemberStateRow {
  MemberState state;
  const char* name;
};
constexpr std::array<MemberStateRow, 4> kMemberStates = {{{MemberState::kLive, "live"},
                                                          {MemberState::kWaiting, "waiting"},
                                                          {MemberState::kOut, "out"},
                                                          {MemberState::kLeft, "left"}}};

}  // namespace

const char* MemberStateName(MemberState state) noexcept {
  for (const MemberStateRow& known : kMemberStates) {
    if (known.state == state) return known.name;
  }
  return "unknown";
}

std::optional<MemberState> ParseMemberState(std::string_view name) noexcept {
  for (const MemberStateRow& known : kMemberStates) {
    if (known.name == name) return known.state;
  }
  return std::nullopt;
}

}  // namespace idd::daemon
