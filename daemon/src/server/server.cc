// SPDX-License-Identifier: Apache-2.0
//
// Server: the connections.
#include "server/server.h"

#include <chrono>
#include <utility>

#include "platform/logging.h"
#include "platform/random.h"

namespace idd::daemon {
namespace {

// A connection says HELLO within this time, or is closed.
constexpr std::chrono::seconds kHelloPatience(5);
// A thousand closed connections may each have hundreds of messages to drop, which takes as long as
// a claim each; so they are checked a few at a time.
constexpr std::chrono::microseconds kLookTurn(50);
constexpr std::chrono::milliseconds kLookPause(2);

}  // namespace

Server::Server(EventLoop& loop, TagService& tags, Admin& admin, ClientLedger& ledger)
    : loop_(loop),
      tags_(tags),
      admin_(admin),
      daemon_id_(RandomId()),
      listener_(
          loop, [this](ScopedFd socket) { Accept(std::move(socket)); },
          [this] {
            return DropSilent(
                       "idd is out of descriptors, and this connection has not said HELLO") ||
                   DropBusiest();
          }),
      turns_(
          loop, [this](std::uint64_t connection) { return ReadOne(connection); },
          [this](uid_t uid, MonotonicTime now) { return gate_.MayReadAt(uid, now); }),
      pacer_(loop, [this](ClaimOrder order) { PaceClaim(std::move(order)); }),
      ledger_(ledger),
      look_timer_(loop),
      look_turns_(
          loop,
          [this](std::function<void()> go_on) { look_timer_.After(kLookPause, std::move(go_on)); }),
      withdraw_turns_(
          loop, [this](std::function<void()> go_on) { tags_.WhenRingsAreKept(std::move(go_on)); }) {
}

bool Server::DropSilent(const char* why) {
  while (!silent_.empty()) {
    Connection* const connection = Find(silent_.front().id);
    silent_.pop_front();
    if (connection == nullptr || connection->greeted) continue;
    connection->CloseWith({Code::kUnavailable, why});
    return true;
  }
  return false;
}

// Needed only if idd runs out of descriptors in spite of the limits per user: the limit of
// descriptors was lowered, or more rings are open than expected.
bool Server::DropBusiest() {
  const auto busiest = gate_.limits().Busiest();
  if (!busiest.has_value()) return false;
  // NOLINTNEXTLINE(modernize-loop-convert): the newest first; a reversed view reads no better
  for (auto it = connections_.rbegin(); it != connections_.rend(); ++it) {
    Connection& connection = *it->second;
    if (connection.peer().uid != busiest->first || connection.is_closed()) continue;
    connection.CloseWith(
        {Code::kUnavailable, "idd is out of descriptors, and this user has the most connections"});
    return true;
  }
  return false;
}

void Server::Poll() {
  const MonotonicTime now = MonotonicClock::now();
  gate_.Poll(now, tags_.rings());
  if (!look_turns_.is_under_way()) {
    look_turns_.Begin([this, look = Look{.lingering = lingering_.size(),
                                         .connections = connections_.size()}]() mutable {
      return CheckArrived(look, std::nullopt);
    });
  }
  for (std::size_t i = gate_.surplus(); i > 0 && DropBusiest(); --i) {
  }
  if (!withdraw_turns_.is_under_way()) WithdrawRings();  // those for which there was no memory
  const MonotonicTime latest = now - kHelloPatience;
  while (!silent_.empty()) {
    const Connection* const connection = Find(silent_.front().id);
    const bool counts = connection != nullptr && !connection->greeted;
    if (!counts) {
      silent_.pop_front();
      continue;
    }
    if (silent_.front().since > latest) return;
    if (connection->awaits_turn) {  // it has sent a frame, but its user is over a limit
      silent_.push_back({.id = silent_.front().id, .since = now});
      silent_.pop_front();
      continue;
    }
    DropSilent("no HELLO within 5 seconds");
  }
}

void Server::Configure(std::vector<AccessRule> rules, const LimitSettings& limits) {
  gate_.Configure(std::move(rules), limits);
  turns_.Reconsider();
  for (const auto& [id, connection] : connections_) {
    const Status status = gate_.StillAdmit(connection->peer());
    if (!status.ok()) connection->CloseWith(status);
  }
  to_withdraw_ = gate_.UnlawfulRings();
  not_withdrawn_.clear();
  WithdrawRings();
}

void Server::AddFamilies(FamilyBuilder& families) const {
  const PeerMeter& meter = gate_.meter();
  families.Add(metric::kConnections, static_cast<double>(connections_.size()));
  families.Add(metric::kConnectionsAccepted, meter.accepted);
  families.Add(metric::kConnectionsRefused, meter.refused);
  families.Add(metric::kDenials, meter.denied_connections, {{"of", "connection"}});
  families.Add(metric::kDenials, meter.denied_tags, {{"of", "tag"}});
  families.Add(metric::kDenials, meter.denied_admin, {{"of", "admin"}});
  families.Add(metric::kLimited, meter.limited_by_rate, {{"by", "rate"}});
  families.Add(metric::kLimited, meter.limited_under_way, {{"by", "under_way"}});
}

void Server::WithdrawRings() {
  to_withdraw_.insert(to_withdraw_.end(), not_withdrawn_.begin(), not_withdrawn_.end());
  not_withdrawn_.clear();
  withdraw_turns_.Begin([this] { return WithdrawNext(); });
}

Turns::Next Server::WithdrawNext() {
  if (to_withdraw_.empty()) return Turns::Next::kEnd;
  const RingHolders::Ring ring = std::move(to_withdraw_.back());
  to_withdraw_.pop_back();
  if (tags_.Withdraw(ring.tag, ring.ring_id)) {
    gate_.holders().Forget(ring);
  } else {
    not_withdrawn_.push_back(ring);
  }
  return Turns::Next::kTurn;
}

void Server::Accept(ScopedFd socket) {
  const MonotonicTime began = MonotonicClock::now();
  Result<Peer> result = PeerOf(socket.get());
  if (!result.ok()) return;
  const Peer peer = std::move(result).value();
  const Status admitted = gate_.Admit(peer);
  // To say why not costs more than to connect.
  if (!admitted.ok() && gate_.MayReadAt(peer.uid, began) > began) return;
  Adopt(std::move(socket), peer, admitted);
  const MonotonicTime now = MonotonicClock::now();
  gate_.Take(peer, 0, now - began, now);
}

void Server::Adopt(ScopedFd socket, Peer peer, const Status& admitted) {
  const std::uint64_t id = next_id_++;
  auto connection = std::make_unique<Connection>(loop_, std::move(socket), id, std::move(peer));
  Connection& started = *connection;
  connections_.emplace(id, std::move(connection));
  started.Start(
      {.on_readable =
           [this](Connection& from) {
             from.awaits_turn = true;
             turns_.Add(from.peer().uid, from.id());
           },
       .on_message = [this](Connection& from,
                            std::span<const std::byte> message) { OnMessage(from, message); },
       .on_close = [this](std::uint64_t closed) { OnClosed(closed); },
       .hold = [this](const Peer& of,
                      std::size_t count) { return gate_.HoldDescriptors(of, count); },
       .release = [this](const Peer& of,
                         std::size_t count) { gate_.ReleaseDescriptors(of, count); },
       .pass = [this](const Peer& of, std::size_t count) { return PassDescriptors(of, count); },
       .arrived = [this](const Peer& of,
                         std::size_t count) { gate_.DescriptorsArrived(of, count); }});
  if (!admitted.ok()) return started.CloseWith(admitted);
  started.admitted = true;
  ledger_.Connected(id, started.peer(), MonotonicClock::now());
  silent_.push_back({.id = id, .since = MonotonicClock::now()});
}

std::optional<MonotonicClock::duration> Server::ReadOne(std::uint64_t id) {
  Connection* const connection = Find(id);
  if (connection == nullptr) return std::nullopt;
  connection->awaits_turn = false;
  const MonotonicTime began = MonotonicClock::now();
  const bool has_read = connection->ReadOne();
  const MonotonicTime now = MonotonicClock::now();
  gate_.Take(connection->peer(), has_read ? 1 : 0, now - began, now);
  return now - began;
}

void Server::OnClosed(std::uint64_t id) {
  const Connection* const connection = Find(id);
  if (connection == nullptr) return;
  if (connection->unanswered > 0) {
    tags_.DropOwner(id);
    for (const ClaimOrder& order : pacer_.Drop(id)) gate_.limits().GiveIdsBack(order);
  }
  ledger_.Gone(id);
  if (connection->has_descriptors_under_way()) {
    lingering_.push_back(std::move(connections_.extract(id).mapped()));
    return;
  }
  if (connection->admitted) gate_.Release(connection->peer());
  connections_.erase(id);
}

bool Server::PassDescriptors(const Peer& peer, std::size_t count) {
  if (gate_.PassDescriptors(peer, count)) return true;
  Look look{.lingering = lingering_.size(), .connections = connections_.size()};
  static_cast<void>(CheckArrived(look, peer.uid));
  return gate_.PassDescriptors(peer, count);
}

// Only the checks take time, not the connections that need none.
Turns::Next Server::CheckArrived(Look& look, std::optional<uid_t> uid) {
  const MonotonicTime end = MonotonicClock::now() + kLookTurn;
  const auto is_over = [&](Connection& connection) {
    const bool is_meant = uid.value_or(connection.peer().uid) == connection.peer().uid;
    if (!is_meant || !connection.has_descriptors_under_way()) return false;
    connection.CheckArrived();
    return MonotonicClock::now() >= end;
  };
  while (look.lingering > 0 && !lingering_.empty()) {
    --look.lingering;
    std::unique_ptr<Connection> connection = std::move(lingering_.front());
    lingering_.pop_front();
    const bool is_turn_over = is_over(*connection);
    if (connection->has_descriptors_under_way()) {
      lingering_.push_back(std::move(connection));
    } else if (connection->admitted) {
      gate_.Release(connection->peer());
    }
    if (is_turn_over) return Turns::Next::kTurn;
  }
  auto it = connections_.upper_bound(last_checked_);
  while (look.connections > 0 && !connections_.empty()) {
    --look.connections;
    if (it == connections_.end()) it = connections_.begin();
    Connection& connection = *it->second;
    last_checked_ = it->first;
    ++it;
    if (is_over(connection)) return Turns::Next::kTurn;
  }
  return Turns::Next::kEnd;
}

// Clients may report any version, so the number of groups is limited.
PeerFacts Server::CountPeers() const {
  PeerFacts facts;
  facts.connections = connections_.size();
  facts.most_connections = gate_.most_connections();
  facts.connections_per_uid = gate_.connections_per_uid();
  if (const auto busiest = gate_.limits().Busiest(); busiest.has_value()) {
    facts.busiest = {.uid = busiest->first, .connections = busiest->second};
  }
  std::map<std::pair<std::string, std::uint32_t>, ClientGroup> groups;
  for (const auto& [id, connection] : connections_) {
    if (!connection->greeted) continue;
    const std::pair key(connection->client_version, connection->abi_version);
    if (!groups.contains(key) && groups.size() == kMaxClientGroups) {
      ++facts.not_listed;
      continue;
    }
    ClientGroup& group = groups[key];
    group.version = key.first;
    group.abi_version = key.second;
    group.pid = connection->peer().pid;
    group.uid = connection->peer().uid;
    ++group.connections;
  }
  for (auto& [key, group] : groups) facts.clients.push_back(std::move(group));
  return facts;
}

Connection* Server::Find(std::uint64_t id) {
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second.get();
}

}  // namespace idd::daemon
