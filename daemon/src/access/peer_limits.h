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

// The open connections and recent requests of each uid. Operators have no entry.
//
// Pure; time is handed in. Thread safety: none; event loop. Memory: an entry for each uid with a
// connection or unread descriptors, for each uid over its limit in the last ten seconds, and for
// each uid or uid and tag that used its rate in the last second.
class PeerLimits {
 public:
  // A uid that never pauses gets at most one part in so many of the event loop's time.
  static constexpr int kTimeShare = 4;

  void Configure(const LimitSettings& settings) { settings_ = settings; }
  [[nodiscard]] const LimitSettings& settings() const noexcept { return settings_; }

  // `free`: how many descriptors for peers are not in use. False: the uid has all the connections
  // that it may have, or holds as many descriptors as are free.
  [[nodiscard]] bool AddConnection(uid_t uid, std::size_t free);
  void DropConnection(uid_t uid);
  [[nodiscard]] std::uint64_t ConnectionsOf(uid_t uid) const;
  // Descriptors in addition to those of its connections, for replies that it does not read. False:
  // as above.
  [[nodiscard]] bool HoldDescriptors(uid_t uid, std::size_t count, std::size_t free);
  void ReleaseDescriptors(uid_t uid, std::size_t count);
  // The same for descriptors under way, of which `free` are left for all users.
  [[nodiscard]] bool PassDescriptors(uid_t uid, std::size_t count, std::size_t free);
  void DescriptorsArrived(uid_t uid, std::size_t count);
  // When the uid's next request may be read: now if that is within its limit, else after some
  // milliseconds, when several may be read without a check for each.
  [[nodiscard]] MonotonicTime NextRequestAt(uid_t uid, MonotonicTime now) const;
  // Counts requests that were read, and `time` that idd spent on the uid until `now`: that counts
  // as the requests that the uid may make in kTimeShare times as long, if those are more. Nothing
  // more is counted for a uid over its limit, so it never waits long after it has stopped.
  void Take(uid_t uid, std::uint64_t requests, MonotonicClock::duration time, MonotonicTime now);
  // Whether to log now that the uid is over its limit: once in ten seconds for each uid.
  [[nodiscard]] bool ShouldLogLimit(uid_t uid, MonotonicTime now);

  // How many ids a uid may claim of a tag, and when.
  struct IdTurn {
    std::uint64_t ids = 0;  // of the ids asked for; at least one
    MonotonicTime at{};
  };
  // Precondition of both: `order.pace` is set. TakeIds() also requires that `order.count` is at
  // most a burst, as NextIds() returns it.
  [[nodiscard]] IdTurn NextIds(const ClaimOrder& order, MonotonicTime now) const;
  void TakeIds(const ClaimOrder& order, MonotonicTime now);
  // Gives back what an order has taken and not used; nothing if it has taken none.
  void GiveIdsBack(const ClaimOrder& order, std::uint64_t used = 0);

  // Forgets users that have no connection and no recent use.
  void ForgetIdle(MonotonicTime now);
  // The user with the most connections, and their number; nothing: no user with an entry has one.
  [[nodiscard]] std::optional<std::pair<uid_t, std::uint64_t>> Busiest() const;
  [[nodiscard]] std::size_t entries() const noexcept { return users_.size() + ids_.size(); }

 private:
  struct User {
    std::uint64_t connections = 0;
    std::uint64_t descriptors = 0;  // in addition to theirs
    std::uint64_t under_way = 0;    // descriptors that it has not read
    RateBucket requests;
    MonotonicTime told_at{};
  };

  LimitSettings settings_;
  std::map<uid_t, User> users_;
  std::map<std::pair<uid_t, std::string>, RateBucket> ids_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_PEER_LIMITS_H_
