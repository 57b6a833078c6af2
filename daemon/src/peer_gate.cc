// SPDX-License-Identifier: Apache-2.0
#include "peer_gate.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "logging.h"

namespace idd::daemon {
namespace {

constexpr std::size_t kMaxConnections = 20000;
// Of those, for peers who administer all tags: an operator gets in when the others have taken all.
constexpr std::size_t kReservedConnections = 64;

// Rings and the store need descriptors, too.
std::size_t MostConnections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxConnections;
  const auto most = static_cast<std::size_t>(limit.rlim_cur / 4 * 3);
  return std::clamp(most, 2 * kReservedConnections, kMaxConnections);
}

void LogDenied(const Peer& peer, const Status& status) {
  log::Warning("access.denied",
               {{"pid", peer.pid}, {"uid", peer.uid}, {"reason", status.message()}});
}

}  // namespace

PeerGate::PeerGate() { Configure({}, {}); }

void PeerGate::Configure(std::vector<AccessRule> rules, const LimitSettings& limits) {
  rules_ = std::make_shared<const AccessRules>(std::move(rules), AccessDefaults::OfThisProcess());
  limits_.Configure(limits);
  most_connections_ = MostConnections();
}

Status PeerGate::Admit(const Peer& peer, std::size_t connections) {
  if (Status status = StillAdmit(peer); !status.ok()) return status;
  const std::size_t reserved = rules_->AdministersAll(peer) ? 0 : kReservedConnections;
  if (connections + reserved >= most_connections_) {
    meter_.refused.Increment();
    return {Code::kUnavailable, "idd has too many connections"};
  }
  if (rules_->IsOperator(peer) || limits_.AddConnection(peer.uid)) {
    meter_.accepted.Increment();
    return Status::Ok();
  }
  meter_.refused.Increment();
  return {Code::kUnavailable,
          "uid " + std::to_string(peer.uid) + " has the " +
              std::to_string(limits_.settings().connections_per_uid) +
              " connections that a user may have; close some, or raise connections_per_uid"};
}

void PeerGate::Release(const Peer& peer) {
  if (!rules_->IsOperator(peer)) limits_.DropConnection(peer.uid);
}

Status PeerGate::StillAdmit(const Peer& peer) {
  if (rules_->HasAnyRight(peer)) return Status::Ok();
  meter_.denied_connections.Increment();
  return DenyPeer(peer);
}

Status PeerGate::TakeRequest(const Peer& peer) {
  if (rules_->IsOperator(peer)) return Status::Ok();
  const MonotonicTime now = MonotonicClock::now();
  if (limits_.TakeRequest(peer.uid, now)) return Status::Ok();
  meter_.limited_by_rate.Increment();
  const std::string uid = std::to_string(peer.uid);
  const std::string most = std::to_string(limits_.settings().requests_per_s_per_uid);
  if (limits_.ShouldTell(peer.uid, now)) {
    log::Warning("peer.limited", {{"uid", peer.uid},
                                  {"pid", peer.pid},
                                  {"requests_per_s", most},
                                  {"action", "what is beyond is refused"}});
  }
  return {Code::kUnavailable, "uid " + uid + " sends more than the " + most +
                                  " requests a second that a user may send; send fewer, or raise "
                                  "requests_per_second_per_uid"};
}

Result<TagRight> PeerGate::RightTo(const Peer& peer, std::string_view tag) {
  const TagRight right = rules_->Of(peer, tag);
  if (right.access >= Access::kSocket) return right;
  Status denied = DenyTag(peer, tag, Access::kSocket, right.access);
  meter_.denied_tags.Increment();
  LogDenied(peer, denied);
  return denied;
}

void PeerGate::NoteDeniedAdmin(const Peer& peer, const Status& status) {
  meter_.denied_admin.Increment();
  LogDenied(peer, status);
}

Access PeerGate::AccessTo(const Peer& peer, std::string_view tag) const {
  return rules_->Of(peer, tag).access;
}

}  // namespace idd::daemon
