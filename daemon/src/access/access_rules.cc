// SPDX-License-Identifier: Apache-2.0
#include "access/access_rules.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "platform/name_service.h"

namespace idd::daemon {
namespace {

constexpr const char* kServiceGroup = "idd";
// The denied peer chose this name; it need not be a tag's.
constexpr std::size_t kMaxTagBytesShown = 128;

struct NamedAccess {
  Access access;
  const char* name;
};
constexpr std::array<NamedAccess, 4> kAccessNames = {{{Access::kNone, "none"},
                                                      {Access::kSocket, "socket"},
                                                      {Access::kShm, "shm"},
                                                      {Access::kAdmin, "admin"}}};

template <typename T>
bool Contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool IsIn(const Peer& peer, const std::vector<gid_t>& groups) {
  return std::any_of(groups.begin(), groups.end(), [&peer](gid_t group) {
    return peer.gid == group || Contains(peer.groups, group);
  });
}

bool Matches(const AccessRule& rule, const Peer& peer) {
  return Contains(rule.users, peer.uid) || IsIn(peer, rule.groups);
}

bool Names(const AccessRule& rule, std::string_view tag) {
  return std::any_of(rule.tags.begin(), rule.tags.end(),
                     [tag](const std::string& pattern) { return MatchesPattern(pattern, tag); });
}

// True if a pattern has only stars: then the rule names every tag.
bool NamesEveryTag(const AccessRule& rule) {
  return std::any_of(rule.tags.begin(), rule.tags.end(), [](const std::string& pattern) {
    return !pattern.empty() && pattern.find_first_not_of('*') == std::string::npos;
  });
}

TagRight Higher(const TagRight& a, const TagRight& b) {
  if (a.access != b.access) return a.access > b.access ? a : b;
  if (!a.ids_per_s.has_value() || !b.ids_per_s.has_value()) return {a.access, std::nullopt};
  return {a.access, std::max(a.ids_per_s, b.ids_per_s)};
}

// One character, which in UTF-8 may be several bytes.
std::size_t CharacterBytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) ++bytes;
  return bytes;
}

}  // namespace

const char* AccessName(Access access) noexcept {
  for (const NamedAccess& known : kAccessNames) {
    if (known.access == access) return known.name;
  }
  return "unknown";
}

std::optional<Access> ParseAccess(std::string_view name) noexcept {
  for (const NamedAccess& known : kAccessNames) {
    if (known.access != Access::kNone && known.name == name) return known.access;
  }
  return std::nullopt;
}

// On a mismatch it is enough that the last star takes one more character: any match that an earlier
// star could reach, the last one can reach too.
bool MatchesPattern(std::string_view pattern, std::string_view name) noexcept {
  std::size_t at = 0;
  std::size_t in = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_end = 0;  // end of what the last star has matched
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      star_end = in;
    } else if (at < pattern.size() && pattern[at] == '?') {
      ++at;
      in += CharacterBytes(name.substr(in));
    } else if (at < pattern.size() && pattern[at] == name[in]) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      star_end += CharacterBytes(name.substr(star_end));
      in = star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

AccessDefaults AccessDefaults::OfThisProcess() {
  AccessDefaults defaults{.daemon_uid = ::geteuid(), .shm_groups = {::getegid()}};
  const Result<std::optional<std::uint32_t>> group = FindGroup(kServiceGroup);
  if (group.ok() && group.value().has_value()) defaults.shm_groups.push_back(*group.value());
  return defaults;
}

std::string TagsWithoutGroups(const std::vector<AccessRule>& rules,
                              const AccessDefaults& defaults) {
  constexpr std::size_t kMostListed = 10;
  const auto lets_in = [&defaults](const AccessRule& rule) {
    return std::any_of(rule.groups.begin(), rule.groups.end(),
                       [&](gid_t group) { return Contains(defaults.shm_groups, group); });
  };
  std::vector<std::string> left_out;
  for (const AccessRule& rule : rules) {
    for (const std::string& tags : rule.tags) {
      const bool is_let_in = std::any_of(rules.begin(), rules.end(), [&](const AccessRule& other) {
        return lets_in(other) && Names(other, tags);
      });
      if (!is_let_in && !Contains(left_out, tags)) left_out.push_back(tags);
    }
  }
  std::string list;
  for (std::size_t i = 0; i < std::min(left_out.size(), kMostListed); ++i) {
    list += (i == 0 ? "'" : ", '") + left_out[i] + "'";
  }
  if (left_out.size() <= kMostListed) return list;
  return list + " and " + std::to_string(left_out.size() - kMostListed) + " more";
}

bool AccessRules::IsOperator(uid_t uid) const noexcept {
  return uid == 0 || uid == defaults_.daemon_uid;
}

bool AccessRules::IsDefaultMember(const Peer& peer) const {
  return IsIn(peer, defaults_.shm_groups);
}

TagRight AccessRules::Of(const Peer& peer, std::string_view tag) const {
  if (IsOperator(peer)) return {Access::kAdmin, std::nullopt};
  bool is_named = false;
  TagRight right;
  for (const AccessRule& rule : rules_) {
    if (!Names(rule, tag)) continue;
    is_named = true;
    if (Matches(rule, peer)) right = Higher(right, {rule.access, rule.ids_per_s});
  }
  if (is_named) return right;
  return {IsDefaultMember(peer) ? Access::kShm : Access::kNone, std::nullopt};
}

bool AccessRules::AdministersAll(const Peer& peer) const {
  if (IsOperator(peer)) return true;
  return std::any_of(rules_.begin(), rules_.end(), [&peer](const AccessRule& rule) {
    return rule.access == Access::kAdmin && NamesEveryTag(rule) && Matches(rule, peer);
  });
}

bool AccessRules::HasAnyRight(const Peer& peer) const {
  if (IsOperator(peer)) return true;
  const auto matches = [&peer](const AccessRule& rule) { return Matches(rule, peer); };
  if (std::any_of(rules_.begin(), rules_.end(), matches)) return true;
  return IsDefaultMember(peer) && std::none_of(rules_.begin(), rules_.end(), NamesEveryTag);
}

bool PeerRights::MaySee(std::string_view tag) const {
  return rules_->Of(peer_, tag).access != Access::kNone;
}

Status PeerRights::Require(Access needed, std::string_view tag) const {
  const Access has = rules_->Of(peer_, tag).access;
  return has >= needed ? Status::Ok() : DenyTag(peer_, tag, needed, has);
}

Status PeerRights::RequireAll() const {
  return AdministersAll() ? Status::Ok() : DenyTag(peer_, "*", Access::kAdmin, Access::kNone);
}

Status DenyTag(const Peer& peer, std::string_view tag, Access needed, Access has) {
  return {Code::kDenied, peer.Describe() + ": tag '" +
                             std::string(tag.substr(0, kMaxTagBytesShown)) + "' needs access " +
                             AccessName(needed) + ", this user has " + AccessName(has) +
                             "; an [[access]] rule of idd.toml that names both would allow it"};
}

Status DenyPeer(const Peer& peer) {
  return {Code::kDenied, peer.Describe() + ": this user may use no tag of this idd" +
                             "; membership of the group idd (from the next login on), or an "
                             "[[access]] rule of idd.toml, would allow it"};
}

}  // namespace idd::daemon
