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
#include "access/peer_facts.h"
#include "admin/admin.h"
#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/wire/frames.h"
#include "metrics/metric_families.h"
#include "platform/event_loop.h"
#include "platform/turns.h"
#include "server/claim_pacer.h"
#include "server/connection.h"
#include "server/listener.h"
#include "server/peer_turns.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// The connections of clients, and the handlers of the frames of docs/socket-protocol.md.
//
// It has more members than a class should: the connections, and every part of the daemon that a
// frame reaches.
//
// Thread safety: none; event loop. One connection's faults end that connection alone.
class Server {
 public:
  // Records every client in `ledger`.
  Server(EventLoop& loop, TagService& tags, Admin& admin, ClientLedger& ledger);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Like Listener::Listen().
  [[nodiscard]] Status Listen(const std::string& path, ScopedFd passed) {
    return listener_.Listen(path, std::move(passed));
  }
  // Accepts no more and removes the socket file if it is still ours; connections stay.
  void StopAccepting() { listener_.Stop(); }
  // Once a second: closes connections that have not said HELLO in time.
  void Poll();
  // Adds the metrics of the peers.
  void AddFamilies(FamilyBuilder& families) const;
  // The facts about the peers, for the doctor.
  [[nodiscard]] PeerFacts CountPeers() const;
  // Sets the rules and limits from now on. Closes peers that no longer have any right. Replaces
  // rings of users that may no longer use them, in turns of the loop.
  void Configure(std::vector<AccessRule> rules, const LimitSettings& limits);

 private:
  // Closes the connection that has been silent for the longest. False: all have said HELLO.
  bool DropSilent(const char* why);
  // Closes the newest connection of the user that has the most; false: only operators have any.
  bool DropBusiest();
  void Accept(ScopedFd socket);
  void Adopt(ScopedFd socket, Peer peer, const Status& admitted);
  // Reads one frame of the connection; returns how long that took, or nothing: it is gone.
  [[nodiscard]] std::optional<MonotonicClock::duration> ReadOne(std::uint64_t id);
  void OnClosed(std::uint64_t id);
  // Counts descriptors sent to the peer. If too many are under way, first checks whether some of
  // its user's have arrived.
  [[nodiscard]] bool PassDescriptors(const Peer& peer, std::size_t count);
  // How many connections are still to be checked.
  struct Look {
    std::size_t lingering = 0;
    std::size_t connections = 0;
  };
  // Checks which descriptors have arrived, of the connections of one user or all, for a short time;
  // begins where the last check ended.
  [[nodiscard]] Turns::Next CheckArrived(Look& look, std::optional<uid_t> uid);
  void WithdrawRings();
  [[nodiscard]] Turns::Next WithdrawNext();

  void OnMessage(Connection& connection, std::span<const std::byte> message);
  [[nodiscard]] Status Dispatch(Connection& connection, const wire::FrameView& frame);
  // The peer's right to the tag, or why the request is refused.
  [[nodiscard]] Result<TagRight> MayAsk(const Connection& connection, std::string_view tag);
  [[nodiscard]] Status OnHello(Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnAttach(Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnObserve(Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnClaim(Connection& connection, const wire::FrameView& frame);
  void PaceClaim(ClaimOrder order);
  void StartClaim(ClaimOrder order);
  [[nodiscard]] Status OnRefill(const Connection& connection, const wire::FrameView& frame);
  [[nodiscard]] Status OnAdmin(Connection& connection, const wire::FrameView& frame);
  // Refuses an ATTACH, OBSERVE or CLAIM; the connection stays open.
  void Refuse(Connection& connection, const wire::FrameView& frame, const Status& status);
  void ReplyAttach(const ClaimOrder& order, const Result<AttachGrant>& grant);
  void ReplyClaim(const ClaimOrder& order, const Result<ClaimGrant>& grant);
  void ReplyAdmin(std::uint64_t owner, std::uint64_t request_id, const Status& status,
                  std::string document);
  // A document in a sealed memfd.
  struct Document {
    std::size_t bytes = 0;
    Result<ScopedFd> fd;
  };
  [[nodiscard]] static Document MakeDocument(const std::string& text);
  void SendDocument(std::uint64_t owner, std::uint64_t request_id, const Status& status,
                    const Document& document);
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
  // Closed connections with descriptors under way; they still count as connections.
  std::deque<std::unique_ptr<Connection>> lingering_;
  std::uint64_t last_checked_ = 0;  // the id of a connection
  ClientLedger& ledger_;
  // Connections that had not said HELLO when last looked at, the oldest first.
  struct Silent {
    std::uint64_t id;
    MonotonicTime since;
  };
  std::deque<Silent> silent_;
  Timer look_timer_;
  Turns look_turns_;
  Turns withdraw_turns_;
  std::vector<RingHolders::Ring> to_withdraw_;    // rings still to be replaced
  std::vector<RingHolders::Ring> not_withdrawn_;  // for which there was no memory
  WorkThread document_thread_;                    // last: it ends before the rest goes
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_SERVER_H_
