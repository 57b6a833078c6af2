// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SERVER_SERVER_H_
#define IDD_DAEMON_SERVER_SERVER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "access/admission_control.h"
#include "access/client_ledger.h"
#include "admin/admin.h"
#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/wire/frames.h"
#include "platform/event_loop.h"
#include "server/claim_pacer.h"
#include "server/connection.h"
#include "server/listener.h"
#include "server/peer_turns.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// The connections of clients, and what the frames of docs/socket-protocol.md do.
//
// Thread safety: none; event loop. One connection's faults end that connection alone.
class Server {
 public:
  // `ledger` is told of every client.
  Server(EventLoop& loop, TagService& tags, Admin& admin, ClientLedger& ledger);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // As Listener::Listen().
  [[nodiscard]] Status Listen(const std::string& path, ScopedFd passed) {
    return listener_.Listen(path, std::move(passed));
  }
  // Accepts no more and removes the socket file if it is still ours; connections stay.
  void StopAccepting() { listener_.Stop(); }
  // Once a second: closes connections that have not said HELLO in time.
  void Poll();
  // What the metrics tell of the peers.
  void AddFamilies(FamilyBuilder& families) const;
  // For the doctor.
  [[nodiscard]] PeerFacts CountPeers() const;
  // Who may do what, and how much, from now on. Peers that have no right to anything any more are
  // closed; rings of users that may not use them any more are replaced.
  void Configure(std::vector<AccessRule> rules, const LimitSettings& limits);

 private:
  // Closes the connection that has been silent for the longest. False: all have said HELLO.
  bool DropSilent(const char* why);
  // Closes the newest connection of the user that has the most; false: only operators have any.
  bool DropBusiest();
  void Adopt(ScopedFd socket);
  // One frame of the connection; false: it is gone.
  [[nodiscard]] bool ReadOne(std::uint64_t id);
  void OnClosed(std::uint64_t id);
  // Descriptors to the peer; if there are too many under way, it looks first what has arrived.
  [[nodiscard]] bool PassDescriptors(const Peer& peer, std::size_t count);
  // At the connections of one user, or at all.
  void CheckArrived(std::optional<uid_t> uid);
  void WithdrawRings();

  void OnMessage(Connection& connection, std::span<const std::byte> message);
  [[nodiscard]] Status Dispatch(Connection& connection, const wire::FrameView& frame);
  // What the peer may do with the tag, or why it has to go without.
  [[nodiscard]] Result<TagRight> MayAsk(const Connection& connection, std::string_view tag);
  [[nodiscard]] Status OnHello(Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnAttach(Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnObserve(Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnClaim(Connection& connection, const wire::FrameView& frame);
  void PaceClaim(ClaimOrder order);
  void StartClaim(ClaimOrder order);
  [[nodiscard]] Status OnRefill(const Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnAdmin(Connection& connection, const wire::FrameView& frame);
  // Answers an ATTACH, OBSERVE or CLAIM that nothing was done; the connection goes on.
  void Refuse(Connection& connection, const wire::FrameView& frame, const Status& status);
  void ReplyAttach(const ClaimOrder& order, const Result<AttachGrant>& grant);
  void ReplyClaim(const ClaimOrder& order, const Result<ClaimGrant>& grant);
  void ReplyAdmin(std::uint64_t owner, std::uint64_t request_id, const Status& status,
                  const std::string& document);
  [[nodiscard]] Connection* Find(std::uint64_t id);

  EventLoop& loop_;
  TagService& tags_;
  Admin& admin_;
  const std::uint64_t daemon_id_;
  Listener listener_;
  AdmissionControl gate_;
  PeerTurns turns_;
  ClaimPacer pacer_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  // Closed ones with descriptors under way; they count as connections.
  std::vector<std::unique_ptr<Connection>> lingering_;
  ClientLedger& ledger_;
  // The claim that is with the tag service: answered before that returns, it did not wait.
  std::uint64_t starting_owner_ = 0;
  std::uint64_t starting_request_ = 0;
  // Connections that had not said HELLO when last looked at, the oldest first.
  struct Silent {
    std::uint64_t id;
    MonotonicTime since;
  };
  std::deque<Silent> silent_;
  std::vector<RingHolders::Ring> unlawful_;  // rings to be replaced that are not yet
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_SERVER_H_
