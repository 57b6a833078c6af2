// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_RING_HOLDERS_H_
#define IDD_DAEMON_ACCESS_RING_HOLDERS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "access/access_rules.h"
#include "access/peer.h"

namespace idd::daemon {

// Records which users were given the memory of which tag's present ring. A mapping outlives the
// connection that delivered it, so a user is removed only together with the ring.
//
// Pure. Thread safety: none; event loop. Memory: a bounded number of identities a ring.
class RingHolders {
 public:
  struct Ring {
    std::string tag;
    std::uint64_t ring_id = 0;
  };

  // A ring with a new id is the tag's next one: the holders of the earlier ring no longer matter.
  void Add(const Ring& ring, const Peer& peer);
  // The rings with a holder that would not get them under these rules, and the rings with more
  // holders than can be recorded.
  [[nodiscard]] std::vector<Ring> ToWithdraw(const AccessRules& rules) const;
  void Forget(const Ring& ring);

 private:
  struct Holders {
    std::uint64_t ring_id = 0;
    std::vector<Peer> peers;  // without pids, each identity once
    bool too_many = false;
  };

  std::map<std::string, Holders> rings_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_RING_HOLDERS_H_
