// SPDX-License-Identifier: Apache-2.0
#include "access/peer_limits.h"

#include <algorithm>
#include <chrono>

namespace idd::daemon {
namespace {

constexpr std::chrono::seconds kTellPause(10);
// How often per second, at most, a user over its limit is checked again.
constexpr std::uint64_t kPausesPerSecond = 200;

// A tenth of a second's worth at once: a batch is served in one go, and the rate holds over any
// second or two.
RateBucket::Rate IdRate(std::uint64_t per_s) {
  return {.per_s = per_s, .burst = std::max<std::uint64_t>(per_s / 10, 1)};
}

// What takes longer was interrupted by other processes.
constexpr std::chrono::milliseconds kMaxTime(1);

// One second's worth at once.
RateBucket::Rate RequestRate(const LimitSettings& settings) {
  return {.per_s = settings.requests_per_s_per_uid, .burst = settings.requests_per_s_per_uid};
}

}  // namespace

bool PeerLimits::AddConnection(uid_t uid, std::size_t free) {
  User& user = users_[uid];
  if (user.connections >= settings_.connections_per_uid) return false;
  if (user.connections + user.descriptors >= free) return false;
  ++user.connections;
  return true;
}

std::uint64_t PeerLimits::ConnectionsOf(uid_t uid) const {
  const auto it = users_.find(uid);
  return it == users_.end() ? 0 : it->second.connections;
}

bool PeerLimits::HoldDescriptors(uid_t uid, std::size_t count, std::size_t free) {
  User& user = users_[uid];
  if (user.connections + user.descriptors + count > free) return false;
  user.descriptors += count;
  return true;
}

void PeerLimits::ReleaseDescriptors(uid_t uid, std::size_t count) {
  const auto it = users_.find(uid);
  if (it != users_.end())
    it->second.descriptors -= std::min<std::uint64_t>(it->second.descriptors, count);
}

void PeerLimits::DropConnection(uid_t uid) {
  const auto it = users_.find(uid);
  if (it != users_.end() && it->second.connections > 0) --it->second.connections;
}

bool PeerLimits::PassDescriptors(uid_t uid, std::size_t count, std::size_t free) {
  User& user = users_[uid];
  if (user.under_way + count > free) return false;
  user.under_way += count;
  return true;
}

void PeerLimits::DescriptorsArrived(uid_t uid, std::size_t count) {
  const auto it = users_.find(uid);
  if (it == users_.end()) return;
  it->second.under_way -= std::min<std::uint64_t>(it->second.under_way, count);
}

MonotonicTime PeerLimits::NextRequestAt(uid_t uid, MonotonicTime now) const {
  const auto it = users_.find(uid);
  if (it == users_.end()) return now;
  const RateBucket::Rate rate = RequestRate(settings_);
  if (it->second.requests.ReadyAt(1, rate, now) <= now) return now;
  return it->second.requests.ReadyAt(std::max<std::uint64_t>(rate.per_s / kPausesPerSecond, 1),
                                     rate, now);
}

void PeerLimits::Take(uid_t uid, std::uint64_t requests, MonotonicClock::duration time,
                      MonotonicTime now) {
  const RateBucket::Rate rate = RequestRate(settings_);
  RateBucket& bucket = users_[uid].requests;
  if (bucket.ReadyAt(1, rate, now) > now) return;
  bucket.Take(requests, rate, now, std::min<MonotonicClock::duration>(time, kMaxTime) * kTimeShare);
}

bool PeerLimits::ShouldLogLimit(uid_t uid, MonotonicTime now) {
  MonotonicTime& told_at = users_[uid].told_at;
  if (told_at != MonotonicTime{} && now - told_at < kTellPause) return false;
  told_at = now;
  return true;
}

PeerLimits::IdTurn PeerLimits::NextIds(const ClaimOrder& order, MonotonicTime now) const {
  const RateBucket::Rate rate = IdRate(order.pace->per_s);
  const std::uint64_t ids = std::min(order.count, rate.burst);
  const auto it = ids_.find({order.pace->uid, order.tag});
  if (it == ids_.end()) return {.ids = ids, .at = now};
  return {.ids = ids, .at = it->second.ReadyAt(ids, rate, now)};
}

void PeerLimits::TakeIds(const ClaimOrder& order, MonotonicTime now) {
  ids_[{order.pace->uid, order.tag}].Take(order.count, IdRate(order.pace->per_s), now);
}

void PeerLimits::GiveIdsBack(const ClaimOrder& order, std::uint64_t used) {
  if (!order.pace.has_value() || !order.pace->is_taken || used >= order.count) return;
  const auto it = ids_.find({order.pace->uid, order.tag});
  if (it != ids_.end()) it->second.GiveBack(order.count - used, IdRate(order.pace->per_s));
}

void PeerLimits::ForgetIdle(MonotonicTime now) {
  std::erase_if(users_, [now](const auto& entry) {
    const User& user = entry.second;
    return user.connections == 0 && user.descriptors == 0 && user.under_way == 0 &&
           user.requests.IsFull(now) && now - user.told_at >= kTellPause;
  });
  std::erase_if(ids_, [now](const auto& entry) { return entry.second.IsFull(now); });
}

std::optional<std::pair<uid_t, std::uint64_t>> PeerLimits::Busiest() const {
  std::optional<std::pair<uid_t, std::uint64_t>> busiest;
  for (const auto& [uid, user] : users_) {
    if (user.connections == 0) continue;
    if (!busiest.has_value() || user.connections > busiest->second) {
      busiest = {uid, user.connections};
    }
  }
  return busiest;
}

}  // namespace idd::daemon
