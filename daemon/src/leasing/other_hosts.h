// SPDX-License-Identifier: Apache-2.0
//
// The other hosts' rows in the fence's table, as far as this host has seen them.
#ifndef IDD_DAEMON_LEASING_OTHER_HOSTS_H_
#define IDD_DAEMON_LEASING_OTHER_HOSTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "store/fence_store.h"

namespace idd::daemon {

// Thread safety: none; the lease worker's thread.
class OtherHosts {
 public:
  // A host's row, as it was when it last changed.
  struct Seen {
    FenceMember member;
    std::int64_t since_ms = 0;
    // How often we saw the row move while it named the server that we look at, before the move as
    // well as after it. A statement that was under way when the server was set back moves it once.
    int looks_here = 0;
  };
  using Map = std::map<std::string, Seen, std::less<>>;

  // Takes over what a look has shown.
  void Track(const FenceView& view, const std::string& own_host, std::int64_t now_ms);
  void Clear() { seen_.clear(); }
  // The server may have been set back since the last look, so the moves that were seen before prove
  // nothing now.
  void ForgetLooks();

  [[nodiscard]] const Map& seen() const noexcept { return seen_; }
  [[nodiscard]] Map& seen() noexcept { return seen_; }
  // Whether no other host is a member.
  [[nodiscard]] bool AreAllOut() const;
  // Whether a live member looks at `server` now and has pushed there what it knew.
  [[nodiscard]] bool OneIsLiveOn(const std::string& server) const;
  // Whether every member has come to `server`.
  [[nodiscard]] bool AllHaveComeTo(const std::string& server) const;
  // Whether every live member has noted `epoch`.
  [[nodiscard]] bool AllHaveNoted(std::uint64_t epoch) const;
  [[nodiscard]] std::size_t LiveMembers() const;

  [[nodiscard]] static bool IsMember(const FenceMember& member) {
    return member.state == MemberState::kLive || member.state == MemberState::kWaiting;
  }
  [[nodiscard]] static bool HasComeTo(const Seen& seen, const std::string& server) {
    return seen.looks_here >= kLooksThatProve && seen.member.server == server;
  }

 private:
  // Two, because a host sends the second after the answer to the first, and checks how long that
  // answer took.
  static constexpr int kLooksThatProve = 2;

  Map seen_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_OTHER_HOSTS_H_
