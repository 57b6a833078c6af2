// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PEER_GATE_H_
#define IDD_DAEMON_PEER_GATE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "access_rules.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "peer_limits.h"
#include "ring_holders.h"
#include "service_meter.h"

namespace idd::daemon {

// What is decided about a peer before anything is done for it: whether it is let in, how much it
// may ask, which tags it may use. Denials are logged here.
//
// Thread safety: none; event loop.
class PeerGate {
 public:
  // Without rules, and with the limits' defaults.
  PeerGate();

  void Configure(std::vector<AccessRule> rules, const LimitSettings& limits);

  // A new connection, beside so many that there are. kDenied: it has no right to anything;
  // kUnavailable: it, or idd, has too many. Release() when one that was let in is gone.
  [[nodiscard]] Status Admit(const Peer& peer, std::size_t connections);
  void Release(const Peer& peer);
  // Under rules that changed since it was let in.
  [[nodiscard]] Status StillAdmit(const Peer& peer);

  // kUnavailable: too many requests this second.
  [[nodiscard]] Status TakeRequest(const Peer& peer);
  // kDenied unless it may claim.
  [[nodiscard]] Result<TagRight> RightTo(const Peer& peer, std::string_view tag);
  [[nodiscard]] Access AccessTo(const Peer& peer, std::string_view tag) const;
  [[nodiscard]] PeerRights RightsOf(const Peer& peer) const { return {rules_, peer}; }
  [[nodiscard]] std::vector<RingHolders::Ring> UnlawfulRings() const {
    return holders_.Unlawful(*rules_);
  }

  void Poll(MonotonicTime now) { limits_.ForgetIdle(now); }

  // An administration request was denied.
  void NoteDeniedAdmin(const Peer& peer, const Status& status);
  // A connection had too many requests under way.
  void NoteTooMany() { meter_.limited_under_way.Increment(); }
  [[nodiscard]] const PeerMeter& meter() const noexcept { return meter_; }

  [[nodiscard]] PeerLimits& limits() noexcept { return limits_; }
  [[nodiscard]] const PeerLimits& limits() const noexcept { return limits_; }
  [[nodiscard]] std::size_t most_connections() const noexcept { return most_connections_; }
  [[nodiscard]] RingHolders& holders() noexcept { return holders_; }

 private:
  std::shared_ptr<const AccessRules> rules_;  // see PeerRights
  std::size_t most_connections_ = 0;
  PeerLimits limits_;
  RingHolders holders_;
  PeerMeter meter_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PEER_GATE_H_
