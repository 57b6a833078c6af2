// SPDX-License-Identifier: Apache-2.0
#include "client.h"

#include <mutex>
#include <utility>

#include "idd/base/clock.h"
#include "idd/wire/frames.h"
#include "process_mark.h"
#include "reconnect.h"

namespace idd::client {

using idd::Deadline;
using idd::Result;
using idd::Status;

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      connection_(new Connection(options_.socket_path, options_.trusted_uid, options_.log)) {}

Client::~Client() {
  while (tags_ != nullptr) {
    const std::unique_ptr<Tag> owned(std::exchange(tags_, tags_->next));
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
  Status status = UntilAnswered(deadline, client->opens_once(), [&](bool&) {
    return client->connection().EnsureConnected(deadline);
  });
  if (!status.ok()) return status;
  return client;
}

Connection& Client::connection() {
  Connection* connection = connection_.load(std::memory_order_acquire);  // K1, pairs with K2
  if (connection->owner() == ProcessMark()) return *connection;
  auto own = std::make_unique<Connection>(options_.socket_path, options_.trusted_uid, options_.log);
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
  Tag* tag = tags_;
  while (tag != nullptr && (tag->name() != name || tag->block_size() != block_size)) {
    tag = tag->next;
  }
  return tag;
}

Tag* Client::OpenAgain(std::string_view name, std::uint64_t block_size) noexcept {
  const std::lock_guard lock(tags_lock_);
  Tag* const tag = FindTag(name, block_size);
  if (tag != nullptr) ++tag->opens;
  return tag;
}

Result<Tag*> Client::OpenTag(std::string_view name, std::uint64_t block_size) {
  if (block_size == 1) block_size = 0;
  if (Status status = idd::wire::CheckTagName(name); !status.ok()) return status;
  Tag* tag = OpenAgain(name, block_size);
  if (tag == nullptr) {
    std::optional<BlockOwner> blocks;
    if (block_size != 0) {
      Result<BlockOwner> place = ThreadBlocks::TakePlace();
      if (!place.ok()) return place.status();
      blocks = place.value();
    }
    auto made = std::make_unique<Tag>(*this, std::string(name), block_size, blocks);
    const std::lock_guard lock(tags_lock_);
    tag = FindTag(name, block_size);
    if (tag == nullptr) {
      tag = made.release();
      tag->next = tags_;
      tags_ = tag;
    }
    ++tag->opens;
  }
  // Another thread may have opened it and not have attached yet.
  Status status = tag->AttachFirst(Deadline::After(options_.timeout));
  if (status.ok()) return tag;
  CloseTag(tag);
  // Most of the daemon's error messages name the tag already.
  const std::string who = "tag '" + std::string(name) + "'";
  return status.message().find(who) != std::string::npos ? status : status.WithContext(who);
}

void Client::CloseTag(Tag* tag) noexcept {
  std::unique_ptr<Tag> closed;
  const std::lock_guard lock(tags_lock_);
  if (--tag->opens != 0) return;
  Tag** link = &tags_;
  while (*link != tag) link = &(*link)->next;
  *link = tag->next;
  closed.reset(tag);
}

}  // namespace idd::client
