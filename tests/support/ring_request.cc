// SPDX-License-Identifier: Apache-2.0
#include "support/ring_request.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "idd/shm/abi.h"
#include "idd/wire/frames.h"
#include "support/test_environment.h"

namespace idd::harness {

Result<wire::Channel> ConnectAndGreet(const std::string& socket, Deadline deadline) {
  Result<wire::Channel> channel = wire::Channel::Connect(socket, deadline, std::nullopt);
  if (!channel.ok()) return channel;
  wire::HelloRequest hello;
  hello.abi_version = shm::kAbiVersion;
  const Result<wire::Message> greeted =
      channel.value().Exchange(wire::BuildRequest(wire::FrameType::kHello, 1, hello), deadline);
  if (!greeted.ok()) return greeted.status();
  return channel;
}

Result<wire::Message> RequestRing(wire::Channel& channel, const std::string& tag,
                                  Deadline deadline) {
  wire::AttachRequest attach;
  attach.tag = wire::PackTag(tag);
  attach.timeout_ms = static_cast<std::uint32_t>(deadline.remaining().count());
  return channel.Exchange(wire::BuildRequest(wire::FrameType::kAttach, 2, attach), deadline);
}

std::unique_ptr<shm::RingMemory> MapRing(const std::string& socket, const std::string& tag) {
  const Deadline deadline = Deadline::After(Patience(std::chrono::seconds(5)));
  Result<wire::Channel> channel = ConnectAndGreet(socket, deadline);
  Require(channel.ok(), channel.status().message());
  Result<wire::Message> reply = RequestRing(channel.value(), tag, deadline);
  Require(reply.ok(), reply.status().message());
  auto ring = shm::RingMemory::Attach(reply.value().fds[0], reply.value().fds[1], tag);
  Require(ring.ok(), ring.status().message());
  return std::move(ring).value();
}

void ForgeCursors(shm::RingMemory& ring, std::uint64_t value) {
  for (shm::Cursor& cursor : ring.cursors().slots) {
    if (cursor.next.load(std::memory_order_relaxed) != 0) {
      cursor.next.store(value, std::memory_order_relaxed);
    }
  }
}

}  // namespace idd::harness
