// SPDX-License-Identifier: Apache-2.0
#include "client.h"

#include <utility>

#include "idd/base/clock.h"
#include "idd/wire/frames.h"
#include "process_mark.h"

namespace idd::client {

using idd::Deadline;
using idd::Result;
using idd::Status;

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      connection_(new Connection(options_.socket_path, options_.trusted_uid)) {}

Client::~Client() {
  Tag* tag = tags_.load(std::memory_order_acquire);  // G1, pairs with G2
  while (tag != nullptr) {
    std::unique_ptr<Tag> owned(tag);
    tag = owned->next;
  }
  Connection* connection = connection_.load(std::memory_order_acquire);  // K1, pairs with K2
  // A child that never used the client still has the parent's object. Threads that do not exist in
  // the child may hold its locks, so only its descriptor is closed and the object is not touched.
  if (connection->owner() == ProcessMark()) {
    delete connection;
  } else {
    connection->AbandonInChild();
  }
}

Result<std::unique_ptr<Client>> Client::Open(ClientOptions options) {
  std::unique_ptr<Client> client(new Client(std::move(options)));
  const Deadline deadline = Deadline::After(client->timeout());
  if (Status status = client->connection().EnsureConnected(deadline); !status.ok()) return status;
  return client;
}

Connection& Client::connection() {
  Connection* connection = connection_.load(std::memory_order_acquire);  // K1, pairs with K2
  if (connection->owner() == ProcessMark()) return *connection;
  auto own = std::make_unique<Connection>(options_.socket_path, options_.trusted_uid);
  // K2: of several threads of the child one wins; the losers use the winner's.
  if (connection_.compare_exchange_strong(connection, own.get(), std::memory_order_acq_rel,  // K2
                                          std::memory_order_acquire)) {                      // K1
    connection->AbandonInChild();
    return *own.release();
  }
  return *connection;
}

Connection* Client::own_connection() noexcept {
  Connection* connection = connection_.load(std::memory_order_acquire);  // K1, pairs with K2
  return connection->owner() == ProcessMark() ? connection : nullptr;
}

Tag* Client::FindTag(std::string_view name, std::uint64_t block_size) const noexcept {
  Tag* tag = tags_.load(std::memory_order_acquire);  // G1, pairs with G2
  while (tag != nullptr && (tag->name() != name || tag->block_size() != block_size)) {
    tag = tag->next;
  }
  return tag;
}

Result<Tag*> Client::OpenTag(std::string_view name, std::uint64_t block_size) {
  if (block_size == 1) block_size = 0;
  if (Status status = idd::wire::CheckTagName(name); !status.ok()) return status;
  if (Tag* tag = FindTag(name, block_size); tag != nullptr) return tag;
  std::optional<BlockOwner> blocks;
  if (block_size != 0) {
    Result<BlockOwner> place = ThreadBlocks::TakePlace();
    if (!place.ok()) return place.status();
    blocks = place.value();
  }
  auto tag = std::make_unique<Tag>(*this, std::string(name), block_size, blocks);
  Status status = tag->Attach(Deadline::After(options_.timeout));
  if (!status.ok()) {
    // Some of the daemon's error messages already begin with these words.
    const std::string who = "tag '" + std::string(name) + "'";
    return status.message().starts_with(who) ? status : status.WithContext(who);
  }
  Tag* first = tags_.load(std::memory_order_acquire);  // G1, pairs with G2
  do {
    if (Tag* other = FindTag(name, block_size); other != nullptr) return other;
    tag->next = first;
  } while (!tags_.compare_exchange_weak(first, tag.get(), std::memory_order_acq_rel,  // G2
                                        std::memory_order_acquire));                  // G1
  return tag.release();
}

}  // namespace idd::client
