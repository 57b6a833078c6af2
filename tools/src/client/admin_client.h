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

// A connection that has said hello. Not thread-safe. After a kUnavailable it is of no more use.
class AdminClient {
 public:
  // Connects and agrees on versions. kUnavailable (no process listens, or it does not answer before
  // the deadline), kDenied, kIncompatible, kSystem.
  [[nodiscard]] static Result<AdminClient> Connect(const std::string& socket_path,
                                                   Deadline deadline);

  // Sends one request and returns the reply's document. What the daemon refuses comes back
  // with its code and its sentence; a reply that is not what the protocol says is kIncompatible; no
  // reply is kUnavailable. kInvalid: the request is too long for a frame.
  [[nodiscard]] Result<JsonDocument> Request(const AdminRequest& request, Deadline deadline);

  // The tag's ring, to be looked at without the daemon from now on; nothing when it has none, when
  // this user may not have it, or when the daemon is older than that. kUnavailable: no reply;
  // kSystem, kIncompatible: it has one that cannot be had.
  [[nodiscard]] Result<std::optional<shm::RingObserver>> Observe(const std::string& tag,
                                                                 Deadline deadline);

 private:
  explicit AdminClient(wire::Channel channel) : channel_(std::move(channel)) {}
  [[nodiscard]] Status Hello(Deadline deadline);

  wire::Channel channel_;
  std::uint64_t next_request_id_ = 1;
  std::uint32_t abi_version_ = 0;  // the daemon's
};

// The `document_bytes` first bytes of a document that the daemon sent. kIncompatible unless `fd` is
// a memfd sealed against writing and shrinking, at least that long, and the length is 1 to
// kMaxAdminReplyBytes: then nothing can change or vanish below the reader.
[[nodiscard]] Result<std::string> ReadSealedDocument(int fd, std::uint64_t document_bytes);

}  // namespace idd::tools

#endif  // IDD_TOOLS_CLIENT_ADMIN_CLIENT_H_
