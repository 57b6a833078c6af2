// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_PEER_LIMITS_H_
#define IDD_DAEMON_ACCESS_PEER_LIMITS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "access/claim_order.h"
#include "idd/base/clock.h"
#include "platform/rate_bucket.h"

namespace idd::daemon {

// [limits] of the configuration.
struct LimitSettings {
  std::uint64_t connections_per_uid = 1000;
  std::uint64_t requests_per_s_per_uid = 20000;

  friend bool operator==(const LimitSettings&, const LimitSettings&) = default;
};

// What each uid has open and asked of late. Operators are not entered.
//
// Pure; time is handed in. Thread safety: none; event loop. Memory: an entry for each uid with a
// connection, and for what was taken in the last second.
class PeerLimits {
 public:
  void Configure(const LimitSettings& settings) { settings_ = settings; }
  [[nodiscard]] const LimitSettings& settings() const noexcept { return settings_; }

  // `free`: descriptors for peers that are not in use. False: the uid has all connections that it
  // may have, or holds as many descriptors as are free.
  [[nodiscard]] bool AddConnection(uid_t uid, std::size_t free);
  void DropConnection(uid_t uid);
  [[nodiscard]] std::uint64_t ConnectionsOf(uid_t uid) const;
  // Beside those of its connections, for replies that it does not read. False: as above.
  [[nodiscard]] bool HoldDescriptors(uid_t uid, std::size_t count, std::size_t free);
  void ReleaseDescriptors(uid_t uid, std::size_t count);
  // The same for descriptors under way, of which `free` are left for all.
  [[nodiscard]] bool PassDescriptors(uid_t uid, std::size_t count, std::size_t free);
  void DescriptorsArrived(uid_t uid, std::size_t count);
  // Whether it is time to look again what has arrived at this uid's connections.
  [[nodiscard]] bool ShouldLook(uid_t uid, MonotonicTime now);
  // When the uid may have its next request read: now if that is within its limit; else when some
  // milliseconds' worth may be read, so that it is not looked at again for each.
  [[nodiscard]] MonotonicTime NextRequestAt(uid_t uid, MonotonicTime now) const;
  void TakeRequest(uid_t uid, MonotonicTime now);
  // Whether that is to be told now: once in ten seconds for each uid.
  [[nodiscard]] bool ShouldTell(uid_t uid, MonotonicTime now);

  // Ids that a uid may claim of a tag, and when.
  struct IdTurn {
    std::uint64_t ids = 0;  // of those asked for; at least one
    MonotonicTime at{};
  };
  // Preconditions of the three: `order.pace` is set; of the latter two its count fits a burst, as
  // NextIds() has it.
  [[nodiscard]] IdTurn NextIds(const ClaimOrder& order, MonotonicTime now) const;
  void TakeIds(const ClaimOrder& order, MonotonicTime now);
  // What was taken and is not used, of any order.
  void GiveIdsBack(const ClaimOrder& order, std::uint64_t used = 0);

  // Forgets users without a connection that have used nothing of late.
  void ForgetIdle(MonotonicTime now);
  // Who has the most connections, and how many; nothing: no user that is entered has one.
  [[nodiscard]] std::optional<std::pair<uid_t, std::uint64_t>> Busiest() const;
  [[nodiscard]] std::size_t entries() const noexcept { return users_.size() + ids_.size(); }

 private:
  struct User {
    std::uint64_t connections = 0;
    std::uint64_t descriptors = 0;  // beside theirs
    std::uint64_t under_way = 0;    // descriptors that it has not read
    MonotonicTime looked_at{};      // what of them has arrived
    RateBucket requests;
    MonotonicTime told_at{};
  };

  LimitSettings settings_;
  std::map<uid_t, User> users_;
  std::map<std::pair<uid_t, std::string>, RateBucket> ids_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_PEER_LIMITS_H_
