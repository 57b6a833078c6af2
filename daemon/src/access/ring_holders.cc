// SPDX-License-Identifier: Apache-2.0
#include "access/ring_holders.h"

#include <algorithm>

namespace idd::daemon {
namespace {

constexpr std::size_t kMaxHolders = 64;

bool IsSameIdentity(const Peer& a, const Peer& b) {
  return a.uid == b.uid && a.gid == b.gid && a.groups == b.groups;
}

}  // namespace

void RingHolders::Add(const Ring& ring, const Peer& peer) {
  Holders& holders = rings_[ring.tag];
  if (holders.ring_id != ring.ring_id) holders = {.ring_id = ring.ring_id, .peers = {}};
  if (holders.too_many) return;
  const bool is_known =
      std::any_of(holders.peers.begin(), holders.peers.end(),
                  [&peer](const Peer& holder) { return IsSameIdentity(holder, peer); });
  if (is_known) return;
  if (holders.peers.size() == kMaxHolders) {
    holders.too_many = true;
    holders.peers.clear();
    return;
  }
  holders.peers.push_back({.pid = 0, .uid = peer.uid, .gid = peer.gid, .groups = peer.groups});
}

std::vector<RingHolders::Ring> RingHolders::ToWithdraw(const AccessRules& rules) const {
  std::vector<Ring> unlawful;
  for (const auto& [tag, holders] : rings_) {
    const bool is_unlawful =
        holders.too_many || std::any_of(holders.peers.begin(), holders.peers.end(),
                                        [&, &name = tag](const Peer& holder) {
                                          return rules.Of(holder, name).access < Access::kShm;
                                        });
    if (is_unlawful) unlawful.push_back({.tag = tag, .ring_id = holders.ring_id});
  }
  return unlawful;
}

void RingHolders::Forget(const Ring& ring) {
  const auto it = rings_.find(ring.tag);
  if (it != rings_.end() && it->second.ring_id == ring.ring_id) rings_.erase(it);
}

}  // namespace idd::daemon
