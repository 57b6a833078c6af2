// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_ADMISSION_CONTROL_H_
#define IDD_DAEMON_ACCESS_ADMISSION_CONTROL_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "access/access_rules.h"
#include "access/peer_limits.h"
#include "access/peer_meter.h"
#include "access/ring_holders.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"

namespace idd::daemon {

// Decides about a peer before anything is done for it: whether it is let in, how much it may ask
// for, and which tags it may use. Logs denials.
//
// Descriptors: peers share what RLIMIT_NOFILE leaves after idd's own files and rings. A user may
// hold at most as many as stay free for the others: the first user gets at most half, the second at
// most half of the rest, and the next one still finds room. Some are reserved for peers that
// administer all tags. Descriptors that were sent and not yet read are not open in idd, but the
// kernel limits them to the same number; they are divided in the same way.
//
// Thread safety: none; event loop.
class AdmissionControl {
 public:
  // Starts without rules and with the default limits.
  AdmissionControl();

  void Configure(std::vector<AccessRule> rules, const LimitSettings& limits);

  // Admits a new connection. kDenied: the peer has no rights; kUnavailable: its user, or idd, has
  // too many connections. To be followed by Release() when an admitted connection is gone.
  [[nodiscard]] Status Admit(const Peer& peer);
  void Release(const Peer& peer);
  // Holds `count` descriptors for replies that wait until the peer reads; false: its user, or idd,
  // holds too many. To be followed by ReleaseDescriptors() when they are gone.
  [[nodiscard]] bool HoldDescriptors(const Peer& peer, std::size_t count);
  void ReleaseDescriptors(const Peer& peer, std::size_t count);
  // Counts `count` descriptors as sent to the peer; false: too many are under way to its user, or
  // to all users. To be followed by DescriptorsArrived() when the peer has read them.
  [[nodiscard]] bool PassDescriptors(const Peer& peer, std::size_t count);
  void DescriptorsArrived(const Peer& peer, std::size_t count);
  // Checks an admitted peer again, after the rules have changed.
  [[nodiscard]] Status StillAdmit(const Peer& peer);

  // When a user's next request may be read: now, or when it is within its limit again.
  [[nodiscard]] MonotonicTime MayReadAt(uid_t uid, MonotonicTime now);
  // That many requests of the peer were read; idd has spent that time on it until `now`.
  void Take(const Peer& peer, std::uint64_t requests, MonotonicClock::duration time,
            MonotonicTime now);
  // kDenied unless it may claim.
  [[nodiscard]] Result<TagRight> RightTo(const Peer& peer, std::string_view tag);
  [[nodiscard]] Access AccessTo(const Peer& peer, std::string_view tag) const;
  [[nodiscard]] PeerRights RightsOf(const Peer& peer) const { return {rules_, peer}; }
  [[nodiscard]] std::vector<RingHolders::Ring> UnlawfulRings() const {
    return holders_.ToWithdraw(*rules_);
  }

  // To be called once a second; `rings`: how many rings idd has open. Reads RLIMIT_NOFILE again.
  void Poll(MonotonicTime now, std::size_t rings);

  // An administration request was denied.
  void NoteDeniedAdmin(const Peer& peer, const Status& status);
  // A connection had too many requests under way.
  void NoteTooMany() { meter_.limited_under_way.Increment(); }
  [[nodiscard]] const PeerMeter& meter() const noexcept { return meter_; }

  [[nodiscard]] PeerLimits& limits() noexcept { return limits_; }
  [[nodiscard]] const PeerLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] std::size_t most_connections() const noexcept { return most_; }
  // How many descriptors are held beyond the limit, because the limit has fallen.
  [[nodiscard]] std::size_t surplus() const noexcept { return held_ - std::min(held_, most_); }
  // How many connections the configuration and the descriptors allow one user while no other user
  // is connected.
  [[nodiscard]] std::uint64_t connections_per_uid() const noexcept;
  [[nodiscard]] RingHolders& holders() noexcept { return holders_; }

 private:
  [[nodiscard]] std::size_t Free(const Peer& peer) const;
  void CheckDescriptorLimit();

  std::shared_ptr<const AccessRules> rules_;  // see PeerRights
  std::size_t rings_ = 0;
  std::size_t most_ = 0;  // descriptors for peers: connections, and queued replies
  std::size_t held_ = 0;  // how many of those are in use
  std::size_t most_under_way_ = 0;
  std::size_t under_way_ = 0;
  PeerLimits limits_;
  RingHolders holders_;
  PeerMeter meter_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_ADMISSION_CONTROL_H_
