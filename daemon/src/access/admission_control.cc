// SPDX-License-Identifier: Apache-2.0
#include "access/admission_control.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "platform/descriptor_limit.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

constexpr std::size_t kMaxConnections = 20000;
// Descriptors reserved for peers that administer all tags: an operator gets in even when the other
// peers have taken all the rest.
constexpr std::size_t kMaxReserved = 64;
constexpr std::size_t kFewestReserved = 2;

// Rings get a quarter of the rest, or what they have taken already if that is more.
std::size_t MostDescriptorsOfPeers(std::size_t all, std::size_t rings) {
  const std::size_t rest = all - std::min(all, kOwnDescriptors);
  const std::size_t of_rings = std::max(rest / 4, rings * kDescriptorsOfRing);
  return std::clamp(rest - std::min(rest, of_rings), kFewestConnections, kMaxConnections);
}

std::size_t Reserved(std::size_t most) {
  return std::clamp(most / 8, kFewestReserved, kMaxReserved);
}

void LogDenied(const Peer& peer, const Status& status) {
  log::Warning("access.denied",
               {{"pid", peer.pid}, {"uid", peer.uid}, {"reason", status.message()}});
}

}  // namespace

AdmissionControl::AdmissionControl() { Configure({}, {}); }

void AdmissionControl::Configure(std::vector<AccessRule> rules, const LimitSettings& limits) {
  rules_ = std::make_shared<const AccessRules>(std::move(rules), AccessDefaults::OfThisProcess());
  limits_.Configure(limits);
  CheckDescriptorLimit();
}

void AdmissionControl::CheckDescriptorLimit() {
  const std::size_t all = DescriptorLimit();
  most_ = MostDescriptorsOfPeers(all, rings_);
  most_under_way_ = all - all / 8;  // the rest: those on their way to the service manager
}

void AdmissionControl::Poll(MonotonicTime now, std::size_t rings) {
  limits_.ForgetIdle(now);
  rings_ = rings;
  CheckDescriptorLimit();
}

std::uint64_t AdmissionControl::connections_per_uid() const noexcept {
  return std::min<std::uint64_t>(limits_.settings().connections_per_uid,
                                 (most_ - Reserved(most_) + 1) / 2);
}

// Descriptors that are not in use and that this peer may take.
std::size_t AdmissionControl::Free(const Peer& peer) const {
  const std::size_t taken = held_ + (rules_->AdministersAll(peer) ? 0 : Reserved(most_));
  return most_ - std::min(most_, taken);
}

Status AdmissionControl::Admit(const Peer& peer) {
  if (Status status = StillAdmit(peer); !status.ok()) return status;
  const std::size_t free = Free(peer);
  // A peer that administers all tags may take the last free descriptors.
  const std::size_t share = rules_->AdministersAll(peer) ? SIZE_MAX : free;
  if (free > 0 && (rules_->IsOperator(peer) || limits_.AddConnection(peer.uid, share))) {
    ++held_;
    meter_.accepted.Increment();
    return Status::Ok();
  }
  meter_.refused.Increment();
  if (free == 0) return {Code::kUnavailable, "idd has too many connections"};
  const std::string uid = "uid " + std::to_string(peer.uid);
  if (limits_.ConnectionsOf(peer.uid) < limits_.settings().connections_per_uid) {
    return {Code::kUnavailable, uid + " has as many connections as idd has left for all others, " +
                                    std::to_string(free) +
                                    "; close some, or raise LimitNOFILE= of idd"};
  }
  return {Code::kUnavailable,
          uid + " has the " + std::to_string(limits_.settings().connections_per_uid) +
              " connections that a user may have; close some, or raise connections_per_uid"};
}

void AdmissionControl::Release(const Peer& peer) {
  --held_;
  if (!rules_->IsOperator(peer)) limits_.DropConnection(peer.uid);
}

bool AdmissionControl::HoldDescriptors(const Peer& peer, std::size_t count) {
  const std::size_t free = Free(peer);
  if (count > free) return false;
  if (!rules_->IsOperator(peer) && !limits_.HoldDescriptors(peer.uid, count, free)) return false;
  held_ += count;
  return true;
}

// Operators have what the other users leave, at least a quarter.
bool AdmissionControl::PassDescriptors(const Peer& peer, std::size_t count) {
  const bool is_operator = rules_->IsOperator(peer);
  const std::size_t most = is_operator ? most_under_way_ : most_under_way_ / 4 * 3;
  const std::size_t free = most - std::min(most, under_way_);
  if (count > free) return false;
  if (!is_operator && !limits_.PassDescriptors(peer.uid, count, free)) return false;
  under_way_ += count;
  return true;
}

void AdmissionControl::DescriptorsArrived(const Peer& peer, std::size_t count) {
  under_way_ -= count;
  if (!rules_->IsOperator(peer)) limits_.DescriptorsArrived(peer.uid, count);
}

void AdmissionControl::ReleaseDescriptors(const Peer& peer, std::size_t count) {
  held_ -= count;
  if (!rules_->IsOperator(peer)) limits_.ReleaseDescriptors(peer.uid, count);
}

Status AdmissionControl::StillAdmit(const Peer& peer) {
  if (rules_->HasAnyRight(peer)) return Status::Ok();
  meter_.denied_connections.Increment();
  return DenyPeer(peer);
}

MonotonicTime AdmissionControl::MayReadAt(uid_t uid, MonotonicTime now) {
  if (rules_->IsOperator(uid)) return now;
  const MonotonicTime at = limits_.NextRequestAt(uid, now);
  if (at <= now) return now;
  meter_.limited_by_rate.Increment();
  if (limits_.ShouldLogLimit(uid, now)) {
    log::Warning("peer.limited", {{"uid", uid},
                                  {"requests_per_s", limits_.settings().requests_per_s_per_uid},
                                  {"action", "requests beyond that are read later"}});
  }
  return at;
}

void AdmissionControl::Take(const Peer& peer, std::uint64_t requests, MonotonicClock::duration time,
                            MonotonicTime now) {
  if (!rules_->IsOperator(peer)) limits_.Take(peer.uid, requests, time, now);
}

Result<TagRight> AdmissionControl::RightTo(const Peer& peer, std::string_view tag) {
  const TagRight right = rules_->Of(peer, tag);
  if (right.access >= Access::kSocket) return right;
  Status denied = DenyTag(peer, tag, Access::kSocket, right.access);
  meter_.denied_tags.Increment();
  LogDenied(peer, denied);
  return denied;
}

void AdmissionControl::NoteDeniedAdmin(const Peer& peer, const Status& status) {
  meter_.denied_admin.Increment();
  LogDenied(peer, status);
}

Access AdmissionControl::AccessTo(const Peer& peer, std::string_view tag) const {
  return rules_->Of(peer, tag).access;
}

}  // namespace idd::daemon
