// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_PEER_FACTS_H_
#define IDD_DAEMON_ACCESS_PEER_FACTS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace idd::daemon {

// Connections of clients that report the same version.
struct ClientGroup {
  std::string version;  // untrusted
  std::uint32_t abi_version = 0;
  std::uint64_t connections = 0;
  pid_t pid = 0;  // of one of them
  uid_t uid = 0;
};
inline constexpr std::size_t kMaxClientGroups = 64;

struct PeerFacts {
  std::uint64_t connections = 0;
  std::uint64_t most_connections = 0;
  std::uint64_t connections_per_uid = 0;  // the limit
  // The limited uid with the most connections; nothing: no such uid is connected.
  struct Busiest {
    uid_t uid = 0;
    std::uint64_t connections = 0;
  };
  std::optional<Busiest> busiest;
  std::vector<ClientGroup> clients;  // at most kMaxClientGroups; the rest is not listed
  std::uint64_t not_listed = 0;      // connections
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_PEER_FACTS_H_
