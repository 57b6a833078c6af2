// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_PEER_H_
#define IDD_DAEMON_ACCESS_PEER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "idd/base/status.h"

namespace idd::daemon {

// The other end of a connection, as the kernel recorded it at the connect. Ids of another user
// namespace that have no counterpart in ours are 65534 ("nobody").
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary ones

  // "uid 1001, gid 1001, groups 27 100": for people.
  [[nodiscard]] std::string Describe() const;
};

// The peer of a connected Unix socket. kSystem.
[[nodiscard]] Result<Peer> PeerOf(int socket);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_PEER_H_
