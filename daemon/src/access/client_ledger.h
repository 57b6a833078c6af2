// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_CLIENT_LEDGER_H_
#define IDD_DAEMON_ACCESS_CLIENT_LEDGER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "access/peer.h"
#include "idd/base/clock.h"

namespace idd::daemon {

// A client's use of one tag. The daemon does not see claims from a ring; it only knows that the
// client was given the ring.
struct ClientUse {
  std::uint64_t attachments = 0;                  // times that the tag's memory was passed
  std::uint64_t requests = 0;                     // claims over the socket that got ids
  std::uint64_t ids = 0;                          // ids that these got
  std::uint64_t dry_waits = 0;                    // requests that waited for a segment
  std::optional<MonotonicTime> attached_since{};  // the newest attachment; only for a connection

  ClientUse& operator+=(const ClientUse& other) noexcept;
};

// The connected clients and their use of tags, and the use by earlier clients, by uid and tag.
//
// Pure. Thread safety: none; event loop. Memory: at most kMaxTags tags per connection, and at most
// kMaxPastEnd pairs of uid and tag for connections that are gone. Anything beyond is summed up
// under the tag kOtherTags and, for connections that are gone, also under kOtherUsers.
class ClientLedger {
 public:
  static constexpr std::size_t kMaxTags = 256;
  static constexpr std::size_t kMaxPastEnd = 4096;
  // No tag has the empty name.
  static constexpr const char* kOtherTags = "";
  static constexpr uid_t kOtherUsers = static_cast<uid_t>(-1);  // which no process can have

  using Uses = std::map<std::string, ClientUse, std::less<>>;  // by tag
  struct Client {
    Peer peer;
    MonotonicTime since{};
    std::string version;  // from HELLO: untrusted
    std::uint32_t abi_version = 0;
    Uses uses;
  };
  struct Past {
    std::uint64_t connections = 0;  // that used the tag
    ClientUse use;
  };
  using PastUses = std::map<std::pair<uid_t, std::string>, Past>;

  // `id`: of the connection.
  void Connected(std::uint64_t id, const Peer& peer, MonotonicTime now);
  void Greeted(std::uint64_t id, std::string_view version, std::uint32_t abi_version);
  // The tag's memory was passed to it.
  void Attached(std::uint64_t id, const std::string& tag, MonotonicTime now);
  void Claimed(std::uint64_t id, const std::string& tag, std::uint64_t ids,
               std::uint64_t dry_waits);
  void Gone(std::uint64_t id);

  [[nodiscard]] const std::unordered_map<std::uint64_t, Client>& clients() const noexcept {
    return clients_;
  }
  [[nodiscard]] const PastUses& past() const noexcept { return past_; }

 private:
  [[nodiscard]] ClientUse* UseOf(std::uint64_t id, const std::string& tag);
  [[nodiscard]] Past& PastOf(uid_t uid, const std::string& tag);

  std::unordered_map<std::uint64_t, Client> clients_;
  PastUses past_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_CLIENT_LEDGER_H_
