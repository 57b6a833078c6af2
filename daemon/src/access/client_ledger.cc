// SPDX-License-Identifier: Apache-2.0
#include "access/client_ledger.h"

namespace idd::daemon {

ClientUse& ClientUse::operator+=(const ClientUse& other) noexcept {
  attachments += other.attachments;
  requests += other.requests;
  ids += other.ids;
  dry_waits += other.dry_waits;
  return *this;
}

void ClientLedger::Connected(std::uint64_t id, const Peer& peer, MonotonicTime now) {
  Client& client = clients_[id];
  client.peer = peer;
  client.since = now;
}

void ClientLedger::Greeted(std::uint64_t id, std::string_view version, std::uint32_t abi_version) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;
  client->second.version = version;
  client->second.abi_version = abi_version;
}

void ClientLedger::Attached(std::uint64_t id, const std::string& tag, MonotonicTime now) {
  ClientUse* const use = UseOf(id, tag);
  if (use == nullptr) return;
  ++use->attachments;
  use->attached_since = now;
}

void ClientLedger::Claimed(std::uint64_t id, const std::string& tag, std::uint64_t ids,
                           std::uint64_t dry_waits) {
  ClientUse* const use = UseOf(id, tag);
  if (use == nullptr) return;
  ++use->requests;
  use->ids += ids;
  use->dry_waits += dry_waits;
}

// A connection that used no tag leaves no entry; each run of idctl is such a connection.
void ClientLedger::Gone(std::uint64_t id) {
  const auto gone = clients_.find(id);
  if (gone == clients_.end()) return;
  for (const auto& [tag, use] : gone->second.uses) {
    Past& past = PastOf(gone->second.peer.uid, tag);
    ++past.connections;
    past.use += use;
  }
  clients_.erase(gone);
}

ClientUse* ClientLedger::UseOf(std::uint64_t id, const std::string& tag) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return nullptr;
  Uses& uses = client->second.uses;
  const auto known = uses.find(tag);
  if (known != uses.end()) return &known->second;
  return &uses[uses.size() < kMaxTags ? tag : std::string(kOtherTags)];
}

ClientLedger::Past& ClientLedger::PastOf(uid_t uid, const std::string& tag) {
  const auto known = past_.find({uid, tag});
  if (known != past_.end()) return known->second;
  if (past_.size() < kMaxPastEnd) return past_[{uid, tag}];
  return past_[{kOtherUsers, kOtherTags}];
}

}  // namespace idd::daemon
