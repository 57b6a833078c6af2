// SPDX-License-Identifier: Apache-2.0
#include "support/ring_request.h"

#include <cstdint>
#include <optional>

#include "idd/shm/abi.h"
#include "idd/wire/frames.h"

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

}  // namespace idd::harness
