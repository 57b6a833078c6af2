// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_RING_REQUEST_H_
#define IDD_TESTS_SUPPORT_RING_REQUEST_H_

#include <string>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/wire/channel.h"

namespace idd::harness {

// The requests that libidclient sends before it maps a ring, for tests that use the reply in
// another way.

// Connected, and HELLO was answered.
[[nodiscard]] Result<wire::Channel> ConnectAndGreet(const std::string& socket, Deadline deadline);

// The reply to ATTACH, with the ring's descriptors if the tag passes them.
[[nodiscard]] Result<wire::Message> RequestRing(wire::Channel& channel, const std::string& tag,
                                                Deadline deadline);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_RING_REQUEST_H_
