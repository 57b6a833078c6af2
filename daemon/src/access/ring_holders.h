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

// Who was given the memory of which tag's present ring. A mapping outlives the connection that it
// came by, so no user is taken out before the ring is.
//
// Pure. Thread safety: none; event loop. Memory: a bounded number of identities a ring.
class RingHolders {
 public:
  struct Ring {
    std::string tag;
    std::uint64_t ring_id = 0;
  };

  // A ring of another id is the tag's next one: the holders of the last do not matter any more.
  void Add(const Ring& ring, const Peer& peer);
  // The rings that a user has mapped who would not get them under these rules, and those whose
  // holders are too many to know.
  [[nodiscard]] std::vector<Ring> Unlawful(const AccessRules& rules) const;
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
