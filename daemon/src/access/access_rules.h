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

// What a peer may do with a tag; each level has what those below it have.
enum class Access : std::uint8_t {
  kNone,
  kSocket,  // claim through the daemon: no descriptor of the tag's memory
  kShm,     // claim from shared memory
  kAdmin,   // create, change and delete the tag
};

// "none", "socket", "shm", "admin".
[[nodiscard]] const char* AccessName(Access access) noexcept;
// Of what a rule may grant: all but "none".
[[nodiscard]] std::optional<Access> ParseAccess(std::string_view name) noexcept;

// Whether `name` matches the pattern, where '*' stands for any characters and '?' for one (of
// UTF-8). There is no way to mean the two literally. Takes time by the product of both lengths.
[[nodiscard]] bool MatchesPattern(std::string_view pattern, std::string_view name) noexcept;

// One [[access]] of the configuration. It matches a peer that is one of the users or in one of the
// groups.
struct AccessRule {
  std::vector<std::string> tags;  // patterns
  std::vector<uid_t> users;
  std::vector<gid_t> groups;
  Access access = Access::kNone;
  std::optional<std::uint64_t> ids_per_s;  // of each tag and uid; access is kSocket then

  friend bool operator==(const AccessRule&, const AccessRule&) = default;
};

// Who has rights without a rule.
struct AccessDefaults {
  uid_t daemon_uid = 0;             // administers all, as root does
  std::vector<gid_t> shm_groups{};  // have kShm of the tags that no rule names

  // Of this process: its user, its group and the group "idd", if there is one.
  [[nodiscard]] static AccessDefaults OfThisProcess();
};

struct TagRight {
  Access access = Access::kNone;
  std::optional<std::uint64_t> ids_per_s;  // with kSocket only
};

// Who may do what with which tag. Pure and immutable, so of any thread.
//
// A tag that a rule names is governed by the rules that name it alone: the highest access among
// those that match the peer, and of several that limit it the loosest limit.
class AccessRules {
 public:
  explicit AccessRules(std::vector<AccessRule> rules = {}, AccessDefaults defaults = {})
      : rules_(std::move(rules)), defaults_(std::move(defaults)) {}

  // Root and the daemon's user: administers all, and is not limited in anything.
  [[nodiscard]] bool IsOperator(uid_t uid) const noexcept;
  [[nodiscard]] bool IsOperator(const Peer& peer) const noexcept { return IsOperator(peer.uid); }
  [[nodiscard]] TagRight Of(const Peer& peer, std::string_view tag) const;
  // Has kAdmin of every tag, those included that do not exist.
  [[nodiscard]] bool AdministersAll(const Peer& peer) const;
  // There may be a tag that the peer may use. If not, nothing of it need be served.
  [[nodiscard]] bool HasAnyRight(const Peer& peer) const;

 private:
  [[nodiscard]] bool IsDefaultMember(const Peer& peer) const;

  const std::vector<AccessRule> rules_;
  const AccessDefaults defaults_;
};

// The rights of one peer under the rules of the moment when it asked. The rules are shared, as
// reports are written by another thread while a reload puts others in their place.
class PeerRights {
 public:
  PeerRights(std::shared_ptr<const AccessRules> rules, Peer peer)
      : rules_(std::move(rules)), peer_(std::move(peer)) {}

  [[nodiscard]] const Peer& peer() const noexcept { return peer_; }
  [[nodiscard]] bool MaySee(std::string_view tag) const;
  // Without a sentence, for those who ask about many tags.
  [[nodiscard]] bool Has(Access needed, std::string_view tag) const {
    return rules_->Of(peer_, tag).access >= needed;
  }
  [[nodiscard]] bool AdministersAll() const { return rules_->AdministersAll(peer_); }
  // kDenied that says who lacks what.
  [[nodiscard]] Status Require(Access needed, std::string_view tag) const;
  [[nodiscard]] Status RequireAll() const;

 private:
  std::shared_ptr<const AccessRules> rules_;
  Peer peer_;
};

// kDenied that says who lacks what, and what would allow it.
[[nodiscard]] Status DenyTag(const Peer& peer, std::string_view tag, Access needed, Access has);
[[nodiscard]] Status DenyPeer(const Peer& peer);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_ACCESS_RULES_H_
