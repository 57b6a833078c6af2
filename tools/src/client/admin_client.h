// SPDX-License-Identifier: Apache-2.0
//
// Admin requests over the daemon's socket (docs/socket-protocol.md, "Administration").
#ifndef IDD_TOOLS_CLIENT_ADMIN_CLIENT_H_
#define IDD_TOOLS_CLIENT_ADMIN_CLIENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "client/admin_request.h"
#include "client/json_document.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/shm/ring_observer.h"
#include "idd/wire/channel.h"

namespace idd::tools {

// A connection after its HELLO. Not thread-safe. Unusable after a kUnavailable.
class AdminClient {
 public:
  // Connects and agrees on versions. kUnavailable (no process listens, or it does not answer before
  // the deadline), kDenied, kIncompatible, kSystem.
  [[nodiscard]] static Result<AdminClient> Connect(const std::string& socket_path,
                                                   Deadline deadline);

  // Sends one request and returns the reply's document. A refusal of the daemon comes back with its
  // code and message. kIncompatible: the reply does not follow the protocol; kUnavailable: no
  // reply; kInvalid: the request is too long for a frame.
  [[nodiscard]] Result<JsonDocument> Request(const AdminRequest& request, Deadline deadline);

  // Returns the tag's ring, which can then be observed without the daemon; nothing if the tag has
  // no ring, if this user may not have it, or if the daemon is too old for OBSERVE. kUnavailable:
  // no reply; kSystem, kIncompatible: the ring exists but cannot be mapped.
  [[nodiscard]] Result<std::optional<shm::RingObserver>> Observe(const std::string& tag,
                                                                 Deadline deadline);

 private:
  explicit AdminClient(wire::Channel channel) : channel_(std::move(channel)) {}
  [[nodiscard]] Status Hello(Deadline deadline);

  wire::Channel channel_;
  std::uint64_t next_request_id_ = 1;
  std::uint32_t abi_version_ = 0;  // the daemon's
};

// The first `document_bytes` bytes of a document that the daemon sent. kIncompatible unless `fd` is
// a memfd of at least that length, sealed against writing and shrinking, and the length is 1 to
// kMaxAdminReplyBytes. The seals keep the document unchanged and mapped while it is read.
[[nodiscard]] Result<std::string> ReadSealedDocument(int fd, std::uint64_t document_bytes);

}  // namespace idd::tools

#endif  // IDD_TOOLS_CLIENT_ADMIN_CLIENT_H_
