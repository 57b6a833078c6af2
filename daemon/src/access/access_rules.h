// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_ACCESS_RULES_H_
#define IDD_DAEMON_ACCESS_ACCESS_RULES_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access/peer.h"
#include "idd/base/status.h"

namespace idd::daemon {

// A peer's access to a tag; each level includes those before it.
enum class Access : std::uint8_t {
  kNone,
  kSocket,  // claim through the daemon: no descriptor of the tag's memory
  kShm,     // claim from shared memory
  kAdmin,   // create, change and delete the tag
};

// "none", "socket", "shm", "admin".
[[nodiscard]] const char* AccessName(Access access) noexcept;
// The access that a rule may grant: any but "none".
[[nodiscard]] std::optional<Access> ParseAccess(std::string_view name) noexcept;

// Whether `name` matches the pattern, where '*' stands for any characters and '?' for one (of
// UTF-8). Neither can be escaped. Takes time proportional to the product of both lengths.
[[nodiscard]] bool MatchesPattern(std::string_view pattern, std::string_view name) noexcept;

// One [[access]] of the configuration. It matches a peer that is one of the users or in one of the
// groups.
struct AccessRule {
  std::vector<std::string> tags;  // patterns
  std::vector<uid_t> users;
  std::vector<gid_t> groups;
  Access access = Access::kNone;
  std::optional<std::uint64_t> ids_per_s;  // per tag and uid; access is then kSocket

  friend bool operator==(const AccessRule&, const AccessRule&) = default;
};

// The rights that exist without a rule.
struct AccessDefaults {
  uid_t daemon_uid = 0;             // administers all tags, as root does
  std::vector<gid_t> shm_groups{};  // have kShm for tags that no rule names

  // The defaults of this process: its user, its group and the group "idd", if there is one.
  [[nodiscard]] static AccessDefaults OfThisProcess();
};

// The tags, as patterns in rules, that members of the group idd and of the daemon's own group may
// not use, although they may use every tag that no rule names: "'orders', 'billing.*'". Empty:
// none.
[[nodiscard]] std::string TagsWithoutGroups(
    const std::vector<AccessRule>& rules,
    const AccessDefaults& defaults = AccessDefaults::OfThisProcess());

struct TagRight {
  Access access = Access::kNone;
  std::optional<std::uint64_t> ids_per_s;  // with kSocket only
};

// The access of each peer to each tag. Pure and immutable, so any thread may use it.
//
// If rules name a tag, only those rules govern it: of the rules that match the peer, the highest
// access counts and, if several limit it, the loosest limit.
class AccessRules {
 public:
  explicit AccessRules(std::vector<AccessRule> rules = {}, AccessDefaults defaults = {})
      : rules_(std::move(rules)), defaults_(std::move(defaults)) {}

  // Root and the daemon's user: they administer all tags and have no limits.
  [[nodiscard]] bool IsOperator(uid_t uid) const noexcept;
  [[nodiscard]] bool IsOperator(const Peer& peer) const noexcept { return IsOperator(peer.uid); }
  [[nodiscard]] TagRight Of(const Peer& peer, std::string_view tag) const;
  // Has kAdmin for every tag, even for tags that do not exist.
  [[nodiscard]] bool AdministersAll(const Peer& peer) const;
  // False if there can be no tag that the peer may use; then no request of it is served.
  [[nodiscard]] bool HasAnyRight(const Peer& peer) const;

 private:
  [[nodiscard]] bool IsDefaultMember(const Peer& peer) const;

  const std::vector<AccessRule> rules_;
  const AccessDefaults defaults_;
};

// The rights of one peer under the rules at the time of its request. The rules are shared, because
// another thread may still write a report while a reload replaces them.
class PeerRights {
 public:
  PeerRights(std::shared_ptr<const AccessRules> rules, Peer peer)
      : rules_(std::move(rules)), peer_(std::move(peer)) {}

  [[nodiscard]] const Peer& peer() const noexcept { return peer_; }
  [[nodiscard]] bool MaySee(std::string_view tag) const;
  // Makes no error message, for callers that ask about many tags.
  [[nodiscard]] bool Has(Access needed, std::string_view tag) const {
    return rules_->Of(peer_, tag).access >= needed;
  }
  [[nodiscard]] bool AdministersAll() const { return rules_->AdministersAll(peer_); }
  // kDenied with a message that names the peer and the missing right.
  [[nodiscard]] Status Require(Access needed, std::string_view tag) const;
  [[nodiscard]] Status RequireAll() const;

 private:
  std::shared_ptr<const AccessRules> rules_;
  Peer peer_;
};

// kDenied with a message that names the peer, the missing right and what would grant it.
[[nodiscard]] Status DenyTag(const Peer& peer, std::string_view tag, Access needed, Access has);
[[nodiscard]] Status DenyPeer(const Peer& peer);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_ACCESS_RULES_H_
