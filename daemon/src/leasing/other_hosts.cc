// SPDX-License-Identifier: Apache-2.0
#include "leasing/other_hosts.h"

#include <algorithm>

namespace idd::daemon {

void OtherHosts::Track(const FenceView& view, const std::string& own_host, std::int64_t now_ms) {
  for (const FenceMember& member : view.members) {
    if (member.host == own_host) continue;
    const auto [it, is_first] = seen_.try_emplace(member.host);
    Seen& seen = it->second;
    const bool moved = seen.member.run != member.run || seen.member.beat != member.beat;
    if (is_first || moved) seen.since_ms = now_ms;
    if (is_first || seen.member.server != member.server || member.server != view.server) {
      seen.looks_here = 0;
    } else if (moved) {
      ++seen.looks_here;
    }
    seen.member = member;
  }
  std::erase_if(seen_, [&view](const auto& other) {
    return std::none_of(view.members.begin(), view.members.end(),
                        [&other](const auto& member) { return member.host == other.first; });
  });
}

void OtherHosts::ForgetLooks() {
  for (auto& [host, seen] : seen_) seen.looks_here = 0;
}

bool OtherHosts::AreAllOut() const {
  return std::none_of(seen_.begin(), seen_.end(),
                      [](const auto& other) { return IsMember(other.second.member); });
}

bool OtherHosts::OneIsLiveOn(const std::string& server) const {
  return std::any_of(seen_.begin(), seen_.end(), [&server](const auto& other) {
    return other.second.member.state == MemberState::kLive && HasComeTo(other.second, server);
  });
}

bool OtherHosts::AllHaveComeTo(const std::string& server) const {
  return std::all_of(seen_.begin(), seen_.end(), [&server](const auto& other) {
    return !IsMember(other.second.member) || HasComeTo(other.second, server);
  });
}

bool OtherHosts::AllHaveNoted(std::uint64_t epoch) const {
  return std::all_of(seen_.begin(), seen_.end(), [epoch](const auto& other) {
    const FenceMember& member = other.second.member;
    return member.state != MemberState::kLive || member.noted >= epoch;
  });
}

std::size_t OtherHosts::LiveMembers() const {
  return static_cast<std::size_t>(std::count_if(seen_.begin(), seen_.end(), [](const auto& other) {
    return other.second.member.state == MemberState::kLive;
  }));
}

}  // namespace idd::daemon
