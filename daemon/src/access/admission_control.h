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

// What is decided about a peer before anything is done for it: whether it is let in, how much it
// may ask, which tags it may use. Denials are logged here.
//
// Descriptors: what RLIMIT_NOFILE leaves beside idd's own files and rings is for peers, and a user
// may hold as many of them as are free for the others. So one user alone gets a half at most, a
// second one half of the rest, and the next one finds room. Some are kept for those who
// administer all tags. Descriptors that were sent and not read are no descriptors of idd, but the
// kernel lets it have as many of them under way, and are divided the same way.
//
// Thread safety: none; event loop.
class AdmissionControl {
 public:
  // Without rules, and with the limits' defaults.
  AdmissionControl();

  void Configure(std::vector<AccessRule> rules, const LimitSettings& limits);

  // A new connection. kDenied: it has no right to anything; kUnavailable: its user, or idd, has too
  // many. Release() when one that was let in is gone.
  [[nodiscard]] Status Admit(const Peer& peer);
  void Release(const Peer& peer);
  // So many descriptors for replies that the peer has not read; false: its user, or idd, holds too
  // many. ReleaseDescriptors() when they are gone.
  [[nodiscard]] bool HoldDescriptors(const Peer& peer, std::size_t count);
  void ReleaseDescriptors(const Peer& peer, std::size_t count);
  // So many descriptors sent to the peer; false: too many are under way to its user, or to all.
  // DescriptorsArrived() when it has read them.
  [[nodiscard]] bool PassDescriptors(const Peer& peer, std::size_t count);
  void DescriptorsArrived(const Peer& peer, std::size_t count);
  // Under rules that changed since it was let in.
  [[nodiscard]] Status StillAdmit(const Peer& peer);

  // When a user's next request may be read: now, or when it is within its limit again.
  [[nodiscard]] MonotonicTime MayReadAt(uid_t uid, MonotonicTime now);
  // A request of the peer was read.
  void TakeRequest(const Peer& peer);
  // kDenied unless it may claim.
  [[nodiscard]] Result<TagRight> RightTo(const Peer& peer, std::string_view tag);
  [[nodiscard]] Access AccessTo(const Peer& peer, std::string_view tag) const;
  [[nodiscard]] PeerRights RightsOf(const Peer& peer) const { return {rules_, peer}; }
  [[nodiscard]] std::vector<RingHolders::Ring> UnlawfulRings() const {
    return holders_.Unlawful(*rules_);
  }

  // Once a second; `rings`: that idd has open. RLIMIT_NOFILE is read again.
  void Poll(MonotonicTime now, std::size_t rings);

  // An administration request was denied.
  void NoteDeniedAdmin(const Peer& peer, const Status& status);
  // A connection had too many requests under way.
  void NoteTooMany() { meter_.limited_under_way.Increment(); }
  [[nodiscard]] const PeerMeter& meter() const noexcept { return meter_; }

  [[nodiscard]] PeerLimits& limits() noexcept { return limits_; }
  [[nodiscard]] const PeerLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] std::size_t most_connections() const noexcept { return most_; }
  // Held beyond that, as it has become less.
  [[nodiscard]] std::size_t surplus() const noexcept { return held_ - std::min(held_, most_); }
  // What the configuration and the descriptors leave to one user while no other is there.
  [[nodiscard]] std::uint64_t connections_per_uid() const noexcept;
  [[nodiscard]] RingHolders& holders() noexcept { return holders_; }

 private:
  [[nodiscard]] std::size_t Free(const Peer& peer) const;
  void CheckDescriptorLimit();

  std::shared_ptr<const AccessRules> rules_;  // see PeerRights
  std::size_t rings_ = 0;
  std::size_t most_ = 0;  // descriptors for peers: their connections, and what waits in those
  std::size_t held_ = 0;  // of those
  std::size_t most_under_way_ = 0;
  std::size_t under_way_ = 0;
  PeerLimits limits_;
  RingHolders holders_;
  PeerMeter meter_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_ADMISSION_CONTROL_H_
