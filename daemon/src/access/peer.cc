// SPDX-License-Identifier: Apache-2.0
#include "access/peer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace idd::daemon {
namespace {

// How many of a peer's groups are listed; the rest are counted.
constexpr std::size_t kMaxGroupsShown = 16;
// The kernel's own limit (NGROUPS_MAX).
constexpr std::size_t kMaxGroups = 65536;

Result<std::vector<gid_t>> GroupsOf(int socket) {
  std::vector<gid_t> groups(32);
  while (true) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int result = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes);
    const int error = errno;
    const std::size_t count = bytes / sizeof(gid_t);
    if (result == 0) {
      groups.resize(std::min(count, groups.size()));
      return groups;
    }
    // With ERANGE the kernel has set how many there are.
    if (error != ERANGE || count <= groups.size() || count > kMaxGroups) {
      return Status::FromErrno(error, "getsockopt(SO_PEERGROUPS)");
    }
    groups.resize(count);
  }
}

}  // namespace

std::string Peer::Describe() const {
  std::string text = "uid " + std::to_string(uid) + ", gid " + std::to_string(gid);
  if (groups.empty()) return text;
  text += ", groups";
  for (std::size_t i = 0; i < std::min(groups.size(), kMaxGroupsShown); ++i) {
    text += " " + std::to_string(groups[i]);
  }
  if (groups.size() > kMaxGroupsShown) {
    text += " and " + std::to_string(groups.size() - kMaxGroupsShown) + " more";
  }
  return text;
}

Result<Peer> PeerOf(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return Status::FromErrno(errno, "getsockopt(SO_PEERCRED)");
  }
  Result<std::vector<gid_t>> groups = GroupsOf(socket);
  if (!groups.ok()) return groups.status();
  return Peer{.pid = credentials.pid,
              .uid = credentials.uid,
              .gid = credentials.gid,
              .groups = std::move(groups).value()};
}

}  // namespace idd::daemon
