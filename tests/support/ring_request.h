// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_RING_REQUEST_H_
#define IDD_TESTS_SUPPORT_RING_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/shm/ring_memory.h"
#include "idd/wire/channel.h"

namespace idd::harness {

// The requests that libidclient sends before it maps a ring, for tests that use the reply in
// another way.

// Connected, and HELLO was answered.
[[nodiscard]] Result<wire::Channel> ConnectAndGreet(const std::string& socket, Deadline deadline);

// The reply to ATTACH, with the ring's descriptors if the tag passes them.
[[nodiscard]] Result<wire::Message> RequestRing(wire::Channel& channel, const std::string& tag,
                                                Deadline deadline);

// The ring as any authorised client maps it: every cursor is writable. Throws HarnessError.
[[nodiscard]] std::unique_ptr<shm::RingMemory> MapRing(const std::string& socket,
                                                       const std::string& tag);

// Writes `value` over every cursor in use.
void ForgeCursors(shm::RingMemory& ring, std::uint64_t value);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_RING_REQUEST_H_
